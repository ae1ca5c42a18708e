"""``AllocationCounts`` counts the responses since the start of the process.

The link's thread writes the counts. Any thread may read the counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.kubelet.container_response import AllocationRefusal, ContainerResponse

# Upper bounds in seconds. A response takes less than 1 ms, or longer if cdigen queries the kubelet or the API
# server.
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0)


class AllocationCounts:
    """The allocations and refusals since the start, by resource."""

    def __init__(self) -> None:
        self.allocations: Counter[str] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        # The number of responses in each interval between two bounds of BUCKETS. The last interval is above
        # all bounds.
        self.durations = [0] * (len(BUCKETS) + 1)
        self.duration_s = 0.0

    def add(self, resource: str, answer: ContainerResponse | AllocationRefusal, duration_s: float) -> None:
        """Count ANSWER, the result of a request for RESOURCE that took DURATION_S."""
        cause = getattr(answer, "cause", "")
        if cause:
            self.refused[resource, cause] += 1
        else:
            self.allocations[resource] += 1
        self.durations[bisect_left(BUCKETS, duration_s)] += 1
        self.duration_s += duration_s
