"""What was answered since the process began: ``Counts``. The link's thread counts, any may read."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.kubelet.answers import Answer, Refusal

# Seconds. An answer takes less than a millisecond, unless specs have to be read again.
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0)


class Counts:
    """What has been answered since the start, by resource."""

    def __init__(self) -> None:
        self.given: Counter[str] = Counter()
        self.refused: Counter[tuple[str, str]] = Counter()
        # How many answers took up to each of BUCKETS but longer than the one before; the last: longer.
        self.durations = [0] * (len(BUCKETS) + 1)
        self.duration_s = 0.0

    def add(self, resource: str, answer: Answer | Refusal, duration_s: float) -> None:
        """Count ANSWER to a request for RESOURCE, which took DURATION_S."""
        cause = getattr(answer, "cause", "")
        if cause:
            self.refused[resource, cause] += 1
        else:
            self.given[resource] += 1
        self.durations[bisect_left(BUCKETS, duration_s)] += 1
        self.duration_s += duration_s
