"""The labels of NVIDIA's gpu-feature-discovery (``LABELS``). No I/O.

Names and meanings are from k8s-device-plugin 0.20 (docs/gpu-feature-discovery, internal/lm). If GPUs differ,
NVIDIA's labels describe one GPU, which is chosen by chance. In this case, the labels of cdigen have counts
(``vendors.labels.counted_labels``).
"""

from __future__ import annotations

import re

from cdigen.value import replace
from cdigen.vendors.labels import MPS, NONE, counted_labels, label_value, numbers
from cdigen.vendors.nvidia.devices.virtual import is_virtual
from cdigen.vendors.nvidia.driver_api import arch_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdigen.model.inventory import Driver
    from cdigen.vendors.labels import Label, LabelledDevice, LabelSource

_VENDOR = "nvidia.com"
_GPU = f"{_VENDOR}/gpu"
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)(?:\.([0-9]+))?")
# The ends of the deprecated and of the present names of labels for the parts of a version.
_DEPRECATED, _PRESENT = ("major", "minor", "rev"), ("major", "minor", "revision")
# A profile such as 1c.3g.40gb has the number of slices of the GPU instance (3). If the number of compute
# slices is smaller, the profile also has this number (1).
_PROFILE = re.compile(r"(?:([0-9]+)c\.)?([0-9]+)g\.[0-9]+gb")
# The values of the label ``gpu.family`` by compute capability (internal/lm/resource.go, getArchFamily).
_FAMILIES = {
    "3": "kepler",
    "5": "maxwell",
    "6": "pascal",
    "7": "volta",
    "7.5": "turing",
    "8": "ampere",
    "8.9": "ada-lovelace",
    "9": "hopper",
    "10": "blackwell",
    "12": "blackwell",
}
# The compute capabilities where all GPUs support MIG (_SPLITTABLE), and where no GPU supports MIG (_WHOLE).
# For other compute capabilities, MIG support is not known from the model (NVIDIA's MIG user guide, "Supported
# GPUs"). A vGPU does not support MIG.
_SPLITTABLE, _WHOLE = ("8.0", "9.0", "10.0", "10.3"), ("3.", "5.", "6.", "7.", "8.6", "8.9")


def labels(source: LabelSource) -> list[Label]:
    """Return the labels of a node with the devices of SOURCE, or [] if there is no device."""
    devices, inventory, mig_strategy = source.devices, source.inventory, source.mig_strategy
    if not devices:
        return []
    found = [(f"{_GPU}.machine", label_value(source.machine))]
    found += _versions(inventory.driver) if source.has_driver else []
    if inventory.is_undivided:
        return found
    items = _items(devices, is_single=mig_strategy == "single")
    if mig_strategy != "none":
        found.append((f"{_VENDOR}/mig.strategy", mig_strategy))
    found += _capabilities(items)
    found += _described(_GPU, items)
    arches = [arch_of(item.gpu.model) for item in items]
    found += counted_labels(f"{_GPU}.family", [_family(arch) for arch in arches])
    found += counted_labels(f"{_GPU}.compute.major", [arch.partition(".")[0] for arch in arches])
    found += counted_labels(f"{_GPU}.compute.minor", [arch.partition(".")[2] for arch in arches])
    parts = [] if mig_strategy == "single" else [each for each in devices if each.partition]
    for name in sorted({_resource(part.profile) for part in parts if part.profile}):
        found += _described(name, [part for part in parts if _resource(part.profile) == name])
    return found


def _items(devices: Sequence[LabelledDevice], *, is_single: bool) -> list[LabelledDevice]:
    """Return the GPUs for ``gpu.count``; if IS_SINGLE is set, MIG instances replace split GPUs."""
    items: list[LabelledDevice] = []
    split: set[tuple[str, int]] = set()
    for each in devices:
        key = (each.gpu.address, each.gpu.index)
        if each.partition is None or is_single:
            items.append(each)
        elif key not in split:
            split.add(key)
            # No container gets the whole GPU.
            items.append(replace(each, partition=None, replicas=0, sharing=NONE))
    return items


def _described(base: str, items: Sequence[LabelledDevice]) -> list[Label]:
    """Return the labels of ITEMS with names that begin with BASE."""
    shapes = [_PROFILE.match(item.profile) for item in items]
    found = [(f"{base}.count", str(len(items)))]
    found += counted_labels(f"{base}.product", [_product(item, base) for item in items])
    found += counted_labels(
        f"{base}.memory", numbers([(item.partition or item.gpu).memory_mib for item in items])
    )
    found += counted_labels(f"{base}.replicas", [str(item.replicas) for item in items])
    found += counted_labels(f"{base}.sharing-strategy", [item.sharing for item in items])
    if any(shapes):
        found += counted_labels(f"{base}.slices.gi", [shape[2] if shape else "" for shape in shapes])
        found += counted_labels(
            f"{base}.slices.ci", [shape[1] or shape[2] if shape else "" for shape in shapes]
        )
    return found


def _product(item: LabelledDevice, base: str) -> str:
    """Return the model of ITEM with its MIG profile, and "-SHARED" if ITEM has replicas in resource BASE."""
    if not item.gpu.model or (item.partition and not item.profile):
        return ""
    part = f"-MIG-{item.profile}" if item.partition else ""
    shared = "-SHARED" if item.replicas > 1 and item.resource == base else ""
    return f"{item.gpu.model}{part}{shared}"


def _resource(profile: str) -> str:
    """Return the default name of the resource for MIG instances of PROFILE."""
    return f"{_VENDOR}/mig-{profile.replace('+', '.')}"


def _family(arch: str) -> str:
    return _FAMILIES.get(arch) or _FAMILIES.get(arch.partition(".")[0], "")


def _capabilities(items: Sequence[LabelledDevice]) -> list[Label]:
    """Return the labels for MIG support, if that support is known, and for MPS sharing."""
    found = [(f"{_VENDOR}/mps.capable", "true" if any(item.sharing == MPS for item in items) else "false")]
    if any(item.gpu.partitioned or _can_be_split(item.gpu.model) for item in items):
        found.append((f"{_VENDOR}/mig.capable", "true"))
    elif all(arch_of(item.gpu.model).startswith(_WHOLE) for item in items):
        found.append((f"{_VENDOR}/mig.capable", "false"))
    return found


def _can_be_split(model: str) -> bool:
    return arch_of(model) in _SPLITTABLE and not is_virtual(model)


def _versions(driver: Driver) -> list[Label]:
    """Return the labels for the versions of DRIVER and CUDA, with present and deprecated names."""
    found: list[Label] = []
    for what, version in (("driver", driver.version), ("runtime", driver.cuda or "")):
        if match := _VERSION.fullmatch(version):
            for old, new, value in zip(_DEPRECATED, _PRESENT, match.groups(), strict=True):
                if value:
                    found.append((f"{_VENDOR}/cuda.{what}.{old}", value))
                    found.append((f"{_VENDOR}/cuda.{what}-version.{new}", value))
            found.append((f"{_VENDOR}/cuda.{what}-version.full", version))
    return found


LABELS = labels
