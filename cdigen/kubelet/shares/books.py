"""What the node knows of its shares: ``Books``, and what follows from it. Pure.

The kubelet admits one pod after another, and asks for a pod's containers in order: so a pod of which a
container was served is the next one, too, unless the kubelet has refused it since.
"""

from __future__ import annotations

from cdigen.gpushare.claims import Claim, Placement, is_assigned
from cdigen.gpushare.ledger import Entry, Ledger
from cdigen.gpushare.room import counted
from cdigen.kubelet.shares.bound import NODE, gpu_at, moved, place_of
from cdigen.kubelet.shares.given import Given
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.gpushare.names import Resources
    from cdigen.kubelet.shares.bound import Bound, Want

    # That a pod is to be somewhere else.
    Move = tuple[Bound, Placement]


@frozen
class Option:
    """A container that a request may be for: it was promised ``gpu``, None: nobody knows which.

    ``is_doubtful``: by what is known it has its units, or others of its pod come before it. ``is_next``: the
    one before it in its pod was served, and the kubelet asks for a pod's containers in order.
    """

    bound: Bound
    want: Want
    gpu: int | None = None
    is_doubtful: bool = False
    is_next: bool = False


@frozen
class Plan:
    """Which pods go where, so that a request can be served."""

    moves: tuple[tuple[Bound, Placement], ...] = ()


class Books(Given):
    """Pods of this node, its ledger as last seen, and what containers were given.

    SIZES are the units of each GPU, by its index; NAMESPACE is that of the ledger.
    """

    def __init__(self, resources: Resources, sizes: Mapping[int, int], namespace: str = "") -> None:
        super().__init__(resources)
        self.sizes = sizes
        self._namespace = namespace
        self.ledger = Ledger()

    def options(self, gpu: int, units: int, ids: frozenset[str] = frozenset()) -> list[Option]:
        """Return for whom UNITS of GPU may be, the likeliest first; doubtful ones where there are no others.

        IDS that were given already are those of an init container, for a later one of the same pod.
        A pod that runs is asked for again only by a kubelet that has lost its checkpoint: it keeps its GPU.
        """
        found = []
        places = self._places()
        is_again = self.was_given(ids)
        for bound in self.bounds.values():
            if bound.is_leaving:
                continue
            option = self._option(bound, places[bound.pod.uid], units, is_again=is_again)
            if option is None or not (bound.is_pending or option.gpu == gpu):
                continue
            mistaken = self.mistaken(bound, option.want)
            if mistaken is None:
                option = replace(option, is_doubtful=True)
            is_next = self.is_begun(bound) and bound.is_pending and not option.is_doubtful
            option = replace(option, is_next=is_next)
            order = (
                option.is_doubtful,
                not bound.is_pending,
                not is_next,
                option.gpu != gpu,
                bool(mistaken),
            )
            found.append(((*order, bound.assumed_ns, bound.pod.uid), option))
        options = [option for _, option in sorted(found, key=lambda each: each[0])]
        return [option for option in options if not option.is_doubtful] or options

    def _option(self, bound: Bound, place: Placement | None, units: int, *, is_again: bool) -> Option | None:
        """Return the next container of BOUND that wants UNITS, None: there is none.

        IS_AGAIN: it has units of an init container, so one was asked for before it.
        """
        doubtful = None
        for position, want in enumerate(bound.wants):
            served = self.served(bound, want)
            if want.units != units:
                continue
            option = Option(bound=bound, want=want, gpu=gpu_at(place, want))
            is_likely = not is_again or (position > 0 and bound.pod.ask.together)
            # The kubelet asks in order, so what comes before one that was served was, too.
            is_likely = is_likely and not any(
                self.served(bound, each) for each in bound.wants[position + 1 :]
            )
            # Before the kubelet has said anything of it, it is the annotation that does.
            is_likely = is_likely and (self.is_told(bound) or not is_assigned(bound.pod))
            if served is None and is_likely and (not is_again or self.mistaken(bound, want) is not None):
                return option
            doubtful = doubtful or replace(option, is_doubtful=True)
        return doubtful

    def _places(self) -> dict[str, Placement | None]:
        """Return where each pod is to be, once the ledger follows what containers have."""
        places = {uid: place_of(bound, self.ledger) for uid, bound in self.bounds.items()}
        return places | {bound.pod.uid: placement for bound, placement in self.corrections()}

    def prefer(self, free: Mapping[int, int], must: Iterable[int], count: int) -> int | None:
        """Return the GPU of which a container should get COUNT units; None: none has so many FREE, by GPU.

        MUST are GPUs that are in it already. The request names no pod: it is likely to be the oldest one that
        wants so many, and gets the GPU which that was promised, or one that it can be moved to.
        """
        fitting = sorted((gpu for gpu, units in free.items() if units >= count), key=lambda g: (free[g], g))
        for gpu in must:
            return gpu if gpu in fitting else None
        options = self.options(-1, count)
        options = [option for option in options if option.is_next] or options
        promised = next((option.gpu for option in options if option.gpu in fitting), None)
        if promised is not None or not options:
            return promised if promised is not None else next(iter(fitting), None)
        return next((gpu for gpu in fitting if self._try(options[0], gpu)), next(iter(fitting), None))

    def _try(self, option: Option, gpu: int) -> bool:
        """Return whether OPTION's container can have units of GPU; changes nothing."""
        with self.unchanged():
            return self.plan(option, gpu) is not None

    def plan(self, option: Option, gpu: int) -> Plan | None:
        """Return what must change so that OPTION's container can have units of GPU; None: it cannot."""
        if not self.may_have(option, gpu):
            return None
        if option.gpu == gpu:
            return Plan()
        bound, want = option.bound, option.want
        if self.is_elsewhere(bound):
            return None
        self.reclaim(bound, want)
        ours = (bound, moved(bound, self.truth(bound), want, gpu))
        wrong = {each.pod.uid: (each, placement) for each, placement in self.corrections()}
        was = -1 if option.gpu is None else option.gpu
        alone = {**wrong, bound.pod.uid: ours}
        fit = _Fit(self.claims(), self.sizes, alone.values())
        for other in self._exchangeable(option, gpu):
            key = other.bound.pod.uid
            place = wrong[key][1] if key in wrong else place_of(other.bound, self.ledger)
            theirs = (other.bound, moved(other.bound, place, other.want, was))
            if fit.with_one(*theirs):
                return Plan(moves=tuple({**alone, key: theirs}.values()))
        return Plan(moves=tuple(alone.values())) if fit.is_so() else None

    def _exchangeable(self, option: Option, gpu: int) -> Iterator[Option]:
        """Yield who was promised units of GPU, those of as many first, and can go where OPTION was to go."""
        if option.gpu is None:
            return
        found = []
        for bound in self.bounds.values():
            place = place_of(bound, self.ledger)
            for want in bound.wants:
                is_free = bound.may_be_asked_for and self.served(bound, want) is None
                if is_free and bound is not option.bound and gpu_at(place, want) == gpu:
                    is_other = _moving(bound, want) != _moving(option.bound, option.want)
                    found.append((is_other, want.units, Option(bound=bound, want=want, gpu=gpu)))
        for _, _, other in sorted(found, key=lambda each: each[:2]):
            if self._may_move(other.bound, option.gpu):
                yield other

    def may_have(self, option: Option, gpu: int) -> bool:
        """Return whether GPU is that of what else OPTION's pod has, where all of it must be on one."""
        bound, want = option.bound, option.want
        theirs = {ours.container: key for ours, key in self.mistaken(bound, want) or ()}
        rest = [each for each in bound.wants if each is not want]
        keys = (theirs.get(each.container, (bound.pod.uid, each.container)) for each in rest)
        given = [served for key in keys if (served := self.given(key))]
        return not bound.pod.ask.together or all(one.gpu == gpu for one in given)

    def _may_move(self, bound: Bound, gpu: int) -> bool:
        """Return whether a container of BOUND may go to GPU: one that is together must not be torn apart."""
        if self.is_elsewhere(bound):
            return False
        given = (self.served(bound, want) for want in bound.wants)
        return not bound.pod.ask.together or all(one is None or one.gpu == gpu for one in given)

    def is_elsewhere(self, bound: Bound) -> bool:
        """Return whether BOUND's promise is in a ledger of another namespace.

        What else is promised there nobody here knows, so it is not moved.
        """
        return bool(self._namespace and bound.ledger_in) and bound.ledger_in != self._namespace

    def counts(self) -> tuple[int, int, int]:
        """Return how many pods ask here, and how many of their containers have units, or wait for them."""
        wants = [(bound, want) for bound in self.bounds.values() for want in bound.wants]
        served = sum(self.served(bound, want) is not None or not bound.is_pending for bound, want in wants)
        return len(self.bounds), served, len(wants) - served

    def claims(self) -> dict[str, Claim]:
        """Return what each pod counts here, by UID, with those that are promised something and not bound."""
        promised = {entry.uid: entry.claim for entry in self.ledger.entries}
        shown = {uid: bound.claim(bound.shown()) for uid, bound in self.bounds.items()}
        known = {uid: counted(promised.get(uid), shown.get(uid)) for uid in promised.keys() | shown.keys()}
        for uid, claim in known.items():
            if claim.floating:
                # On any GPU: on each, as the scheduler's side counts it.
                known[uid] = Claim(on=tuple((gpu, claim.floating) for gpu in self.sizes))
        return known

    def truth(self, bound: Bound) -> Placement | None:
        """Return where BOUND is: served containers by what they have, others as they were promised."""
        place = place_of(bound, self.ledger)
        given = {want.index: one.gpu for want in bound.wants if (one := self.served(bound, want))}
        given.pop(-1, None)
        if bound.pod.ask.together and len(set(given.values())) > 1:
            # Torn apart, since its requests were taken for another's: annotations say what is so.
            rest = dict.fromkeys((index for index, _ in bound.pod.ask.shares), min(given.values()))
            places = rest | dict(place.containers if place else ()) | given
            return Placement(containers=tuple(sorted(places.items())))
        for want in bound.wants:
            served = self.served(bound, want)
            if served is not None and gpu_at(place, want) != served.gpu:
                place = moved(bound, place, want, served.gpu)
        return place

    def corrections(self) -> tuple[tuple[Bound, Placement], ...]:
        """Return which pods' entries in the ledger are to change, for it to say where containers are.

        Of two pods that want as much the wrong one may have been taken for the one that was served: then one
        has what the other was promised, which goes where it was to go.
        """
        found: dict[str, tuple[Bound, Placement]] = {}
        for uid, bound in self.bounds.items():
            place, entry = self.truth(bound), self.ledger.entry(uid)
            if place is not None and (entry is None or entry.claim != bound.claim(place)):
                found[uid] = (bound, place)
        fit = _Fit(self.claims(), self.sizes, found.values()) if found else None
        for bound, place in tuple(found.values()):
            before = place_of(bound, self.ledger)
            # One that is together goes as one.
            for want in bound.wants[:1] if bound.pod.ask.together else bound.wants:
                was, now = gpu_at(before, want), gpu_at(place, want)
                if fit is None or was is None or now is None or was == now:
                    continue
                if other := self._other(bound, want, (was, now), found, fit):
                    found[other[0].pod.uid] = other
                    fit.move(*other)
        return tuple(found.values())

    def _other(
        self, ours: Bound, want: Want, way: tuple[int, int], found: Mapping[str, Move], fit: _Fit
    ) -> Move | None:
        """Return who was to have units where WANT of OURS went, sent where that was to go: WAY, from and to.

        FOUND are the moves so far, which FIT has.
        """
        was, now = way
        others = []
        for uid, bound in self.bounds.items():
            if not bound.may_be_asked_for or bound is ours:
                continue
            place = found[uid][1] if uid in found else place_of(bound, self.ledger)
            for each in bound.wants:
                is_there = gpu_at(place, each) == now and self.served(bound, each) is None
                if is_there and self._may_move(bound, was):
                    others.append((bound, place, each))
        units = _moving(ours, want)
        for bound, place, each in others:
            if _moving(bound, each) == units:
                return bound, moved(bound, place, each, was)
        if fit.is_so():
            return None
        moves = ((bound, moved(bound, place, each, was)) for bound, place, each in others)
        return next((move for move in moves if fit.with_one(*move)), None)

    def needs_patch(self, bound: Bound) -> bool:
        """Return whether BOUND's annotations have to be changed for them to be true."""
        place = self.truth(bound)
        if place is None:
            return False
        # Nobody may have said yet what a pod has that was given its units before this process began.
        is_served = self.is_served(bound) or (not self.is_told(bound) and is_assigned(bound.pod))
        return place != bound.shown() or is_served != is_assigned(bound.pod)

    def entry(self, bound: Bound, placement: Placement) -> Entry:
        """Return the ledger's entry for BOUND at PLACEMENT."""
        pod = bound.pod
        return Entry(
            uid=pod.uid,
            key=pod.key,
            on=bound.claim(placement).on,
            containers=placement.containers,
            gpu=placement.gpu,
            token=NODE,
        )


class _Fit:
    """Tells whether CLAIMS, by UID, with MOVES are no more than SIZES, or than they were without them."""

    def __init__(self, claims: Mapping[str, Claim], sizes: Mapping[int, int], moves: Iterable[Move]) -> None:
        self._claims = dict(claims)
        self._sums = _sums(claims.values())
        self._most = {gpu: max(sizes.get(gpu, 0), units) for gpu, units in self._sums.items()}
        self._sizes = sizes
        for move in moves:
            self.move(*move)

    def move(self, bound: Bound, placement: Placement) -> None:
        """Let BOUND be at PLACEMENT."""
        self._sums = self._after(bound, placement)
        self._claims[bound.pod.uid] = bound.claim(placement)

    def with_one(self, bound: Bound, placement: Placement) -> bool:
        """Return whether it would be so with BOUND at PLACEMENT."""
        return self._is_so(self._after(bound, placement))

    def is_so(self) -> bool:
        """Return whether it is."""
        return self._is_so(self._sums)

    def _is_so(self, sums: Mapping[int, int]) -> bool:
        return all(units <= self._most.get(gpu, self._sizes.get(gpu, 0)) for gpu, units in sums.items())

    def _after(self, bound: Bound, placement: Placement) -> dict[int, int]:
        before = self._claims.get(bound.pod.uid, Claim())
        left = Claim(on=tuple((gpu, -units) for gpu, units in before.on))
        return _sums((Claim(on=tuple(self._sums.items())), left, bound.claim(placement)))


def _moving(bound: Bound, want: Want) -> int:
    """Return how many units go where WANT of BOUND goes."""
    return bound.pod.ask.together or want.units


def _sums(claims: Iterable[Claim]) -> dict[int, int]:
    sums: dict[int, int] = {}
    for claim in claims:
        for gpu, units in claim.on:
            sums[gpu] = sums.get(gpu, 0) + units
    return sums
