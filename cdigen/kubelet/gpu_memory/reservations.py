"""``NodeReservations``: the reservations of GPU memory on this node, and the moves that requests need.

The kubelet admits one pod after another, and requests units for the containers of a pod in order. So after a
request for a container, the next request is for the next container of the same pod. An exception is a pod
that the kubelet has refused in the meantime. The module does no I/O.
"""

from __future__ import annotations

from cdigen.gpushare.free_capacity import combine_reservations
from cdigen.gpushare.ledger import Ledger, LedgerEntry
from cdigen.gpushare.reservations import ContainerPlacement, Reservation, is_assigned
from cdigen.kubelet.gpu_memory.allocations import ContainerAllocations
from cdigen.kubelet.gpu_memory.bound_pods import NODE, gpu_at, moved_placement, reserved_placement
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.gpushare.names import Resources
    from cdigen.kubelet.gpu_memory.bound_pods import BoundPod, ContainerRequest

    # A pod, and its new placement.
    Move = tuple[BoundPod, ContainerPlacement]


@frozen
class CandidateContainer:
    """A container that a request may be for.

    ``gpu`` is the GPU of the container's reservation, or None if unknown. If ``is_doubtful`` is set, the
    container seems to have its units already, or another container of the pod is next. If ``is_next`` is set,
    an earlier container of the pod was served, so the request is for this container.
    """

    bound: BoundPod
    request: ContainerRequest
    gpu: int | None = None
    is_doubtful: bool = False
    is_next: bool = False


class NodeReservations(ContainerAllocations):
    """The pods of this node, the ledger from the last read, and the allocations of containers.

    SIZES are the numbers of units by GPU index. NAMESPACE is the namespace of the ledger.
    """

    def __init__(self, resources: Resources, sizes: Mapping[int, int], namespace: str = "") -> None:
        super().__init__(resources)
        self.sizes = sizes
        self._namespace = namespace
        self.ledger = Ledger()

    def candidates(self, gpu: int, units: int, ids: frozenset[str] = frozenset()) -> list[CandidateContainer]:
        """Return the possible containers of a request for UNITS units of GPU, the likeliest first.

        Doubtful containers are returned only if there is no other container. If cdigen has allocated one of
        IDS already, an init container has this unit, and the request is for a later container of the same
        pod. A kubelet requests units for a running pod only if the kubelet has lost its checkpoint. Such a
        pod keeps its GPU.
        """
        found = []
        places = self._places()
        is_reuse = self.was_allocated(ids)
        for bound in self.bound_pods.values():
            if bound.is_leaving:
                continue
            candidate = self._candidate(bound, places[bound.pod.uid], units, is_reuse=is_reuse)
            if candidate is None or not (bound.is_pending or candidate.gpu == gpu):
                continue
            mistaken = self.mistaken(bound, candidate.request)
            if mistaken is None:
                candidate = replace(candidate, is_doubtful=True)
            is_next = self.is_begun(bound) and bound.is_pending and not candidate.is_doubtful
            candidate = replace(candidate, is_next=is_next)
            order = (
                candidate.is_doubtful,
                not bound.is_pending,
                not is_next,
                candidate.gpu != gpu,
                bool(mistaken),
            )
            found.append(((*order, bound.assumed_ns, bound.pod.uid), candidate))
        candidates = [candidate for _, candidate in sorted(found, key=lambda each: each[0])]
        return [candidate for candidate in candidates if not candidate.is_doubtful] or candidates

    def _candidate(
        self, bound: BoundPod, place: ContainerPlacement | None, units: int, *, is_reuse: bool
    ) -> CandidateContainer | None:
        """Return the next container of BOUND that requests UNITS, or None if there is no such container.

        If IS_REUSE is set, the request reuses the units of an init container. So an earlier container of the
        pod had these units.
        """
        doubtful = None
        for position, request in enumerate(bound.requests):
            served = self.served(bound, request)
            if request.units != units:
                continue
            candidate = CandidateContainer(bound=bound, request=request, gpu=gpu_at(place, request))
            is_likely = not is_reuse or (position > 0 and bound.pod.request.on_one_gpu)
            # The kubelet requests in order, so all containers before a served container are served.
            is_likely = is_likely and not any(
                self.served(bound, each) for each in bound.requests[position + 1 :]
            )
            # If the kubelet has not listed the pod yet, the pod's annotation decides.
            is_likely = is_likely and (self.is_listed(bound) or not is_assigned(bound.pod))
            if served is None and is_likely and (not is_reuse or self.mistaken(bound, request) is not None):
                return candidate
            doubtful = doubtful or replace(candidate, is_doubtful=True)
        return doubtful

    def _places(self) -> dict[str, ContainerPlacement | None]:
        """Return the placement of each pod after the corrections of the ledger."""
        places = {uid: reserved_placement(bound, self.ledger) for uid, bound in self.bound_pods.items()}
        return places | {bound.pod.uid: placement for bound, placement in self.corrections()}

    def preferred_gpu(self, free: Mapping[int, int], must: Iterable[int], count: int) -> int | None:
        """Return the GPU for a container with COUNT units, or None if no GPU has COUNT free units.

        FREE has the free units by GPU. MUST are the GPUs of ids that the container must get. The request
        names no pod. The request is probably for the oldest pod that requests COUNT units. The result is the
        GPU of that pod's reservation, or a GPU to which the reservation can move.
        """
        fitting = sorted((gpu for gpu, units in free.items() if units >= count), key=lambda g: (free[g], g))
        for gpu in must:
            return gpu if gpu in fitting else None
        candidates = self.candidates(-1, count)
        candidates = [candidate for candidate in candidates if candidate.is_next] or candidates
        reserved = next((candidate.gpu for candidate in candidates if candidate.gpu in fitting), None)
        if reserved is not None or not candidates:
            return reserved if reserved is not None else next(iter(fitting), None)
        return next((gpu for gpu in fitting if self._try(candidates[0], gpu)), next(iter(fitting), None))

    def _try(self, candidate: CandidateContainer, gpu: int) -> bool:
        """Return whether CANDIDATE can have units of GPU; change nothing."""
        with self.unchanged():
            return self.plan(candidate, gpu) is not None

    def plan(self, candidate: CandidateContainer, gpu: int) -> tuple[Move, ...] | None:
        """Return the moves after which CANDIDATE can have units of GPU, or None if that is impossible."""
        if not self.can_use(candidate, gpu):
            return None
        if candidate.gpu == gpu:
            return ()
        bound, request = candidate.bound, candidate.request
        if self.has_foreign_ledger(bound):
            return None
        self.reclaim(bound, request)
        move = (bound, moved_placement(bound, self.actual_placement(bound), request, gpu))
        wrong = {each.pod.uid: (each, placement) for each, placement in self.corrections()}
        was = -1 if candidate.gpu is None else candidate.gpu
        moves = {**wrong, bound.pod.uid: move}
        fit = _Fit(self.pod_reservations(), self.sizes, moves.values())
        for other in self._exchangeable(candidate, gpu):
            key = other.bound.pod.uid
            place = wrong[key][1] if key in wrong else reserved_placement(other.bound, self.ledger)
            exchange = (other.bound, moved_placement(other.bound, place, other.request, was))
            if fit.is_feasible_with(*exchange):
                return tuple({**moves, key: exchange}.values())
        return tuple(moves.values()) if fit.is_feasible() else None

    def _exchangeable(self, candidate: CandidateContainer, gpu: int) -> Iterator[CandidateContainer]:
        """Yield containers whose reservation can move from GPU to ``candidate.gpu``, equal units first."""
        if candidate.gpu is None:
            return
        found = []
        for bound in self.bound_pods.values():
            place = reserved_placement(bound, self.ledger)
            for request in bound.requests:
                is_free = bound.can_be_requested and self.served(bound, request) is None
                if is_free and bound is not candidate.bound and gpu_at(place, request) == gpu:
                    is_other = _moving(bound, request) != _moving(candidate.bound, candidate.request)
                    found.append(
                        (is_other, request.units, CandidateContainer(bound=bound, request=request, gpu=gpu))
                    )
        for _, _, other in sorted(found, key=lambda each: each[:2]):
            if self._may_move(other.bound, candidate.gpu):
                yield other

    def can_use(self, candidate: CandidateContainer, gpu: int) -> bool:
        """Return whether CANDIDATE may be on GPU.

        The result is False if the pod must be on one GPU and already has units of another GPU.
        """
        bound, request = candidate.bound, candidate.request
        recorded = {each.container: key for each, key in self.mistaken(bound, request) or ()}
        others = [each for each in bound.requests if each is not request]
        keys = (recorded.get(each.container, (bound.pod.uid, each.container)) for each in others)
        allocations = [served for key in keys if (served := self._served.get(key))]
        return not bound.pod.request.on_one_gpu or all(one.gpu == gpu for one in allocations)

    def _may_move(self, bound: BoundPod, gpu: int) -> bool:
        """Return whether a container of BOUND may move to GPU.

        The result is False if the pod must be on one GPU and already has units of another GPU.
        """
        if self.has_foreign_ledger(bound):
            return False
        allocations = (self.served(bound, request) for request in bound.requests)
        return not bound.pod.request.on_one_gpu or all(one is None or one.gpu == gpu for one in allocations)

    def has_foreign_ledger(self, bound: BoundPod) -> bool:
        """Return whether the reservation of BOUND is in a ledger of another namespace.

        Such a reservation is not moved, because the other reservations of that ledger are unknown.
        """
        return bool(self._namespace and bound.ledger_namespace) and bound.ledger_namespace != self._namespace

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of pods, of containers with units, and of containers that wait for units."""
        requests = [(bound, request) for bound in self.bound_pods.values() for request in bound.requests]
        served = sum(
            self.served(bound, request) is not None or not bound.is_pending for bound, request in requests
        )
        return len(self.bound_pods), served, len(requests) - served

    def pod_reservations(self) -> dict[str, Reservation]:
        """Return the reservation of each pod by UID, also for pods that are only in the ledger."""
        recorded = {entry.uid: entry.reservation for entry in self.ledger.entries}
        shown = {
            uid: bound.reservation(bound.annotated_placement()) for uid, bound in self.bound_pods.items()
        }
        known = {
            uid: combine_reservations(recorded.get(uid), shown.get(uid))
            for uid in recorded.keys() | shown.keys()
        }
        for uid, reservation in known.items():
            if reservation.unplaced:
                # Units on an unknown GPU are reserved on each GPU, as in the extender.
                known[uid] = Reservation(on=tuple((gpu, reservation.unplaced) for gpu in self.sizes))
        return known

    def actual_placement(self, bound: BoundPod) -> ContainerPlacement | None:
        """Return the placement of BOUND; the actual GPUs of served containers replace the reserved GPUs."""
        place = reserved_placement(bound, self.ledger)
        gpus = {request.index: one.gpu for request in bound.requests if (one := self.served(bound, request))}
        gpus.pop(-1, None)
        if bound.pod.request.on_one_gpu and len(set(gpus.values())) > 1:
            # The pod is on several GPUs, because cdigen recorded a request of this pod for another pod.
            defaults = dict.fromkeys(
                (index for index, _ in bound.pod.request.by_container), min(gpus.values())
            )
            places = defaults | dict(place.containers if place else ()) | gpus
            return ContainerPlacement(containers=tuple(sorted(places.items())))
        for request in bound.requests:
            served = self.served(bound, request)
            if served is not None and gpu_at(place, request) != served.gpu:
                place = moved_placement(bound, place, request, served.gpu)
        return place

    def corrections(self) -> tuple[tuple[BoundPod, ContainerPlacement], ...]:
        """Return the pods whose ledger entries differ from the GPUs of their containers, with new placements.

        If two pods request the same number of units, cdigen may have guessed the wrong pod for a request.
        Then one pod has the units that were reserved for the other pod. So the reservation of the other pod
        moves to the GPU where the first pod had its reservation.
        """
        found: dict[str, tuple[BoundPod, ContainerPlacement]] = {}
        for uid, bound in self.bound_pods.items():
            place, entry = self.actual_placement(bound), self.ledger.entry(uid)
            if place is not None and (entry is None or entry.reservation != bound.reservation(place)):
                found[uid] = (bound, place)
        fit = _Fit(self.pod_reservations(), self.sizes, found.values()) if found else None
        for bound, place in tuple(found.values()):
            before = reserved_placement(bound, self.ledger)
            # The containers of a pod that must be on one GPU move together.
            for request in bound.requests[:1] if bound.pod.request.on_one_gpu else bound.requests:
                was, now = gpu_at(before, request), gpu_at(place, request)
                if fit is None or was is None or now is None or was == now:
                    continue
                if other := self._other(bound, request, (was, now), found, fit):
                    found[other[0].pod.uid] = other
                    fit.move(*other)
        return tuple(found.values())

    def _other(
        self,
        bound: BoundPod,
        request: ContainerRequest,
        gpus: tuple[int, int],
        found: Mapping[str, Move],
        fit: _Fit,
    ) -> Move | None:
        """Return the move of another pod in exchange for REQUEST of BOUND, or None without such a move.

        GPUS are the former and the new GPU of REQUEST. The other pod has a reservation on the new GPU and
        moves to the former GPU. FOUND are the moves so far. FIT includes these moves.
        """
        was, now = gpus
        others = []
        for uid, other in self.bound_pods.items():
            if not other.can_be_requested or other is bound:
                continue
            place = found[uid][1] if uid in found else reserved_placement(other, self.ledger)
            for each in other.requests:
                is_waiting = gpu_at(place, each) == now and self.served(other, each) is None
                if is_waiting and self._may_move(other, was):
                    others.append((other, place, each))
        units = _moving(bound, request)
        for other, place, each in others:
            if _moving(other, each) == units:
                return other, moved_placement(other, place, each, was)
        if fit.is_feasible():
            return None
        moves = ((other, moved_placement(other, place, each, was)) for other, place, each in others)
        return next((move for move in moves if fit.is_feasible_with(*move)), None)

    def needs_patch(self, bound: BoundPod) -> bool:
        """Return whether the annotations of BOUND differ from its placement or its allocations."""
        place = self.actual_placement(bound)
        if place is None:
            return False
        # A pod that got its units before the start of this process may be missing from the kubelet's list.
        is_served = self.is_served(bound) or (not self.is_listed(bound) and is_assigned(bound.pod))
        return place != bound.annotated_placement() or is_served != is_assigned(bound.pod)

    def entry(self, bound: BoundPod, placement: ContainerPlacement) -> LedgerEntry:
        """Return the ledger's entry for BOUND at PLACEMENT."""
        pod = bound.pod
        return LedgerEntry(
            uid=pod.uid,
            key=pod.key,
            on=bound.reservation(placement).on,
            containers=placement.containers,
            gpu=placement.gpu,
            token=NODE,
        )


class _Fit:
    """Checks whether RESERVATIONS, by pod UID, fit on the GPUs after MOVES.

    On each GPU, the sum of reserved units must not exceed the size in SIZES. If the sum without MOVES already
    exceeds the size, that sum is the limit.
    """

    def __init__(
        self, reservations: Mapping[str, Reservation], sizes: Mapping[int, int], moves: Iterable[Move]
    ) -> None:
        self._reservations = dict(reservations)
        self._sums = _sums(reservations.values())
        self._limits = {gpu: max(sizes.get(gpu, 0), units) for gpu, units in self._sums.items()}
        self._sizes = sizes
        for move in moves:
            self.move(*move)

    def move(self, bound: BoundPod, placement: ContainerPlacement) -> None:
        """Move BOUND to PLACEMENT."""
        self._sums = self._after(bound, placement)
        self._reservations[bound.pod.uid] = bound.reservation(placement)

    def is_feasible_with(self, bound: BoundPod, placement: ContainerPlacement) -> bool:
        """Return whether the moves fit if BOUND also moves to PLACEMENT."""
        return self._fits(self._after(bound, placement))

    def is_feasible(self) -> bool:
        """Return whether the moves fit."""
        return self._fits(self._sums)

    def _fits(self, sums: Mapping[int, int]) -> bool:
        return all(units <= self._limits.get(gpu, self._sizes.get(gpu, 0)) for gpu, units in sums.items())

    def _after(self, bound: BoundPod, placement: ContainerPlacement) -> dict[int, int]:
        before = self._reservations.get(bound.pod.uid, Reservation())
        left = Reservation(on=tuple((gpu, -units) for gpu, units in before.on))
        return _sums((Reservation(on=tuple(self._sums.items())), left, bound.reservation(placement)))


def _moving(bound: BoundPod, request: ContainerRequest) -> int:
    """Return the number of units that move with REQUEST of BOUND."""
    return bound.pod.request.on_one_gpu or request.units


def _sums(reservations: Iterable[Reservation]) -> dict[int, int]:
    sums: dict[int, int] = {}
    for reservation in reservations:
        for gpu, units in reservation.on:
            sums[gpu] = sums.get(gpu, 0) + units
    return sums
