"""``Watchdog``: pings the watchdog of the service manager while the process works."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.service.process.sd_notify import Notifier


class Watchdog:
    """The pings through NOTIFIER. TURN_S returns the maximum seconds that a turn of the loop may wait.

    PROBLEM returns the reason why the process does not work, or "". If PROBLEM is None, the process works if
    its loop runs.
    """

    def __init__(
        self, notifier: Notifier, turn_s: Callable[[], float], problem: Callable[[], str] | None
    ) -> None:
        self.problem = problem or self._is_turning
        self._notifier = notifier
        self._turn_s = turn_s
        self._turned_s = time.monotonic()

    @property
    def interval_s(self) -> float:
        """The maximum seconds between two turns. Some service managers expect more frequent pings."""
        return self._notifier.watchdog_s / 3 if self._notifier.watchdog_s else self._turn_s()

    def turn(self) -> float:
        """Record that the loop runs, and ping the watchdog; return the monotonic time."""
        self._turned_s = time.monotonic()
        if self._notifier.watchdog_s and not self.problem():
            self._notifier.ping()
        return self._turned_s

    def _is_turning(self) -> str:
        idle_s = time.monotonic() - self._turned_s
        limit_s = max(60.0, 2 * self.interval_s)
        return f"the loop has not run for {idle_s:.0f} s" if idle_s > limit_s else ""
