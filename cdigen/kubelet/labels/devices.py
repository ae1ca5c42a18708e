"""``labelled_devices`` returns the devices that have labels, with their sharing strategies. No I/O."""

from __future__ import annotations

from cdigen.vendors.classes import GPU
from cdigen.vendors.labels import MEMORY, MPS, NONE, TIME_SLICING, LabelledDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.kubelet.resources.model import Resource, Unit
    from cdigen.model.inventory import Accelerator, Inventory

    Key = tuple[str, str, int]

# The only GPU of a host whose driver presents all GPUs as one device (``resources.naming``).
_ONE = (GPU, "", 0)


def labelled_devices(
    resources: Iterable[Resource], inventories: Mapping[str, Inventory]
) -> tuple[LabelledDevice, ...]:
    """Return the devices and partitions of INVENTORIES that are in RESOURCES, healthy or not."""
    owners = {key: vendor for vendor, one in inventories.items() for key in _keys(one)}
    found: list[LabelledDevice] = []
    for resource in resources:
        units: dict[tuple[Key, str], tuple[Unit, int]] = {}
        for unit in resource.units:
            part = unit.partition
            device = (_key(unit.accelerator), part.instance or part.label if part else "")
            first, count = units.get(device, (unit, 0))
            units[device] = (first, count + 1)
        shared = MPS if resource.by_mps else TIME_SLICING
        for (key, _), (unit, count) in units.items():
            if key not in owners:
                continue
            strategy = NONE if unit.replica is None else shared
            found.append(
                LabelledDevice(
                    vendor=owners[key],
                    gpu=unit.accelerator,
                    partition=unit.partition,
                    resource=resource.name,
                    replicas=0 if resource.is_memory else count,
                    sharing=MEMORY if resource.is_memory and not resource.by_mps else strategy,
                )
            )
    return tuple(found)


def _keys(inventory: Inventory) -> list[Key]:
    if inventory.is_undivided and not inventory.accelerators:
        return [_ONE]
    return [_key(gpu) for gpu in inventory.accelerators]


def _key(gpu: Accelerator) -> Key:
    return gpu.device_class, gpu.address, gpu.index
