"""The liveness of a link, a thread that serves a peer while the main thread does slow work.

``Liveness`` finds a link that has ended or hangs. ``prefer_link`` and ``freeze_objects`` shorten the times
for which the main thread delays the link.
"""

from __future__ import annotations

import gc
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds. The interpreter switches threads after this time, so that the link does not wait for computations
# of the main thread.
_SWITCH_S = 0.0005
# Seconds without a beat after which a link hangs. A link that has no work beats at least every 10 s.
_STALLED_S = 30.0


class Liveness:
    """The beats of the link to PEER ("the runtime"). Only the link calls ``beat``."""

    def __init__(self, peer: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._peer = peer
        self._clock = clock
        self._beat_s = clock()

    def beat(self) -> None:
        """Record that the link works at this time."""
        self._beat_s = self._clock()

    def problem(self, *, is_running: bool) -> str:
        """Return the reason why the link does not work, or "" if it works.

        IS_RUNNING is whether the thread runs. If there is a reason, the service manager restarts the process.
        """
        if not is_running:
            return f"the thread that serves {self._peer} has ended"
        stalled_s = self._clock() - self._beat_s
        return f"{self._peer} has not been served for {stalled_s:.0f} s" if stalled_s > _STALLED_S else ""


def prefer_link() -> None:
    """Limit the time for which another thread can delay the link; call this before the link starts."""
    sys.setswitchinterval(_SWITCH_S)


def freeze_objects() -> None:
    """Exclude the present objects from garbage collections; call this when the start has ended.

    Almost all present objects live until the end of the process. Without them, each run of the garbage
    collector is milliseconds shorter.
    """
    gc.collect()
    gc.freeze()
