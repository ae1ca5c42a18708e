"""``Backoff``: the growing delay between attempts."""

from __future__ import annotations

from cdigen.value import frozen

# Highest exponent of the factor. With this exponent, every delay has reached its maximum, and the power still
# fits into a float.
_MOST_ATTEMPTS = 64


@frozen
class Backoff:
    """Delays that grow from ``first_s`` by ``factor`` (1 or more) up to ``most_s``."""

    first_s: float
    most_s: float
    factor: float = 2.0

    def delay(self, attempts: int) -> float:
        """Return the seconds to wait after ATTEMPTS failed attempts."""
        return min(self.first_s * self.factor ** min(attempts, _MOST_ATTEMPTS), self.most_s)
