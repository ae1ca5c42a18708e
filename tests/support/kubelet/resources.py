"""Resources for tests: ``resource``, ``units``, ``replicas``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.values.topology_places import gpu

from cdigen.kubelet.pods import PodDevices, PodList
from cdigen.kubelet.registration.listing import ResourceStatus
from cdigen.kubelet.resources.model import Resource, Unit
from cdigen.model.inventory import Accelerator, HostNode, Partition
from cdigen.value import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.kubelet.registration.state_machine import State
    from cdigen.model.health import Health

GPU = "nvidia.com/gpu"


def node(path: str) -> HostNode:
    return HostNode(path=path, host_path=path, role="gpu", major=195, minor=0, mode=0o666, uid=0, gid=0)


def card(index: int, **more: Any) -> Accelerator:
    """Return the GPU INDEX with its device node."""
    at = f"pci0000:{index // 4:02x}/0000:{index:02x}:00.0"
    return gpu(index, at, **{"nodes": (node(f"/dev/nvidia{index}"),), **more})


def unit(gpu: Accelerator, *, replica: int | None = None, part: Partition | None = None, **more: Any) -> Unit:
    """Return a unit for GPU, or for its partition PART, with the UUID as id and CDI name."""
    device = part or gpu
    values: dict[str, Any] = {
        "id": str(device.uuid) if replica is None else f"{device.uuid}::{replica}",
        "health": device.health,
        "numa": gpu.numa_node,
        "accelerator": gpu,
        "partition": part,
        "replica": replica,
        "cdi_names": (f"{GPU}={device.uuid}",),
        **more,
    }
    return Unit(**values)


def units(*ids: str, health: Health = "healthy", numa: int | None = 0) -> tuple[Unit, ...]:
    """Return a whole GPU for each of IDS, which is its UUID."""
    cards = (card(index, uuid=id_, health=health, numa_node=numa) for index, id_ in enumerate(ids))
    return tuple(unit(one) for one in cards)


def resource(count: int, **more: Any) -> Resource:
    """Return the resource nvidia.com/gpu of COUNT whole GPUs, each with the fields MORE."""
    return Resource(name=GPU, units=tuple(unit(card(index, **more)) for index in range(count)))


def replicas(gpus: int, count: int) -> Resource:
    """Return a resource of replicas: COUNT for each GPU; GPUS is the number of GPUs."""
    cards = [card(index) for index in range(gpus)]
    return Resource(name=GPU, units=tuple(unit(one, replica=n) for one in cards for n in range(count)))


def migs(gpus: int, count: int) -> Resource:
    """Return a resource of MIG instances: COUNT for each GPU; GPUS is the number of GPUs."""
    units = []
    for index in range(gpus):
        parts = tuple(
            Partition(
                index=n,
                uuid=f"MIG-{index}-{n}",
                profile="1g.10gb",
                instance=f"gi{n}/ci0",
                graphics=False,
                nodes=(node(f"/dev/nvidia-caps/nvidia-cap{index * 10 + n}"),),
                usable=True,
            )
            for n in range(count)
        )
        whole = card(index, partitioned=True, partitions=parts)
        units += [unit(whole, part=part) for part in parts]
    return Resource(name="nvidia.com/mig-1g.10gb", units=tuple(units))


def spec_names(*of: Resource) -> set[str]:
    """Return the CDI names of all units of the resources OF."""
    return {name for one in of for each in one.units for name in each.cdi_names}


def status(state: State, reason: str = "", **more: Any) -> ResourceStatus:
    """Return the status of nvidia.com/gpu with eight healthy devices."""
    values: dict[str, Any] = {
        "resource": GPU,
        "since_s": 0.0,
        "socket": "",
        "count": 8,
        "healthy": 8,
        "registrations": 0,
        "is_confirmed": False,
        **more,
    }
    return ResourceStatus(state=state, reason=reason, **values)


def listed(*devices: PodDevices) -> PodList:
    """Return the list of a kubelet whose pods have DEVICES, with one more pod without devices."""
    names = {f"{one.namespace}/{one.pod}" for one in devices} | {"kube-system/idle"}
    return PodList(devices=devices, names=frozenset(names))


def ids(of: Resource, places: Iterable[int]) -> list[str]:
    return [of.units[place].id for place in places]


def changed(of: Resource, place: int, **changes: Any) -> Resource:
    """Return the resource OF with CHANGES in its unit number PLACE."""
    units = list(of.units)
    units[place] = replace(units[place], **changes)
    return replace(of, units=tuple(units))
