"""What containers of this node were given, as far as it is known: ``Given``. Pure.

Requests name no pod, so who was served is a guess at first, among pods that want as much; what runs and what
the kubelet tells afterwards says who it was.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress

from cdigen.kubelet.shares.bound import read_bound
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from cdigen.gpushare.names import Resources
    from cdigen.kubelet.shares.bound import Bound, Want

# The kubelet has stored an answer of ours so long after it.
STORED_S = 0.5
_MAX_LATEST = 64


@frozen
class Served:
    """That a container has units of ``gpu``, since ``at_s``; ``is_told``: we have it from the kubelet alone.

    The kubelet names pods without their UID, so what it tells may be of a pod of the same name before.
    """

    gpu: int
    at_s: float
    is_told: bool = False
    ids: frozenset[str] = frozenset()


class Given:
    """Pods of this node that ask for RESOURCES, and what their containers were given."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.bounds: dict[str, Bound] = {}
        self._served: dict[tuple[str, str], Served] = {}
        # The pods, by UID, of which the kubelet has said what they have, since this process began.
        self._told: set[str] = set()
        # The last containers that were served, the latest at the end.
        self._latest: deque[tuple[str, str]] = deque(maxlen=_MAX_LATEST)

    def put(self, found: object) -> None:
        """Note the pod FOUND as it is now; what is no pod, or asks for nothing, is passed over."""
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            bound = read_bound(found, self.resources)
            if bound is None:
                return
            if bound.pod.is_ended:
                self.drop(bound.pod.uid)
            else:
                before = self.bounds.get(bound.pod.uid)
                self.bounds[bound.pod.uid] = bound
                if before is not None and before.is_pending and not bound.is_pending:
                    self._admitted(bound)

    def _admitted(self, bound: Bound) -> None:
        """Note that BOUND runs: what it must have been given was taken for others that wait still."""
        for want in bound.wants:
            if self.served(bound, want) is not None:
                continue
            for key in self._latest:
                other = self.bounds.get(key[0])
                if key in self._served and other and other.is_pending and self._units(key) == want.units:
                    self._swap((bound.pod.uid, want.container), key)
                    break

    def drop(self, uid: str) -> None:
        """Note that the pod UID is over."""
        bound = self.bounds.pop(uid, None)
        self._told.discard(uid)
        for want in bound.wants if bound else ():
            self._served.pop((uid, want.container), None)

    def keep(self, uids: Iterable[str], known: frozenset[str]) -> None:
        """Drop what was KNOWN before a list was asked for, but UIDS, those that are in it."""
        for uid in known.difference(uids):
            self.drop(uid)

    def serve(self, bound: Bound, want: Want, gpu: int, now_s: float, ids: frozenset[str]) -> None:
        """Note that WANT of BOUND is given the units IDS of GPU."""
        self.reclaim(bound, want)
        key = (bound.pod.uid, want.container)
        self._served[key] = Served(gpu=gpu, at_s=now_s, ids=ids)
        if key in self._latest:
            self._latest.remove(key)
        self._latest.append(key)

    def reclaim(self, bound: Bound, want: Want) -> None:
        """Give BOUND what was taken for others' before, as its turn comes to WANT."""
        for each, theirs in self.mistaken(bound, want) or ():
            ours = (bound.pod.uid, each.container)
            self._swap(ours, theirs)

    def _swap(self, ours: tuple[str, str], theirs: tuple[str, str]) -> None:
        given, had = self._served.pop(theirs), self._served.pop(ours, None)
        self._served[ours] = given
        if had is not None:
            self._served[theirs] = had
        swapped = {ours: theirs, theirs: ours}
        self._latest = deque((swapped.get(key, key) for key in self._latest), maxlen=_MAX_LATEST)

    def mistaken(self, bound: Bound, want: Want) -> list[tuple[Want, tuple[str, str]]] | None:
        """Return which requests must have been for BOUND, though others were served, if WANT is its next.

        The containers before it were asked for just before. None: they were not, so it cannot be the next.
        """
        before = bound.wants[: bound.wants.index(want)]
        served = [self.served(bound, each) for each in before]
        if not before or any(one is not None and one.is_told for one in served):
            return []
        latest = [key for key in self._latest if key in self._served][-len(before) :]
        pairs = list(zip(before, latest, strict=False))
        if len(latest) < len(before) or any(self._units(key) != ours.units for ours, key in pairs):
            return None if None in served else []
        return [(ours, key) for ours, key in pairs if key != (bound.pod.uid, ours.container)]

    def _units(self, key: tuple[str, str]) -> int:
        bound = self.bounds.get(key[0])
        return next((each.units for each in bound.wants if each.container == key[1]), 0) if bound else 0

    def learn(self, told: Mapping[tuple[str, str], int], names: Container[str], asked_s: float) -> None:
        """Take the kubelet's word, asked for at ASKED_S: which GPU has each container of the pods of NAMES.

        What was given a moment before may not be in it, and what it tells be of a pod of that name before.
        Of pods that leave it tells no more, though their containers may still be starting. Of a pod that is
        not among NAMES it does not know yet, as after its own start.
        """
        for uid, bound in self.bounds.items():
            if bound.pod.key not in names:
                continue
            self._told.add(uid)
            for want in bound.wants:
                key, before = (uid, want.container), self._served.get((uid, want.container))
                is_known, gpu = _told(bound, want, told)
                if not is_known or (before is not None and before.at_s >= asked_s - STORED_S):
                    continue
                if gpu is None:
                    if not bound.is_leaving:
                        self._served.pop(key, None)
                elif before is None or before.gpu != gpu:
                    self._served[key] = Served(gpu=gpu, at_s=asked_s, is_told=True)

    # What follows.

    def forget(self) -> None:
        """Forget what was given, until the kubelet tells it again: GPUs have other indices now."""
        self._served.clear()
        self._latest.clear()
        self._told.clear()

    def is_told(self, bound: Bound) -> bool:
        """Return whether the kubelet has said what BOUND has."""
        return bound.pod.uid in self._told

    def served(self, bound: Bound, want: Want) -> Served | None:
        """Return what WANT of BOUND has."""
        return self._served.get((bound.pod.uid, want.container))

    def given(self, key: tuple[str, str]) -> Served | None:
        """Return what the container KEY, of a pod's UID, has."""
        return self._served.get(key)

    def was_given(self, ids: frozenset[str]) -> bool:
        """Return whether one of IDS was given lately."""
        return any(ids & self._served[key].ids for key in self._latest if key in self._served)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Forget afterwards what was noted meanwhile."""
        before = (self._served.copy(), self._latest.copy())
        try:
            yield
        finally:
            self._served, self._latest = before

    def is_served(self, bound: Bound) -> bool:
        """Return whether all containers of BOUND have their units; what runs has."""
        return not bound.is_pending or all(self.served(bound, want) is not None for want in bound.wants)

    def is_begun(self, bound: Bound) -> bool:
        """Return whether a container of BOUND was served by this process."""
        given = [self.served(bound, want) for want in bound.wants]
        return any(one is not None and not one.is_told for one in given)


def _told(bound: Bound, want: Want, told: Mapping[tuple[str, str], int]) -> tuple[bool, int | None]:
    """Return whether the kubelet has TOLD of WANT of BOUND, and which GPU it has, None: it has none.

    It does not tell of init containers (pkg/kubelet/apis/podresources/server_v1.go, List): they have the GPU
    of the containers after them; of a pod with init containers alone nobody knows.
    """
    gpu = told.get((bound.pod.key, want.container))
    if gpu is not None or want.index >= 0:
        return True, gpu
    late = [each for each in bound.wants if each.index >= 0]
    found = (told.get((bound.pod.key, each.container)) for each in late)
    return bool(late), next((each for each in found if each is not None), None)
