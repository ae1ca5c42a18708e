"""``node_labels`` returns all labels of a node. No I/O."""

from __future__ import annotations

from cdigen.vendors import registry
from cdigen.vendors.classes import GPU
from cdigen.vendors.labels import MEMORY, MPS, NONE, TIME_SLICING, LabelledDevice, LabelSource, is_label

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.kubelet.resources.model import Resource, Unit
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.vendors.labels import Label

    Key = tuple[str, str, int]

# The only GPU of a host whose driver presents all GPUs as one device (``resources.naming``).
_ONE = (GPU, "", 0)


def node_labels(
    resources: Iterable[Resource],
    inventories: Mapping[str, Inventory],
    *,
    running: Mapping[str, str],
    mig_strategy: str = "mixed",
    machine: str = "",
) -> tuple[tuple[Label, ...], tuple[Finding, ...]]:
    """Return the labels of a node, sorted by name, and findings on vendors whose code failed.

    The labels are pairs of name and value that Kubernetes accepts. A device of INVENTORIES is included if it
    is in RESOURCES. An unhealthy device is included, because the node's capacity also includes the device.
    RUNNING has the version of each loaded driver by vendor, for drivers with a version. MACHINE is the host's
    model.
    """
    devices = _labelled_devices(resources, inventories)
    found: list[Label] = []
    failures: list[Finding] = []
    for vendor, inventory in inventories.items():
        labels = registry.labels(vendor)
        source = LabelSource(
            devices=tuple(each for each in devices if each.vendor == vendor),
            inventory=inventory,
            has_driver=running.get(vendor, "") in {"", inventory.driver.version},
            mig_strategy=mig_strategy,
            machine=machine,
        )
        with registry.reporting(vendor, failures):
            found += labels(source) if labels is not None else ()
    kept = {name: value for name, value in found if is_label((name, value))}
    return tuple(sorted(kept.items())), tuple(failures)


def _labelled_devices(
    resources: Iterable[Resource], inventories: Mapping[str, Inventory]
) -> list[LabelledDevice]:
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
    return found


def _keys(inventory: Inventory) -> list[Key]:
    if inventory.is_undivided and not inventory.accelerators:
        return [_ONE]
    return [_key(gpu) for gpu in inventory.accelerators]


def _key(gpu: Accelerator) -> Key:
    return gpu.device_class, gpu.address, gpu.index
