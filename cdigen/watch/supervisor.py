"""``Supervisor``: starts each ``Source``, and restarts failed sources with growing delays."""

from __future__ import annotations

import time
from typing import Protocol

from cdigen.host.root import reason
from cdigen.model.errors import CdigenError
from cdigen.model.times.backoff import Backoff
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.watch.triggers import TriggerQueue

# A limit, such as the inotify watches of a user, may be reached for days. An attempt per minute costs almost
# nothing. The cycle after a restart finds the changes that the source has missed.
BACKOFF = Backoff(first_s=1.0, most_s=60.0)
# Seconds between two checks of the sources. A thread reports its own end immediately. Only hanging threads
# and reached limits require the checks.
CHECK_S = 5.0


class Source(Protocol):
    """A source of triggers. One thread starts and stops the source; any thread may call ``problem``."""

    @property
    def name(self) -> str:
        """The name of the source in its triggers and its health."""

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Start the source. Each later change puts a trigger.

        The method may be called again after ``stop``. Raises OSError or CdigenError if the source cannot
        work. In this case nothing is left running.
        """

    def stop(self) -> None:
        """Stop the source within 1 s in any state. Afterwards, only a thread that hangs can put a trigger."""

    def problem(self) -> str:
        """Return one line with the reason why the source misses changes, or ""."""


class Supervisor:
    """Keeps SOURCES running. It has no thread; the daemon's loop calls ``tick``."""

    def __init__(
        self, sources: tuple[Source, ...], queue: TriggerQueue, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._sources = tuple(_SupervisedSource(source) for source in sources)

    def start(self) -> None:
        """Start all sources. ``tick`` retries failed sources."""
        for each in self._sources:
            each.start(self._queue, self._clock())

    def add(self, source: Source) -> None:
        """Start SOURCE in addition. ``tick`` retries SOURCE if it fails."""
        added = _SupervisedSource(source)
        self._sources = (*self._sources, added)
        added.start(self._queue, self._clock())

    def tick(self) -> float:
        """Restart failed sources whose delay has passed; return the time of the next call, by the clock.

        A restarted source has missed events, so the restart puts a trigger.
        """
        now = self._clock()
        for each in self._sources:
            each.check(self._queue, now)
        return min((each.next_s(now) for each in self._sources), default=now + CHECK_S)

    def health(self) -> dict[str, str]:
        """Return the problem of each source by its name; a source that works has the problem ""."""
        return {each.source.name: each.problem() for each in self._sources}

    def stop(self) -> None:
        """Stop all sources."""
        for each in self._sources:
            each.source.stop()


class _SupervisedSource:
    """A source with its start error, the time of the next attempt, and the number of recent failures."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._refusal = ""
        self._failures = 0
        self._retry_s: float | None = None
        self._started_s = 0.0

    def problem(self) -> str:
        return self._refusal or self.source.problem()

    def next_s(self, now: float) -> float:
        return now + CHECK_S if self._retry_s is None else min(self._retry_s, now + CHECK_S)

    def start(self, queue: TriggerQueue, now: float) -> bool:
        self._retry_s, self._started_s = None, now
        try:
            self.source.start(queue.put)
        except OSError as error:
            self._refusal = f"cannot start: {reason(error)}"
        except CdigenError as error:
            self._refusal = error.message + (f" ({error.hint})" if error.hint else "")
        else:
            self._refusal = ""
            return True
        self._plan(now)
        return False

    def check(self, queue: TriggerQueue, now: float) -> None:
        if not self.problem():
            self._retry_s = None
            if now - self._started_s >= BACKOFF.most_s:
                self._failures = 0
            return
        if self._retry_s is None:
            self._plan(now)
        elif now >= self._retry_s:
            self.source.stop()
            if self.start(queue, now):
                queue.put(Trigger(source=self.source.name, reason="started again"))

    def _plan(self, now: float) -> None:
        self._retry_s = now + BACKOFF.delay(self._failures)
        self._failures += 1
