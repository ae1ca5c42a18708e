"""``AllocationCounts`` counts the responses since the start of the process.

The link's thread writes the counts. Any thread may read the counts.
"""

from __future__ import annotations

from collections import Counter

from cdigen.service.durations import DurationCounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.kubelet.container_response import AllocationRefusal, ContainerResponse

# Upper bounds in seconds. A response takes less than 1 ms, or longer if cdigen queries the kubelet or the API
# server.
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1)


class AllocationCounts:
    """The allocations and refusals since the start, by resource."""

    def __init__(self) -> None:
        self.allocations: Counter[str] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        self.durations = DurationCounts(BUCKETS)

    def add(self, resource: str, answer: ContainerResponse | AllocationRefusal, duration_s: float) -> None:
        """Count ANSWER, the result of a request for RESOURCE that took DURATION_S."""
        cause = getattr(answer, "cause", "")
        if cause:
            self.refused[resource, cause] += 1
        else:
            self.allocations[resource] += 1
        self.durations.add(duration_s)
