"""Group equal causes and equal findings of several devices.

``cause_groups`` returns causes with the names of the affected devices. ``finding_groups`` returns findings.
"""

from __future__ import annotations

import re

from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.findings import Finding
    from cdigen.model.health import Cause
    from cdigen.model.inventory import Accelerator
    from cdigen.pipeline.device_names import KnownDevice

_MAX_NAMES = 4
# Parts of a text that can differ for several devices: PCI addresses, UUIDs and numbers.
_NUMBERS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|\b[A-Z]+-[0-9a-f-]{36}\b|\d+")


@frozen
class CauseGroup:
    """A cause that several devices have, with the ``names`` of the devices; ``first`` is the oldest cause."""

    names: tuple[str, ...]
    first: Cause

    @property
    def listed(self) -> str:
        """The first names, and the number of the remaining names."""
        return _listed(self.names)

    @property
    def title(self) -> str:
        """A line with the unhealthy devices and their cause."""
        if len(self.names) == 1:
            return f"{self.names[0]} is unhealthy: {self.first.cause}"
        return f"{len(self.names)} devices are unhealthy: {self.first.cause} ({self.listed})"


def cause_groups(devices: Iterable[KnownDevice]) -> tuple[CauseGroup, ...]:
    """Return the causes of DEVICES, grouped by cause and remedy.

    For a cause of a split GPU, the group has the names of the GPU's partitions.
    """
    devices = tuple(devices)
    names: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], Cause] = {}
    for device in devices:
        for cause in device.own_causes:
            key = (cause.cause, cause.next_step or cause.clears_when)
            names.setdefault(key, []).extend(_names(device, devices))
            first[key] = min(first.get(key, cause), cause, key=lambda each: each.since)
    return tuple(
        CauseGroup(names=tuple(dict.fromkeys(found)), first=first[key]) for key, found in names.items()
    )


def _names(device: KnownDevice, devices: tuple[KnownDevice, ...]) -> list[str]:
    """Return the names of DEVICE in specs.

    For a split GPU, the result has the names of its partitions. Without a usable partition, the result has
    the index and address of the GPU.
    """
    if device.partition is not None or not device.accelerator.partitioned:
        return [device.name]
    gpu = device.accelerator
    parts = [each for each in devices if each.partition is not None and each.accelerator is gpu]
    return [each.name for each in parts if each.is_offered] or [_unnamed(gpu)]


def _unnamed(gpu: Accelerator) -> str:
    lack = "no usable partition" if gpu.partitions else "no partition"
    return f"GPU {gpu.index} ({gpu.address or gpu.uuid}, {lack})"


def finding_groups(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return FINDINGS. Findings that differ only in numbers become a single finding with all paths."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in dict.fromkeys(findings):
        texts = (_NUMBERS.sub("#", text) for text in (finding.message, finding.hint))
        groups.setdefault((finding.severity, finding.rule, *texts), []).append(finding)
    return tuple(_merged(*group) for group in groups.values())


def _merged(first: Finding, *others: Finding) -> Finding:
    if not others:
        return first
    paths = tuple(dict.fromkeys(other.path for other in others if other.path != first.path))
    which = f": {_listed(paths)}" if paths else ""
    return replace(first, message=f"{first.message} (and {len(others)} more{which})")


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
