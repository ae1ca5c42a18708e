"""What the plugin counts: ``NriMetrics``. One thread counts, any may read."""

from __future__ import annotations

from bisect import bisect_left

from cdigen.nri.decision.decide import NOTES
from cdigen.nri.decision.refusal import CAUSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.decision.answer import Answer

OUTCOMES = ("nothing", "served", "inject", "refuse")
# Of validations: passed, rejected.
VERDICTS = ("passed", "rejected")
# Seconds. An answer takes less than a millisecond; one that waits for specs to be read anew some more.
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0)


class NriMetrics:
    """Counts since the start; every series exists from the beginning, as rates need the zero."""

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.refusals = dict.fromkeys(CAUSES, 0)
        self.notes = dict.fromkeys((*NOTES, *CAUSES), 0)
        self.verdicts = dict.fromkeys(VERDICTS, 0)
        self.connections = 0
        # How many answers took up to each of BUCKETS but longer than the one before; the last: longer.
        self.durations = [0] * (len(BUCKETS) + 1)
        self.duration_s = 0.0

    def count(self, answer: Answer, duration_s: float) -> None:
        """Count ANSWER to CreateContainer, which took DURATION_S."""
        self.outcomes[answer.outcome] += 1
        if answer.outcome == "refuse":
            self.refusals[answer.cause] += 1
        for note in answer.notes:
            self.notes[note.cause] += 1
        self.durations[bisect_left(BUCKETS, duration_s)] += 1
        self.duration_s += duration_s
