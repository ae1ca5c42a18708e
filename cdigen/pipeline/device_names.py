"""The CDI names of the devices in inventories: ``known_devices`` and ``devices_by_name``.

Pure. The function ``edits`` of a vendor names the devices. This module calls ``edits`` for a single device at
a time.
"""

from __future__ import annotations

from collections import Counter

from cdigen.model.names import NONE
from cdigen.model.profile import NAMINGS
from cdigen.value import frozen, replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.model.health import Cause, Health
    from cdigen.model.inventory import Accelerator, Inventory, Partition
    from cdigen.model.profile import Profile

_ALL = "all"


@frozen
class KnownDevice:
    """A device of ``vendor``; if ``partition`` is set, this partition of the device.

    ``name`` is the usual CDI name. A GPU that is split or not in a spec also has a name. ``names`` are all
    CDI names of this device. Some names select several devices. Specs have only some of these names.
    """

    vendor: str
    name: str
    names: tuple[str, ...]
    accelerator: Accelerator
    partition: Partition | None = None

    @property
    def health(self) -> Health:
        """The health of the device. The health of a partition includes the health of its GPU."""
        return (self.partition or self.accelerator).health

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes that make the device unhealthy."""
        return (self.partition or self.accelerator).causes

    @property
    def own_causes(self) -> tuple[Cause, ...]:
        """The causes of the device. For a partition, the causes of its GPU are not included."""
        if self.partition is None:
            return self.causes
        return tuple(cause for cause in self.causes if cause not in self.accelerator.causes)

    @property
    def uuid(self) -> str | None:
        """The UUID of the device, or None if the UUID is unknown."""
        return (self.partition or self.accelerator).uuid

    @property
    def instance(self) -> str:
        """The driver's name of the partition, or "" for a whole device."""
        return self.partition.instance if self.partition else ""

    @property
    def usable(self) -> bool:
        """Whether the device is usable according to discovery."""
        return self.accelerator.usable and (self.partition is None or self.partition.usable)

    @property
    def excluded(self) -> str:
        """The row of the configuration that excludes the device, or an empty text."""
        return self.accelerator.excluded or (self.partition.excluded if self.partition else "")

    @property
    def is_offered(self) -> bool:
        """Whether containers can get the device. Instead of a split GPU, containers get its partitions."""
        return self.usable and (self.partition is not None or not self.accelerator.partitioned)


def known_devices(
    inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...]
) -> tuple[KnownDevice, ...]:
    """Return the devices of INVENTORIES, each followed by its partitions, with the names of PROFILES."""
    return tuple(
        device
        for vendor, inventory in inventories.items()
        for gpu in inventory.accelerators
        for device in _of_gpu(vendor, inventory, gpu, profiles)
    )


def devices_by_name(devices: Iterable[KnownDevice]) -> dict[str, tuple[KnownDevice, ...]]:
    """Return a map of each CDI name to the devices in DEVICES with this name.

    The name ``all`` of a kind has all usable devices of the kind.
    """
    found: dict[str, list[KnownDevice]] = {}
    for device in devices:
        # A split GPU is not in ``all``, because its partitions have the causes of the GPU.
        alls = [f"{name.partition('=')[0]}={_ALL}" for name in device.names] if device.is_offered else []
        # The names are made unique, not the devices, because a comparison of devices is slow.
        for name in dict.fromkeys((*device.names, *alls)):
            found.setdefault(name, []).append(device)
    return {name: tuple(those) for name, those in found.items()}


def health_of(devices: Iterable[KnownDevice]) -> Health:
    """Return "unhealthy" if a device is unhealthy, "healthy" if all are healthy, and otherwise "unknown"."""
    found = {device.health for device in devices}
    if "unhealthy" in found:
        return "unhealthy"
    return "healthy" if found == {"healthy"} else "unknown"


def _of_gpu(
    vendor: str, inventory: Inventory, gpu: Accelerator, profiles: tuple[Profile, ...]
) -> Iterator[KnownDevice]:
    """Yield GPU and its partitions."""

    def names_of(*partitions: Partition) -> tuple[str, ...]:
        usable = tuple(replace(part, usable=True) for part in partitions)
        return _names(vendor, inventory, replace(gpu, usable=True, partitions=usable), profiles)

    # A profile may also contain a split GPU as a whole device.
    whole = names_of()
    of_parts = [
        (part, tuple(name for name in names_of(part) if name not in whole)) for part in gpu.partitions
    ]
    owners = Counter(name for _, names in of_parts for name in names)
    # If all partitions of a GPU have a name in common, this is a name of the GPU.
    shared = tuple(name for name, count in owners.items() if 1 < count == len(of_parts))
    names = (*whole, *shared)
    has_ordinals = any(part.ordinal is not None for part in gpu.partitions)
    usual = f"{registry.cdi_vendor(vendor)}/{gpu.device_class}={gpu.address if has_ordinals else gpu.index}"
    yield KnownDevice(vendor=vendor, name=(*names, usual)[0], names=names, accelerator=gpu)
    for part, part_names in of_parts:
        own = [name for name in part_names if owners[name] == 1]
        name = (*own, *part_names, f"{usual}:{part.label}")[0]
        yield KnownDevice(vendor=vendor, name=name, names=part_names, accelerator=gpu, partition=part)


def _names(
    vendor: str, inventory: Inventory, gpu: Accelerator, profiles: tuple[Profile, ...]
) -> tuple[str, ...]:
    """Return the names of GPU, the usual name first. If the code of the vendor fails, the result is empty."""
    alone = replace(inventory, accelerators=(gpu,), nodes=(), files=(), searched=(), findings=(), groups=())
    code = registry.load(vendor)
    every = tuple(
        replace(
            profile, names=tuple(dict.fromkeys((*(profile.names or code.NAMINGS), *code.NAMINGS, *NAMINGS)))
        )
        for profile in profiles
    )
    try:
        drafts = code.edits(alone, every)
    except Exception:  # noqa: BLE001 - a defect of the vendor's code, which generating specs reports
        return ()
    return tuple(
        f"{draft.kind}={device.name}"
        for draft in drafts
        for device in draft.devices
        if device.name not in {NONE, _ALL}
    )
