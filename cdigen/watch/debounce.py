"""The delay after a burst of events (``Debounce``), and the delay between attempts (``Backoff``). Pure."""

from __future__ import annotations

from cdigen.value import frozen

# Highest exponent of the factor. With this exponent, every delay has reached its maximum, and the power still
# fits into a float.
_MOST_ATTEMPTS = 64


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


@frozen
class Backoff:
    """Delays that grow from ``first_s`` by ``factor`` (1 or more) up to ``most_s``."""

    first_s: float
    factor: float
    most_s: float

    def delay(self, attempts: int) -> float:
        """Return the seconds to wait after ATTEMPTS failed attempts."""
        return min(self.first_s * self.factor ** min(attempts, _MOST_ATTEMPTS), self.most_s)
