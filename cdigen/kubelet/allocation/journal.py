"""``AllocationJournal``: the latest results of the kubelet's requests, and the counts of all results.

The link's thread adds results. Any thread may read them.
"""

from __future__ import annotations

import time
from collections import Counter, deque

from cdigen.kubelet.allocation.container_response import AllocationRefusal
from cdigen.kubelet.allocation.journal_entries import MAX_JOURNAL, Allocation
from cdigen.service.durations import DurationCounts
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.kubelet.allocation.container_response import ContainerResponse

# Upper bounds in seconds. A response takes less than 1 ms, or longer if cdigen queries the kubelet or the API
# server.
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1)
# ``new_allocations`` yields at most this number of allocations.
_MAX_NEW = 1_000


class AllocationJournal:
    """The results of requests; ``on_allocate`` is called after each request.

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
