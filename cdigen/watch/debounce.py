"""When to look after a burst of events (``Debounce``), and when to try again (``Backoff``). Pure."""

from __future__ import annotations

from cdigen.value import frozen

# More attempts than any delay needs to reach its bound, and few enough that the power fits a float.
_MOST_ATTEMPTS = 64


@frozen
class Debounce:
    """One cycle for many events: ``debounce_s`` after the last, at most ``max_delay_s`` after the first."""

    debounce_s: float
    max_delay_s: float

    def due(self, first_event: float, last_event: float) -> float:
        """Return when to look, as a time of the clock that gave FIRST_EVENT and LAST_EVENT."""
        return min(last_event + self.debounce_s, first_event + self.max_delay_s)


@frozen
class Backoff:
    """Delays that grow from ``first_s`` by ``factor`` (1 or more) up to ``most_s``."""

    first_s: float
    factor: float
    most_s: float

    def delay(self, attempts: int) -> float:
        """Return how many seconds to wait after ATTEMPTS failed attempts."""
        return min(self.first_s * self.factor ** min(attempts, _MOST_ATTEMPTS), self.most_s)
