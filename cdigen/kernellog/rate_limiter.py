"""``LogRateLimiter``: reduces a flood of equal lines to the first lines and the last line of each second.

A driver may log ten thousand errors per second, which would keep the reader of the lines busy. In each
second, the limiter forwards the first ``BURST`` lines, and every line whose message is new in this second.
Lines with the same message may differ in their numbers.
"""

from __future__ import annotations

BURST = 100
SECOND_S = 1.0
# Maximum number of different messages that the limiter stores. Lines with further messages are all forwarded.
# If the reader is slow, these lines wait like all other lines.
MOST = 256
_NUMBERS = b"0123456789abcdef"


class LogRateLimiter:
    """Receives lines in their order (``add``), and returns the lines to forward (``take``)."""

    def __init__(self) -> None:
        self._ready: list[bytes] = []
        # The last line of each repeated message, in the order of the last lines.
        self._held: dict[bytes, bytes] = {}
        self._known: set[bytes] = set()
        self._forwarded = 0
        self._ends_s = 0.0

    def add(self, line: bytes, text: bytes, now_s: float) -> None:
        """Add LINE with the message TEXT at the monotonic time NOW_S."""
        if now_s >= self._ends_s:
            self._begin(now_s)
        if self._forwarded < BURST:
            self.add_at_once(line)
            return
        message = _message(text)
        if message in self._known:
            self._held.pop(message, None)
            self._held[message] = line
            return
        if len(self._known) < MOST:
            self._known.add(message)
        self.add_at_once(line)

    def add_at_once(self, line: bytes) -> None:
        """Add LINE, which is forwarded in any case."""
        # The held lines are older than LINE.
        self._release()
        self._ready.append(line)
        self._forwarded += 1

    def take(self, now_s: float) -> bytes:
        """Return and remove the lines to forward at NOW_S."""
        if self._held and now_s >= self._ends_s:
            self._begin(now_s)
        ready, self._ready = self._ready, []
        return b"".join(ready)

    def due_s(self) -> float | None:
        """Return the monotonic time at which ``take`` must be called, or None if no line is held."""
        return self._ends_s if self._held else None

    def finish(self) -> bytes:
        """Return all remaining lines."""
        self._begin(self._ends_s)
        return self.take(0.0)

    def _begin(self, now_s: float) -> None:
        self._release()
        self._known.clear()
        self._forwarded = 0
        self._ends_s = now_s + SECOND_S

    def _release(self) -> None:
        self._ready += self._held.values()
        self._held.clear()


def _message(text: bytes) -> bytes:
    """Return TEXT without the numbers after the first comma.

    The device and the number of the error are before the comma: ``NVRM: Xid (PCI:0000:65:00): 79, pid=...``.
    """
    first, _, rest = text.partition(b", ")
    return first + b"," + rest.translate(None, _NUMBERS)
