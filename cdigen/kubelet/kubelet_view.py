"""``KubeletView``: the devices of containers according to the kubelet's lists of pods."""

from __future__ import annotations

import time

from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.wire.clients import KubeletError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from cdigen.kubelet.allocation_journal import AllocationJournal
    from cdigen.kubelet.pods import PodList

    # Returns the pods of the kubelet; the argument is the timeout in seconds.
    ListPods = Callable[[float], Awaitable[PodList]]

# The kubelet's list of pods may lack an allocation for this time after the response.
_RECENT_S = 1.0


class KubeletView:
    """The lists of pods, and the allocations in JOURNAL that the last list may lack.

    ``pods`` are the devices of containers, or None if the kubelet returned no list. ``last_list`` is the last
    list. ON_LIST is called with each new last list and its monotonic time.
    """

    def __init__(self, journal: AllocationJournal, on_list: Callable[[PodList, float], object]) -> None:
        self.pods: tuple[PodDevices, ...] | None = None
        self.last_list: PodList | None = None
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
    def has_pod_list(self) -> bool:
        """Whether the kubelet has returned a list of pods, and the latest list is not empty."""
        return self.last_list is not None and not self._is_empty

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

    async def list_pods(self, timeout_s: float) -> tuple[PodDevices, ...]:
        """Return the devices of containers, or raise ``KubeletError`` if no list arrives in TIMEOUT_S."""
        found = await self.list_from_kubelet(timeout_s)
        self.set_pods(found)
        return found.devices

    def recent_allocations(self) -> Iterator[PodDevices]:
        """Yield the recent allocations that ``last_known_pods`` may lack, with empty names of pods."""
        for one in self._journal.allocations_since(self._listed_s - _RECENT_S):
            yield PodDevices(namespace="", pod="", container="", resource=one.resource, ids=one.ids)


async def _no_kubelet_yet(_: float) -> PodList:
    """Raise KubeletError, because the link has not started."""
    raise KubeletError("there is no kubelet yet", was_reached=False)
