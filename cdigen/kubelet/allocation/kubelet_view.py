"""``KubeletView``: the devices of containers according to the kubelet's lists of pods.

``PodListTimer`` has the times of the requests for these lists.
"""

from __future__ import annotations

import time

from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.wire.clients import KubeletError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from cdigen.kubelet.allocation.journal import AllocationJournal
    from cdigen.kubelet.pods import ClaimedDevice, PodList

    # Returns the pods of the kubelet; the argument is the timeout in seconds.
    ListPods = Callable[[float], Awaitable[PodList]]

# cdigen requests the list of pods after each allocation, and at this interval to find pods that have ended.
PODS_S = 60.0
# The delays of the requests for the list of pods after an allocation. The kubelet lists the devices of a
# container only after it has stored the response. A busy kubelet may need longer, so cdigen requests the list
# a second time.
_LIST_AFTER_S = 0.7
_LIST_AGAIN_S = 5.0
# cdigen requests no list within this time after a request of the kubelet for devices.
_QUIET_S = 0.1
# The kubelet's list of pods may lack an allocation for this time after the response.
_RECENT_S = 1.0


class KubeletView:
    """The lists of pods, and the allocations in JOURNAL that the last list may lack.

    ``pods`` are the devices of containers, or None if the kubelet returned no list. ``last_list`` is the last
    list. ``requested_s`` is the monotonic time of the kubelet's last request for devices. ON_LIST is called
    with each new last list and its monotonic time.
    """

    def __init__(self, journal: AllocationJournal, on_list: Callable[[PodList, float], object]) -> None:
        self.pods: tuple[PodDevices, ...] | None = None
        self.last_list: PodList | None = None
        self.requested_s = 0.0
        self.list_from_kubelet: ListPods = _no_kubelet_yet
        self._journal = journal
        self._on_list = on_list
        # Whether the last list had no pod.
        self._is_empty = False
        # The Unix time of the last list.
        self._listed_s = 0.0

    @property
    def last_known_pods(self) -> tuple[PodDevices, ...] | None:
        """The devices of containers in the kubelet's last list, or None before the first list."""
        return self.last_list.devices if self.last_list is not None else None

    @property
    def last_known_claims(self) -> tuple[ClaimedDevice, ...]:
        """The devices of ResourceClaims in the kubelet's last list."""
        return self.last_list.claims if self.last_list is not None else ()

    def set_pods(self, found: PodList | None) -> None:
        """Set the kubelet's list of pods, or None if the kubelet returned no list.

        A list without pods comes from a kubelet that has just started, or from a node without pods. So
        cdigen uses an empty list only if the previous list was also empty.
        """
        self.pods = found.devices if found is not None else None
        if found is None:
            return
        was_empty, self._is_empty = self._is_empty, not found.names
        if self._is_empty and not was_empty:
            return
        self.last_list, self._listed_s = found, time.time()
        self._on_list(found, time.monotonic())

    async def list_pods(self, timeout_s: float) -> PodList:
        """Return the devices of containers, or raise ``KubeletError`` if no list arrives in TIMEOUT_S."""
        found = await self.list_from_kubelet(timeout_s)
        self.set_pods(found)
        return found

    def recent_allocations(self) -> Iterator[PodDevices]:
        """Yield the recent allocations that ``last_known_pods`` may lack, with empty names of pods."""
        for one in self._journal.allocations_since(self._listed_s - _RECENT_S):
            yield PodDevices(namespace="", pod="", container="", resource=one.resource, ids=one.ids)


class PodListTimer:
    """The monotonic time of the next request for the list of pods, ``due_s``.

    Each list makes the kubelet release the devices of ended pods, and also the devices that it is allocating
    at that moment (devicemanager/manager.go, 1.20.2, UpdateAllocatedDevices). If no other pod has a device of
    the resource, the kubelet even ends (devicesToAllocate, "assignment to entry in nil map"). So cdigen
    requests no list during an allocation or shortly after it.
    """

    def __init__(self) -> None:
        self.due_s = 0.0
        # Whether an allocation may be missing from the last list.
        self._has_unlisted = False
        # The time of the next request even without a pause between allocations; 0.0 if none is due.
        self._limit_s = 0.0

    def allocated(self) -> bool:
        """Record an allocation, in any thread; return whether it is the first since the last request."""
        was_listed, self._has_unlisted = not self._has_unlisted, True
        return was_listed

    def is_due(self, now: float, requested_s: float = 0.0, *, has_claims: bool = False) -> bool:
        """Return whether a request is due at the monotonic time NOW; if so, schedule the next request.

        REQUESTED_S is the time of the kubelet's last request for devices. If HAS_CLAIMS is set, the lists
        change without allocations of cdigen, and the interval is shorter.
        """
        if self._has_unlisted:
            self.due_s = min(self.due_s, now + _LIST_AFTER_S)
        if now < self.due_s:
            return False
        self._limit_s = self._limit_s or now + _LIST_AGAIN_S
        if now < min(quiet_s := requested_s + _QUIET_S, self._limit_s):
            self.due_s = quiet_s
            return False
        self._limit_s = 0.0
        self.due_s = now + (_LIST_AGAIN_S if self._has_unlisted or has_claims else PODS_S)
        self._has_unlisted = False
        return True


async def _no_kubelet_yet(_: float) -> PodList:
    """Raise KubeletError, because the link has not started."""
    raise KubeletError("there is no kubelet yet", was_reached=False)
