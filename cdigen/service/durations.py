"""``DurationCounts``: counts durations for a histogram. ``service.metrics.histogram`` exports the counts.

This module does not import prometheus-client, because some processes must first respond to a peer.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class DurationCounts:
    """The number of durations up to each of BOUNDS (seconds, ascending), and the sum ``sum_s``.

    A single thread adds durations. Any thread may read the counts.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.sum_s = 0.0
        self._bounds = bounds
        # The number of durations in each interval between two bounds. The last interval is above all bounds.
        self._counts = [0] * (len(bounds) + 1)

    def add(self, duration_s: float) -> None:
        """Count a duration of DURATION_S seconds."""
        self._counts[bisect_left(self._bounds, duration_s)] += 1
        self.sum_s += duration_s

    def buckets(self) -> list[tuple[str, float]]:
        """Return each bound as text, and the number of durations up to the bound; the last is "+Inf"."""
        bounds = (*map(str, self._bounds), "+Inf")
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True))
