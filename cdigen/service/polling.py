"""``BackgroundPoller``: runs queries that may take long or hang, on demand, in separate threads.

A result is used for FRESH_S. While a query hangs, no second thread starts the same query, and callers get the
last result until it is stale.
"""

from __future__ import annotations

import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Query = Callable[[], object]

FRESH_S = 5.0


class BackgroundPoller:
    """Runs queries by name in threads whose names begin with PREFIX.

    At most MAX_WAITING callers wait at the same time. Further callers get the present results.
    """

    def __init__(self, prefix: str, *, max_waiting: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._prefix = prefix
        self._max_waiting = max_waiting
        self._clock = clock
        # Guards the following attributes. It is notified when a query ends, and by ``close``.
        self._changed = threading.Condition()
        self._polls: dict[str, _Poll] = {}
        self._names: tuple[str, ...] = ()
        self._waiting = 0
        self._is_closed = False

    def start(self, queries: Mapping[str, Query]) -> None:
        """Start each of QUERIES that has no fresh result; forget queries that are not in QUERIES."""
        with self._changed:
            self._names = tuple(queries)
            self._polls = {
                name: poll for name, poll in self._polls.items() if poll.is_running or name in queries
            }
            for name, query in queries.items():
                self._start(name, query)

    def wait(self, wait_s: float, *, stale_s: float) -> dict[str, object]:
        """Return the results of the last queries by name, after at most WAIT_S seconds.

        While a query runs, its last result is returned if it is not older than STALE_S. A query that raises
        has no result.
        """
        with self._changed:
            if self._waiting < self._max_waiting:
                self._waiting += 1
                try:
                    self._changed.wait_for(self._has_ended, wait_s)
                finally:
                    self._waiting -= 1
            now_s, polls = self._clock(), {name: self._polls[name] for name in self._names}
            return {name: poll.result for name, poll in polls.items() if poll.is_usable(now_s, stale_s)}

    def close(self) -> None:
        """End all present and later waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_ended(self) -> bool:
        return self._is_closed or not any(self._polls[name].is_running for name in self._names)

    def _start(self, name: str, query: Query) -> None:
        poll = self._polls.setdefault(name, _Poll())
        if poll.is_running or (poll.ended_s is not None and self._clock() - poll.ended_s < FRESH_S):
            return
        poll.is_running = True
        thread = threading.Thread(
            target=self._run, args=(poll, query), name=f"{self._prefix}-{name}"[:15], daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no thread can be started; the last result is used until it is too old
            poll.is_running = False

    def _run(self, poll: _Poll, query: Query) -> None:
        try:
            result = query()
            ended_s: float | None = self._clock()
        except Exception:  # noqa: BLE001 - a defect in a query means no result
            result, ended_s = None, None
        with self._changed:
            poll.is_running, poll.result, poll.ended_s = False, result, ended_s
            self._changed.notify_all()


class _Poll:
    """A query: whether it is running, its last ``result``, and the time of this result."""

    def __init__(self) -> None:
        self.is_running = False
        self.result: object = None
        self.ended_s: float | None = None

    def is_usable(self, now_s: float, stale_s: float) -> bool:
        """Return whether the result is fresh, or not older than STALE_S while the query runs again."""
        if self.ended_s is None:
            return False
        return now_s - self.ended_s <= (stale_s if self.is_running else max(stale_s, FRESH_S))
