"""The journal of allocations: ``AllocationJournal`` has the latest results of the kubelet's requests.

``entries`` joins these results with the kubelet's list of pods. A request names no pod (kubernetes#81442).
The kubelet's pod resources API later lists the units of each container. A refused container has no units and
is in no list. The module does no I/O.
"""

from __future__ import annotations

import time
from collections import Counter, deque

from cdigen.kubelet.allocation.container_response import AllocationRefusal
from cdigen.kubelet.resources.model import MEMORY, REPLICA
from cdigen.service.durations import DurationCounts
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Literal

    from cdigen.kubelet.allocation.container_response import ContainerResponse
    from cdigen.kubelet.pods import PodDevices
    from cdigen.kubelet.resources.model import Resource, Unit

    # held: a container has the units. ended: no container has the units, or a later request got them.
    # refused: cdigen refused the request. unknown: the kubelet lists no pods.
    AllocationState = Literal["held", "ended", "refused", "unknown"]
    # The resource and the id of a unit.
    UnitKey = tuple[str, str]

# The largest number of requests in the journal.
MAX_JOURNAL = 100
# Upper bounds in seconds. A response takes less than 1 ms, or longer if cdigen queries the kubelet or the API
# server.
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1)
# ``new_allocations`` yields at most this number of allocations.
_MAX_NEW = 1_000


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


class AllocationJournal:
    """The results of requests; ``on_allocate`` is called after each request.

    The link's thread adds results. Any thread may read them.

    Since the start of the process, ``allocations`` counts the allocations by resource, ``refused`` counts the
    refusals by resource and cause, and ``durations`` counts all responses.
    """

    def __init__(self) -> None:
        self.allocations: Counter[str] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        self.durations = DurationCounts(BUCKETS)
        self.on_allocate: Callable[[], object] = lambda: None
        self._entries: deque[Allocation] = deque(maxlen=MAX_JOURNAL)
        self._new: deque[Allocation] = deque(maxlen=_MAX_NEW)

    def record(
        self,
        resource: str,
        ids: tuple[str, ...],
        answer: ContainerResponse | AllocationRefusal,
        duration_s: float,
    ) -> None:
        """Add the result of a request for RESOURCE that took DURATION_S."""
        done = Allocation(at_s=time.time(), resource=resource, ids=ids[:MAX_JOURNAL], count=len(ids))
        if isinstance(answer, AllocationRefusal):
            self.refused[resource, answer.cause] += 1
            done = replace(done, cause=answer.cause, reason=answer.reason)
        else:
            self.allocations[resource] += 1
            done = replace(done, names=answer.names)
        self.durations.add(duration_s)
        self._entries.append(done)
        self._new.append(done)
        self.on_allocate()

    def latest(self) -> tuple[Allocation, ...]:
        """Return the latest results, oldest first."""
        return tuple(self._entries.copy())

    def new_allocations(self) -> Iterator[Allocation]:
        """Yield the results of requests since the last call."""
        while self._new:
            yield self._new.popleft()

    def allocations_since(self, at_s: float) -> Iterator[Allocation]:
        """Yield the latest allocations since the Unix time AT_S, without refusals."""
        return (one for one in self._entries if one.at_s >= at_s and not one.cause)


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
