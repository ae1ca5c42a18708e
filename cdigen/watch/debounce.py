"""``Debounce``: the delay after a burst of events."""

from __future__ import annotations

from cdigen.value import frozen


@frozen
class Debounce:
    """The delay that combines many events into a single cycle.

    The cycle is due ``debounce_s`` after the last event, and at most ``max_delay_s`` after the first event.
    """

    debounce_s: float
    max_delay_s: float

    def due(self, first_event: float, last_event: float) -> float:
        """Return the time to check the host, by the clock of FIRST_EVENT and LAST_EVENT."""
        return min(last_event + self.debounce_s, first_event + self.max_delay_s)
