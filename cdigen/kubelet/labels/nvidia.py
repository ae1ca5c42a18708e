"""NVIDIA's labels, by the names of its gpu-feature-discovery: ``labels``. Pure.

Names and meanings are those of k8s-device-plugin 0.20 (docs/gpu-feature-discovery, internal/lm). Where GPUs
are not alike, its values are those of one of them, chosen by chance; here ``words.spread`` counts.
"""

from __future__ import annotations

import re

from cdigen.kubelet.labels.devices import MPS, NONE, UNDIVIDED
from cdigen.kubelet.labels.words import fitting, numbers, spread
from cdigen.value import replace
from cdigen.vendors.nvidia.model_names import arch_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdigen.kubelet.labels.devices import LabelledDevice
    from cdigen.kubelet.labels.words import Label
    from cdigen.model.inventory import Driver, Inventory

_VENDOR = "nvidia.com"
_GPU = f"{_VENDOR}/gpu"
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)(?:\.([0-9]+))?")
# 1c.3g.40gb: compute slices, if they are fewer, and slices of the GPU instance.
_PROFILE = re.compile(r"(?:([0-9]+)c\.)?([0-9]+)g\.[0-9]+gb")
# By compute capability (internal/lm/resource.go, getArchFamily).
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
_VIRTUAL = re.compile(r"-[0-9]+[ABCQ]$")
# Of these all GPUs can be split, or none can; of others the model alone does not tell (NVIDIA's MIG user
# guide, "Supported GPUs").
# In a virtual machine with a part of a GPU, as the model's name ends (A100-40C, A100-1-5C), none can.
_SPLITTABLE, _WHOLE = ("8.0", "9.0", "10.0", "10.3"), ("3.", "5.", "6.", "7.", "8.6", "8.9")


def labels(
    devices: Sequence[LabelledDevice],
    inventory: Inventory,
    *,
    mig_strategy: str,
    machine: str,
    has_driver: bool,
) -> list[Label]:
    """Return the labels of a node with DEVICES of INVENTORY, none where there is no device.

    MACHINE is the host's model; HAS_DRIVER: the driver that runs is the inventory's.
    """
    if not devices:
        return []
    found = [(f"{_GPU}.machine", fitting(machine))]
    found += _versions(inventory.driver) if has_driver else []
    if inventory.mode in UNDIVIDED:
        return found
    items = _items(devices, is_single=mig_strategy == "single")
    if mig_strategy != "none":
        found.append((f"{_VENDOR}/mig.strategy", mig_strategy))
    found += _capabilities(items)
    found += _described(_GPU, items)
    arches = [arch_of(item.gpu.model) for item in items]
    found += spread(f"{_GPU}.family", [_family(arch) for arch in arches])
    found += spread(f"{_GPU}.compute.major", [arch.partition(".")[0] for arch in arches])
    found += spread(f"{_GPU}.compute.minor", [arch.partition(".")[2] for arch in arches])
    parts = [] if mig_strategy == "single" else [each for each in devices if each.partition]
    for name in sorted({_resource(part.profile) for part in parts if part.profile}):
        found += _described(name, [part for part in parts if _resource(part.profile) == name])
    return found


def _items(devices: Sequence[LabelledDevice], *, is_single: bool) -> list[LabelledDevice]:
    """Return what ``gpu.count`` counts: GPUs, and with IS_SINGLE the parts of those that are split."""
    items: list[LabelledDevice] = []
    split: set[tuple[str, int]] = set()
    for each in devices:
        key = (each.gpu.address, each.gpu.index)
        if each.partition is None or is_single:
            items.append(each)
        elif key not in split:
            split.add(key)
            # Nobody gets it whole.
            items.append(replace(each, partition=None, replicas=0, sharing=NONE))
    return items


def _described(base: str, items: Sequence[LabelledDevice]) -> list[Label]:
    """Return what labels say of ITEMS, whose names begin with BASE."""
    shapes = [_PROFILE.match(item.profile) for item in items]
    found = [(f"{base}.count", str(len(items)))]
    found += spread(f"{base}.product", [_product(item, base) for item in items])
    found += spread(f"{base}.memory", numbers([(item.partition or item.gpu).memory_mib for item in items]))
    found += spread(f"{base}.replicas", [str(item.replicas) for item in items])
    found += spread(f"{base}.sharing-strategy", [item.sharing for item in items])
    if any(shapes):
        found += spread(f"{base}.slices.gi", [shape[2] if shape else "" for shape in shapes])
        found += spread(f"{base}.slices.ci", [shape[1] or shape[2] if shape else "" for shape in shapes])
    return found


def _product(item: LabelledDevice, base: str) -> str:
    """Return the model of ITEM, with what a pod gets of it that asks for the resource BASE."""
    if not item.gpu.model or (item.partition and not item.profile):
        return ""
    part = f"-MIG-{item.profile}" if item.partition else ""
    shared = "-SHARED" if item.replicas > 1 and item.resource == base else ""
    return f"{item.gpu.model}{part}{shared}"


def _resource(profile: str) -> str:
    """Return the plain name of the resource of MIG instances of PROFILE."""
    return f"{_VENDOR}/mig-{profile.replace('+', '.')}"


def _family(arch: str) -> str:
    return _FAMILIES.get(arch) or _FAMILIES.get(arch.partition(".")[0], "")


def _capabilities(items: Sequence[LabelledDevice]) -> list[Label]:
    """Return whether any GPU can be split, if that is known, and whether any is shared by MPS."""
    found = [(f"{_VENDOR}/mps.capable", "true" if any(item.sharing == MPS for item in items) else "false")]
    if any(item.gpu.partitioned or _can_be_split(item.gpu.model) for item in items):
        found.append((f"{_VENDOR}/mig.capable", "true"))
    elif all(arch_of(item.gpu.model).startswith(_WHOLE) for item in items):
        found.append((f"{_VENDOR}/mig.capable", "false"))
    return found


def _can_be_split(model: str) -> bool:
    return arch_of(model) in _SPLITTABLE and not _VIRTUAL.search(model)


def _versions(driver: Driver) -> list[Label]:
    """Return the versions of DRIVER and its CUDA, by the names of today and the deprecated ones."""
    found: list[Label] = []
    if match := _VERSION.fullmatch(driver.version):
        major, minor, revision = match.groups()
        names = [("major", "major", major), ("minor", "minor", minor), ("rev", "revision", revision)]
        for old, new, value in names:
            if value:
                found.append((f"{_VENDOR}/cuda.driver.{old}", value))
                found.append((f"{_VENDOR}/cuda.driver-version.{new}", value))
        found.append((f"{_VENDOR}/cuda.driver-version.full", driver.version))
    if driver.cuda and (match := _VERSION.fullmatch(driver.cuda)):
        for name, value in (("major", match[1]), ("minor", match[2])):
            found.append((f"{_VENDOR}/cuda.runtime.{name}", value))
            found.append((f"{_VENDOR}/cuda.runtime-version.{name}", value))
        found.append((f"{_VENDOR}/cuda.runtime-version.full", driver.cuda))
    return found
