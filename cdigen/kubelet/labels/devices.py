"""``labelled_devices`` returns the devices that have labels, with their sharing strategies. No I/O."""

from __future__ import annotations

from cdigen.kubelet.resources.naming import UNDIVIDED
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.kubelet.resources.model import Resource, Unit
    from cdigen.model.inventory import Accelerator, Inventory, Partition

    Key = tuple[str, str, int]

# The sharing strategies with NVIDIA's names (k8s-device-plugin, api/config/v1), and the strategy ``memory``.
NONE, TIME_SLICING, MPS, MEMORY = "none", "time-slicing", "mps", "memory"
GPU = "gpu"
_ONE = (GPU, "", 0)


@frozen
class LabelledDevice:
    """The GPU ``gpu`` of ``vendor``, or a ``partition`` of this GPU, as a device of ``resource``.

    ``replicas`` is the number of replicas, or 0 for memory units. ``sharing`` is the sharing strategy of the
    device.
    """

    vendor: str
    gpu: Accelerator
    partition: Partition | None
    resource: str
    replicas: int
    sharing: str

    @property
    def profile(self) -> str:
        """The profile of the partition ("1g.10gb"), or "" for a whole GPU."""
        return self.partition.profile if self.partition else ""


def labelled_devices(
    resources: Iterable[Resource], inventories: Mapping[str, Inventory]
) -> tuple[LabelledDevice, ...]:
    """Return the GPUs and partitions of INVENTORIES that are in RESOURCES, healthy or not."""
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
    if inventory.mode in UNDIVIDED and not inventory.accelerators:
        return [_ONE]
    return [_key(gpu) for gpu in inventory.accelerators if gpu.device_class == GPU]


def _key(gpu: Accelerator) -> Key:
    return gpu.device_class, gpu.address, gpu.index
