"""``Supervisor``: start each ``Source``, and restart those that fail, with growing delays."""

from __future__ import annotations

import time
from typing import Protocol

from cdigen.host.root import reason
from cdigen.model.errors import CdigenError
from cdigen.watch.debounce import Backoff
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.watch.triggers import Inbox

# A limit may stay used up for days: a try a minute costs nothing, and the cycle it causes makes up for what
# the source misses.
BACKOFF = Backoff(first_s=1.0, factor=2.0, most_s=60.0)
# A thread that ends reports it at once; only a hanging one, or a reached limit, has to be polled for.
CHECK_S = 5.0


class Source(Protocol):
    """A source of triggers; one thread starts and stops it, any may call ``problem``."""

    @property
    def name(self) -> str:
        """The name of the source in its triggers and its health."""

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Begin: whatever changes after this returns makes a trigger. May be called again after ``stop``.

        OSError, CdigenError: it cannot work; nothing is left running then.
        """

    def stop(self) -> None:
        """End within 1 s, whatever state it is in; no trigger comes afterwards, unless its thread hangs."""

    def problem(self) -> str:
        """Return in one line what prevents it from seeing all changes; empty: nothing."""


class Supervisor:
    """Keeps SOURCES running; has no thread of its own: the daemon's loop calls ``tick``."""

    def __init__(
        self, sources: tuple[Source, ...], inbox: Inbox, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._inbox = inbox
        self._clock = clock
        self._sources = tuple(_SupervisedSource(source) for source in sources)

    def start(self) -> None:
        """Start all sources; ``tick`` retries those that fail."""
        for each in self._sources:
            each.start(self._inbox, self._clock())

    def add(self, source: Source) -> None:
        """Start SOURCE as well; ``tick`` retries it, too."""
        added = _SupervisedSource(source)
        self._sources = (*self._sources, added)
        added.start(self._inbox, self._clock())

    def tick(self) -> float:
        """Restart failed sources, if it is time; returns when to call this next, by the clock.

        A restarted source has missed events, so a trigger is put for it.
        """
        now = self._clock()
        for each in self._sources:
            each.check(self._inbox, now)
        return min((each.next_s(now) for each in self._sources), default=now + CHECK_S)

    def health(self) -> dict[str, str]:
        """Return the problem of each source by its name; empty: none."""
        return {each.source.name: each.problem() for each in self._sources}

    def stop(self) -> None:
        """Stop all sources."""
        for each in self._sources:
            each.source.stop()


class _SupervisedSource:
    """One source: why it could not be started, when it is tried next, how often it has failed lately."""

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

    def start(self, inbox: Inbox, now: float) -> bool:
        self._retry_s, self._started_s = None, now
        try:
            self.source.start(inbox.put)
        except OSError as error:
            return self._refuse(f"cannot start: {reason(error)}", now)
        except CdigenError as error:
            return self._refuse(error.message + (f" ({error.hint})" if error.hint else ""), now)
        self._refusal = ""
        return True

    def _refuse(self, why: str, now: float) -> bool:
        self._refusal = why
        self._plan(now)
        return False

    def check(self, inbox: Inbox, now: float) -> None:
        if not self.problem():
            self._retry_s = None
            if now - self._started_s >= BACKOFF.most_s:
                self._failures = 0
            return
        if self._retry_s is None:
            self._plan(now)
        elif now >= self._retry_s:
            self.source.stop()
            if self.start(inbox, now):
                inbox.put(Trigger(source=self.source.name, reason="started again"))

    def _plan(self, now: float) -> None:
        self._retry_s = now + BACKOFF.delay(self._failures)
        self._failures += 1
