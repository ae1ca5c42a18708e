"""``ContainerAllocations``: the memory units that cdigen attributes to the node's containers. No I/O.

A request names no pod. So cdigen first guesses the container of a request, among the containers that request
this number of units. Running pods and the kubelet's list of pods correct the guess later.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress

from cdigen.kubelet.gpu_memory.bound_pods import read_bound
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from cdigen.gpushare.names import Resources
    from cdigen.kubelet.gpu_memory.bound_pods import BoundPod, ContainerRequest

# The kubelet has stored a response after this time.
STORED_S = 0.5
_MAX_LATEST = 64


@frozen
class ContainerAllocation:
    """The units ``ids`` of ``gpu`` that a container has since the monotonic time ``at_s``.

    If ``is_from_kubelet`` is set, only the kubelet's list reports the allocation. The kubelet lists pods
    without their UID, so the list may have a former pod of the same name.
    """

    gpu: int
    at_s: float
    is_from_kubelet: bool = False
    ids: frozenset[str] = frozenset()


class ContainerAllocations:
    """The pods of this node that request RESOURCES, and the units of the pods' containers."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.bound_pods: dict[str, BoundPod] = {}
        # The resource version of each pod of the node, also of pods that request no memory.
        self._versions: dict[str, str] = {}
        self._served: dict[tuple[str, str], ContainerAllocation] = {}
        # The UIDs of pods that the kubelet has listed since the start of this process.
        self._listed: set[str] = set()
        # The containers that were served last, the latest at the end.
        self._latest: deque[tuple[str, str]] = deque(maxlen=_MAX_LATEST)

    def put(self, found: object) -> None:
        """Add or update the pod FOUND; ignore FOUND if it is not a pod or requests no memory."""
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            metadata = found["metadata"]  # type: ignore[index]
            self._versions[str(metadata["uid"])] = str(metadata["resourceVersion"])
            bound = read_bound(found, self.resources)
            if bound is None:
                return
            if bound.pod.is_ended:
                self.drop(bound.pod.uid)
            else:
                before = self.bound_pods.get(bound.pod.uid)
                self.bound_pods[bound.pod.uid] = bound
                if before is not None and before.is_pending and not bound.is_pending:
                    self._admitted(bound)

    def is_current(self, uid: str, version: str) -> bool:
        """Return whether the last ``put`` of the pod UID had the resource version VERSION."""
        return self._versions.get(uid) == version

    def _admitted(self, bound: BoundPod) -> None:
        """Move units from a pending pod to BOUND, which runs now and must have its units."""
        for request in bound.requests:
            if self.served(bound, request) is not None:
                continue
            for key in self._latest:
                other = self.bound_pods.get(key[0])
                if key in self._served and other and other.is_pending and self._units(key) == request.units:
                    self._swap((bound.pod.uid, request.container), key)
                    break

    def drop(self, uid: str) -> None:
        """Remove the pod UID, which has ended."""
        bound = self.bound_pods.pop(uid, None)
        self._versions.pop(uid, None)
        self._listed.discard(uid)
        for request in bound.requests if bound else ():
            self._served.pop((uid, request.container), None)

    def keep(self, uids: Iterable[str], known: frozenset[str]) -> None:
        """Remove the pods of KNOWN (the pods before the request for a list) that are not in the list UIDS."""
        listed = frozenset(uids)
        for uid in known - listed:
            self.drop(uid)
        self._versions = {
            uid: version for uid, version in self._versions.items() if uid in listed or uid in self.bound_pods
        }

    def serve(
        self, bound: BoundPod, request: ContainerRequest, gpu: int, now_s: float, ids: frozenset[str]
    ) -> None:
        """Record that REQUEST of BOUND gets the units IDS of GPU at the monotonic time NOW_S."""
        self.reclaim(bound, request)
        key = (bound.pod.uid, request.container)
        self._served[key] = ContainerAllocation(gpu=gpu, at_s=now_s, ids=ids)
        if key in self._latest:
            self._latest.remove(key)
        self._latest.append(key)

    def reclaim(self, bound: BoundPod, request: ContainerRequest) -> None:
        """Move the allocations that ``mistaken`` returns to BOUND; REQUEST is the next container of BOUND."""
        for each, recorded in self.mistaken(bound, request) or ():
            self._swap((bound.pod.uid, each.container), recorded)

    def _swap(self, receiver: tuple[str, str], owner: tuple[str, str]) -> None:
        """Move the allocation of the container OWNER to RECEIVER, and an allocation of RECEIVER to OWNER."""
        moved, former = self._served.pop(owner), self._served.pop(receiver, None)
        self._served[receiver] = moved
        if former is not None:
            self._served[owner] = former
        swapped = {receiver: owner, owner: receiver}
        self._latest = deque((swapped.get(key, key) for key in self._latest), maxlen=_MAX_LATEST)

    def mistaken(
        self, bound: BoundPod, request: ContainerRequest
    ) -> list[tuple[ContainerRequest, tuple[str, str]]] | None:
        """Return the allocations that must belong to BOUND but are recorded for other pods.

        Each pair has a request of BOUND, and the container for which the request's allocation is recorded. If
        REQUEST is the next container of BOUND, the latest requests were for the containers before REQUEST.
        The result is None if REQUEST cannot be the next container. In this case, the latest requests do not
        match these containers, and one of these containers has no units.
        """
        before = bound.requests[: bound.requests.index(request)]
        served = [self.served(bound, each) for each in before]
        if not before or any(one is not None and one.is_from_kubelet for one in served):
            return []
        latest = [key for key in self._latest if key in self._served][-len(before) :]
        pairs = list(zip(before, latest, strict=False))
        if len(latest) < len(before) or any(self._units(key) != each.units for each, key in pairs):
            return None if None in served else []
        return [(each, key) for each, key in pairs if key != (bound.pod.uid, each.container)]

    def _units(self, key: tuple[str, str]) -> int:
        bound = self.bound_pods.get(key[0])
        return next((each.units for each in bound.requests if each.container == key[1]), 0) if bound else 0

    def apply_pod_list(
        self, listed: Mapping[tuple[str, str], int], names: Container[str], requested_s: float
    ) -> None:
        """Apply the kubelet's list; LISTED has the GPU of each container, and NAMES are the listed pods.

        The list was requested at the monotonic time REQUESTED_S. Recent allocations may not be in the list.
        The list may have a former pod of the same name. The list has no terminating pods, although containers
        of these pods may still be starting. The list has no pods that the kubelet does not know yet, for
        example after its start. Such pods are not in NAMES.
        """
        for uid, bound in self.bound_pods.items():
            if bound.pod.key not in names:
                continue
            self._listed.add(uid)
            for request in bound.requests:
                key, before = (uid, request.container), self._served.get((uid, request.container))
                is_known, gpu = _listed_gpu(bound, request, listed)
                if not is_known or (before is not None and before.at_s >= requested_s - STORED_S):
                    continue
                if gpu is None:
                    if not bound.is_leaving:
                        self._served.pop(key, None)
                elif before is None or before.gpu != gpu:
                    self._served[key] = ContainerAllocation(gpu=gpu, at_s=requested_s, is_from_kubelet=True)

    def forget(self) -> None:
        """Remove all allocations, because the indices of GPUs have changed; the next list adds them again."""
        self._served.clear()
        self._latest.clear()
        self._listed.clear()

    def is_listed(self, bound: BoundPod) -> bool:
        """Return whether the kubelet has listed BOUND."""
        return bound.pod.uid in self._listed

    def served(self, bound: BoundPod, request: ContainerRequest) -> ContainerAllocation | None:
        """Return the allocation of REQUEST of BOUND, or None if there is no allocation."""
        return self._served.get((bound.pod.uid, request.container))

    def was_allocated(self, ids: frozenset[str]) -> bool:
        """Return whether one of IDS was allocated recently."""
        return any(ids & self._served[key].ids for key in self._latest if key in self._served)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Restore the present allocations at the end of the ``with`` block."""
        before = (self._served.copy(), self._latest.copy())
        try:
            yield
        finally:
            self._served, self._latest = before

    def is_served(self, bound: BoundPod) -> bool:
        """Return whether all containers of BOUND have their units, as in each running pod."""
        return not bound.is_pending or all(
            self.served(bound, request) is not None for request in bound.requests
        )

    def is_begun(self, bound: BoundPod) -> bool:
        """Return whether this process has served a container of BOUND."""
        allocations = [self.served(bound, request) for request in bound.requests]
        return any(one is not None and not one.is_from_kubelet for one in allocations)


def _listed_gpu(
    bound: BoundPod, request: ContainerRequest, listed: Mapping[tuple[str, str], int]
) -> tuple[bool, int | None]:
    """Return whether the list LISTED covers REQUEST of BOUND, and the GPU of REQUEST or None.

    The kubelet does not list init containers (pkg/kubelet/apis/podresources/server_v1.go, List). An init
    container has the GPU of the app containers. LISTED does not cover a pod with only init containers.
    """
    gpu = listed.get((bound.pod.key, request.container))
    if gpu is not None or request.index >= 0:
        return True, gpu
    app = [each for each in bound.requests if each.index >= 0]
    found = (listed.get((bound.pod.key, each.container)) for each in app)
    return bool(app), next((each for each in found if each is not None), None)
