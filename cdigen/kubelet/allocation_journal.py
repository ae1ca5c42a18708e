"""``AllocationJournal``: the latest results of the kubelet's requests, and the counts of all results.

The link's thread adds results. Any thread may read them.
"""

from __future__ import annotations

import time
from collections import deque

from cdigen.kubelet.container_response import AllocationRefusal
from cdigen.kubelet.counts import AllocationCounts
from cdigen.kubelet.journal import Allocation
from cdigen.kubelet.status import MAX_JOURNAL
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.kubelet.container_response import ContainerResponse

# ``new_allocations`` yields at most this number of allocations.
_MAX_NEW = 1_000


class AllocationJournal:
    """The results of requests; ``on_allocate`` is called after each request."""

    def __init__(self) -> None:
        self.counts = AllocationCounts()
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
        """Add the result of a request to the journal and the metrics."""
        self.counts.add(resource, answer, duration_s)
        done = Allocation(at_s=time.time(), resource=resource, ids=ids[:MAX_JOURNAL], count=len(ids))
        if isinstance(answer, AllocationRefusal):
            done = replace(done, cause=answer.cause, reason=answer.reason)
        else:
            done = replace(done, names=answer.names)
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
