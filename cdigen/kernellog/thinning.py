"""``Thinning``: of a flood of lines that say the same, the first and the last of each second.

A driver that complains ten thousand times a second would keep the reader of the lines as busy. Less than
``BURST`` lines a second are all passed on, as are lines that say something that was not said in this
second.
"""

from __future__ import annotations

BURST = 100
SECOND_S = 1.0
# How many sayings are known at a time. Whoever says more is passed on, and waits for the reader like
# anybody.
MOST = 256
_NUMBERS = b"0123456789abcdef"


class Thinning:
    """Takes lines in their order (``add``), and gives those to be passed on, in the same order (``take``)."""

    def __init__(self) -> None:
        self._ready: list[bytes] = []
        # By what they say: the last line of each, those that were said latest at the end.
        self._held: dict[bytes, bytes] = {}
        self._said: set[bytes] = set()
        self._passed = 0
        self._ends_s = 0.0

    def add(self, line: bytes, text: bytes, now_s: float) -> None:
        """Add LINE, which says TEXT, at the monotonic time NOW_S."""
        if now_s >= self._ends_s:
            self._begin(now_s)
        if self._passed < BURST:
            self._pass(line)
            return
        saying = _saying(text)
        if saying in self._said:
            self._held.pop(saying, None)
            self._held[saying] = line
            return
        if len(self._said) < MOST:
            self._said.add(saying)
        self._pass(line)

    def add_at_once(self, line: bytes) -> None:
        """Add LINE, which is always passed on."""
        self._pass(line)

    def take(self, now_s: float) -> bytes:
        """Return the lines to be passed on by NOW_S, and forget them."""
        if self._held and now_s >= self._ends_s:
            self._begin(now_s)
        ready, self._ready = self._ready, []
        return b"".join(ready)

    def due_s(self) -> float | None:
        """Return when to take again though nothing is added, by the same clock; None: never."""
        return self._ends_s if self._held else None

    def finish(self) -> bytes:
        """Return all that is left."""
        self._begin(self._ends_s)
        return self.take(0.0)

    def _begin(self, now_s: float) -> None:
        self._release()
        self._said.clear()
        self._passed = 0
        self._ends_s = now_s + SECOND_S

    def _pass(self, line: bytes) -> None:
        # What is held came before.
        self._release()
        self._ready.append(line)
        self._passed += 1

    def _release(self) -> None:
        self._ready += self._held.values()
        self._held.clear()


def _saying(text: bytes) -> bytes:
    """Return what TEXT says, without the numbers behind its first comma.

    Before it stand the device and the error's number: ``NVRM: Xid (PCI:0000:65:00): 79, pid=...``.
    """
    first, _, rest = text.partition(b", ")
    return first + b"," + rest.translate(None, _NUMBERS)
