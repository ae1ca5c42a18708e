"""``BackgroundPoller``: runs queries that may take long or hang, on demand, in separate threads.

A result is used for FRESH_S. While a query hangs, no second thread starts the same query, and callers get the
last result for STALE_S.
"""

from __future__ import annotations

import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Query = Callable[[], object]

FRESH_S = 5.0
STALE_S = 15.0
# Maximum number of threads that wait at the same time. Further callers get the present results.
MAX_WAITING = 1


class BackgroundPoller:
    """Runs queries by name. A query never raises."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Guards the following attributes. It is notified when a query ends.
        self._changed = threading.Condition()
        self._polls: dict[str, _Poll] = {}
        self._waiting = 0

    def start(self, queries: Mapping[str, Query]) -> None:
        """Start each of QUERIES that has no fresh result; forget queries that are not in QUERIES."""
        with self._changed:
            for name in [name for name in self._polls if name not in queries]:
                if not self._polls[name].is_running:
                    del self._polls[name]
            for name, query in queries.items():
                self._start(name, query)

    def results(self, wait_s: float) -> dict[str, object]:
        """Return the present results after at most WAIT_S seconds, by the names of the queries."""
        with self._changed:
            if self._waiting < MAX_WAITING:
                self._waiting += 1
                try:
                    self._changed.wait_for(
                        lambda: not any(each.is_running for each in self._polls.values()), wait_s
                    )
                finally:
                    self._waiting -= 1
            now = self._clock()
            return {
                name: each.result
                for name, each in self._polls.items()
                if each.ended_s is not None and now - each.ended_s <= STALE_S
            }

    def _start(self, name: str, query: Query) -> None:
        poll = self._polls.setdefault(name, _Poll())
        if poll.is_running or (poll.ended_s is not None and self._clock() - poll.ended_s < FRESH_S):
            return
        poll.is_running = True
        thread = threading.Thread(
            target=self._run, args=(poll, query), name=f"users-{name}"[:15], daemon=True
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
    """A query: whether the query is running, its last ``result``, and the time of this result."""

    def __init__(self) -> None:
        self.is_running = False
        self.result: object = None
        self.ended_s: float | None = None
