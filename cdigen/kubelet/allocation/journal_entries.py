"""The journal of allocations: ``entries`` joins the kubelet's requests with the kubelet's list of pods.

A request names no pod (kubernetes#81442). The kubelet's pod resources API later lists the units of each
container. A refused container has no units and is in no list. The module does no I/O.
"""

from __future__ import annotations

from cdigen.kubelet.resources.model import MEMORY, REPLICA
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Literal

    from cdigen.kubelet.pods import PodDevices
    from cdigen.kubelet.resources.model import Resource, Unit

    # held: a container has the units. ended: no container has the units, or a later request got them.
    # refused: cdigen refused the request. unknown: the kubelet lists no pods.
    AllocationState = Literal["held", "ended", "refused", "unknown"]
    # The resource and the id of a unit.
    UnitKey = tuple[str, str]

# The largest number of requests in the journal.
MAX_JOURNAL = 100


@frozen
class Allocation:
    """A request of the kubelet with its result.

    ``at_s`` is the Unix time of the response. ``ids`` are the ids of the requested units. ``names`` are the
    CDI names in the response. If ``count`` is not 0, it is the number of requested units, and ``ids`` may
    have only the first of these units. ``cause`` and ``reason`` describe a refusal, or are empty.
    """

    at_s: float
    resource: str
    ids: tuple[str, ...]
    names: tuple[str, ...] = ()
    cause: str = ""
    reason: str = ""
    count: int = 0


@frozen
class AllocationEntry:
    """An allocation with its container.

    ``pod`` is None if the container is unknown. ``allocation`` is None if the container got its units before
    the start of this process.
    """

    state: AllocationState
    allocation: Allocation | None = None
    pod: PodDevices | None = None


def entries(
    allocations: Iterable[Allocation], pods: Iterable[PodDevices] | None
) -> tuple[AllocationEntry, ...]:
    """Return the journal: first the containers without an allocation, then ALLOCATIONS, oldest first.

    Each allocation has the container of PODS that has the same units. PODS has one value for each container
    and resource, or is None if the kubelet lists no pods.
    """
    joined = tuple(pods or ())
    owners = {(pod.resource, id_): pod for pod in joined for id_ in pod.ids}
    found: list[AllocationEntry] = []
    later: set[UnitKey] = set()
    for allocation in reversed(tuple(allocations)):
        units = [(allocation.resource, id_) for id_ in allocation.ids]
        if allocation.cause:
            found.append(AllocationEntry(state="refused", allocation=allocation))
            continue
        is_over = bool(later.intersection(units))
        later.update(units)
        pod = None if is_over else _owner(units, owners)
        state: AllocationState = "held" if pod else "unknown" if pods is None and not is_over else "ended"
        found.append(AllocationEntry(state=state, allocation=allocation, pod=pod))
    matched = {(entry.pod.resource, entry.pod.description) for entry in found if entry.pod}
    before = [
        AllocationEntry(state="held", pod=pod)
        for pod in joined
        if (pod.resource, pod.description) not in matched
    ]
    return (*before, *reversed(found))


def _owner(units: list[UnitKey], owners: dict[UnitKey, PodDevices]) -> PodDevices | None:
    """Return the container that has all UNITS, or None if there is no such container."""
    found = {owners.get(unit) for unit in units}
    return found.pop() if len(found) == 1 else None


def used_units(requested: Resource, pods: Iterable[PodDevices]) -> dict[str, str]:
    """Return a description of the container by unit id, for the units of REQUESTED that PODS have.

    The kubelet tracks each resource separately. So the kubelet would allocate a device to a second container
    after a resource was renamed, or after another plugin served the resource. To prevent this, a unit is also
    in use if a container has a related device under any resource name. A related device is the unit's device,
    a partition of the device, or the GPU of the device. Replicas of one device do not exclude each other.
    Memory units of one GPU do not exclude each other. PODS must be listed after the request. An older list
    may have pods that have ended, and a refusal is final for a pod.
    """
    devices: dict[str, dict[str, str]] = {}
    units: dict[str, str] = {}
    for pod in pods:
        user = pod.description if pod.resource == requested.name else f"{pod.description}, as {pod.resource}"
        for id_ in pod.ids:
            mode = mode_of(id_)
            devices.setdefault(device_of(id_), {}).setdefault(mode, user)
            if mode == MEMORY:
                units.setdefault(id_, user)
    used = {}
    for unit in requested.units:
        own = mode_of(unit.id)
        others = (
            user
            for name in _devices(unit)
            for mode, user in devices.get(name, {}).items()
            if mode != own or not own
        )
        if user := next(others, "") or units.get(unit.id, ""):
            used[unit.id] = user
    return used


def device_names(units: Iterable[Unit]) -> frozenset[str]:
    """Return the ids of the devices of UNITS, of the devices' partitions, and of the devices' GPUs."""
    # All replicas or memory units of a device have the same device ids, so the first of them is enough.
    return frozenset(name for unit in units if not unit.replica for name in _devices(unit))


def device_of(id_: str) -> str:
    """Return the id of the device in ID_, without the number of a replica or memory unit."""
    mode = mode_of(id_)
    return id_.partition(mode)[0] if mode else id_


def display_id(id_: str) -> str:
    """Return the id to display for the unit ID_; for a memory unit, this is the id of the GPU."""
    return device_of(id_) if mode_of(id_) == MEMORY else id_


def mode_of(id_: str) -> str:
    """Return the mode of the unit ID_, which is REPLICA, MEMORY, or "" for a whole device."""
    return next((mode for mode in (MEMORY, REPLICA) if mode in id_), "")


def _devices(unit: Unit) -> Iterator[str]:
    """Yield the ids of UNIT's device, of the GPU that contains the device, and of the device's partitions."""
    yield device_of(unit.id)
    gpu = unit.accelerator
    parts = {part.uuid for part in gpu.partitions}
    # The first partition of an AMD GPU has the GPU's address. Other partitions must not match this address.
    whole = {gpu.uuid, gpu.address}.difference(part.address for part in gpu.partitions)
    yield from (name for name in (whole if unit.partition else parts) if name)
