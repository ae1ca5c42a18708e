"""Which pod has what, and what became of requests: ``entries`` joins allocations with the kubelet's own list.

Pure. A request names no pod (kubernetes#81442). The kubelet's pod resources API tells afterwards which
container has which units; who is refused gets nothing, and is in no list.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Literal

    from cdigen.kubelet.pods import PodDevices
    from cdigen.kubelet.resources.model import Resource, Unit

    # held: a container has it; ended: none has it any more, or has it by a later request; refused; unknown:
    # the kubelet does not tell.
    State = Literal["held", "ended", "refused", "unknown"]
    # What unit is meant: resource and id.
    UnitKey = tuple[str, str]

# Between a device's id and the number of a replica (resources.sharing, and NVIDIA's plugin), or of a unit of
# its memory (resources.memory, and gpushare's plugin).
REPLICA, MEMORY = "::", "-_-"


@frozen
class Allocation:
    """A request of the kubelet: when it was answered (Unix time), for which units, with which CDI names.

    ``ids`` may be the first alone of ``count``, 0: they are all. ``cause`` and ``reason`` are those of a
    refusal, or empty.
    """

    at_s: float
    resource: str
    ids: tuple[str, ...]
    names: tuple[str, ...] = ()
    cause: str = ""
    reason: str = ""
    count: int = 0


@frozen
class Entry:
    """An allocation and the container that it was for, as far as either is known.

    Without an ``allocation`` it was made before this process ran.
    """

    state: State
    allocation: Allocation | None = None
    pod: PodDevices | None = None


def entries(allocations: Iterable[Allocation], pods: Iterable[PodDevices] | None) -> tuple[Entry, ...]:
    """Return ALLOCATIONS, oldest first, each with its container of PODS; before them, what else PODS have.

    PODS has one value for each container and resource; it is None where the kubelet does not tell.
    """
    joined = tuple(pods or ())
    owners = {(pod.resource, id_): pod for pod in joined for id_ in pod.ids}
    found: list[Entry] = []
    later: set[UnitKey] = set()
    for allocation in reversed(tuple(allocations)):
        units = [(allocation.resource, id_) for id_ in allocation.ids]
        if allocation.cause:
            found.append(Entry(state="refused", allocation=allocation))
            continue
        is_over = bool(later.intersection(units))
        later.update(units)
        pod = None if is_over else _owner(units, owners)
        state: State = "held" if pod else "unknown" if pods is None and not is_over else "ended"
        found.append(Entry(state=state, allocation=allocation, pod=pod))
    seen = {(entry.pod.resource, entry.pod.holder) for entry in found if entry.pod}
    before = [Entry(state="held", pod=pod) for pod in joined if (pod.resource, pod.holder) not in seen]
    return (*before, *reversed(found))


def _owner(units: list[UnitKey], owners: dict[UnitKey, PodDevices]) -> PodDevices | None:
    """Return the container that has all UNITS."""
    having = {owners.get(unit) for unit in units}
    return having.pop() if len(having) == 1 else None


def holders(asked: Resource, pods: Iterable[PodDevices]) -> dict[str, str]:
    """Return which units of ASKED a container of PODS has already, and which container that is, by id.

    The kubelet counts each resource by itself. Where a resource has got another name, or another plugin was
    there before, it would give a device to a second container. So a unit is also held if its device, a
    partition of it, or what it is a partition of is held under whatever name; replicas are there to be
    shared with replicas, and units of its memory with other such units. PODS must have been asked for since
    the request came: of a pod that has ended, an older list says that it has its devices, and a refusal is
    final for a pod.
    """
    devices: dict[str, dict[str, str]] = {}
    units: dict[str, str] = {}
    for pod in pods:
        holder = pod.holder if pod.resource == asked.name else f"{pod.holder}, as {pod.resource}"
        for id_ in pod.ids:
            form = form_of(id_)
            devices.setdefault(device_of(id_), {}).setdefault(form, holder)
            if form == MEMORY:
                units.setdefault(id_, holder)
    held = {}
    for unit in asked.units:
        own = form_of(unit.id)
        others = (
            holder
            for name in _devices(unit)
            for form, holder in devices.get(name, {}).items()
            if form != own or not own
        )
        if holder := next(others, "") or units.get(unit.id, ""):
            held[unit.id] = holder
    return held


def device_names(units: Iterable[Unit]) -> frozenset[str]:
    """Return the ids by which a container may have a device of UNITS, a part of it, or what it is part of."""
    # All shares of a device have those of the first.
    return frozenset(name for unit in units if not unit.replica for name in _devices(unit))


def device_of(id_: str) -> str:
    """Return the id of the device that the unit with ID_ is, or is a replica of, or has memory of."""
    form = form_of(id_)
    return id_.partition(form)[0] if form else id_


def shown_id(id_: str) -> str:
    """Return how people are told of the unit with ID_: a unit of memory as its GPU, others as they are."""
    return device_of(id_) if form_of(id_) == MEMORY else id_


def form_of(id_: str) -> str:
    """Return what the unit with ID_ is of its device: a REPLICA, a share of its MEMORY, or "", all of it."""
    return next((form for form in (MEMORY, REPLICA) if form in id_), "")


def _devices(unit: Unit) -> Iterator[str]:
    """Yield the ids of UNIT's device, and of those that it is a part of, or that are parts of it."""
    yield device_of(unit.id)
    gpu = unit.accelerator
    parts = {part.uuid for part in gpu.partitions}
    # The first of AMD's partitions has the address of its GPU, and is no sibling of all.
    whole = {gpu.uuid, gpu.address}.difference(part.address for part in gpu.partitions)
    yield from (name for name in (whole if unit.partition else parts) if name)
