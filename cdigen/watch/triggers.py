"""``Trigger``: a reason to look at the host; ``Inbox``: the queue in which triggers wait for the reader."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# No more reasons than people read in one log line; a package's installation has hundreds.
MAX_REASONS = 32


@frozen
class Trigger:
    """A reason to look at the host: ``source`` is its origin, ``reason`` one line for people."""

    source: str
    reason: str


@frozen
class Batch:
    """What was put since the last take.

    ``triggers`` are the first distinct ones, in order; ``events`` counts all, and ``unnamed`` those not among
    ``triggers``. The times are monotonic, of the first and the last event; both are 0.0 if there was none.
    """

    triggers: tuple[Trigger, ...] = ()
    events: int = 0
    unnamed: int = 0
    first_s: float = 0.0
    last_s: float = 0.0


NO_EVENTS = Batch()


class Inbox:
    """Many threads put, one waits and takes; its size is bounded however much is put.

    ``put`` may be called by any thread, and by a signal handler even while it interrupts another method of
    the same inbox: hence the reentrant lock, the state that is swapped as a whole, and the bell: SimpleQueue
    is reentrant, and a Condition's wait would miss such a call.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._pending = _Pending()
        # Holds one token where something is pending, for ``wait`` to sleep on.
        self._bell: SimpleQueue[None] = SimpleQueue()

    def put(self, trigger: Trigger) -> None:
        """Add TRIGGER; never waits for the reader, and never fails."""
        with self._lock:
            self._pending.add(trigger, self._clock())
            if self._bell.empty():
                self._bell.put(None)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until something is pending, at most TIMEOUT_S (None: for ever); returns whether it is."""
        if not self._pending.events and (timeout_s is None or timeout_s > 0):
            with suppress(Empty):
                self._bell.get(timeout=timeout_s)
        return self._pending.events > 0

    def peek(self) -> Batch:
        """Return what is pending, without taking it."""
        with self._lock:
            return self._pending.batch()

    def take(self) -> Batch:
        """Take and return what is pending."""
        with self._lock:
            pending, self._pending = self._pending, _Pending()
            while not self._bell.empty():
                self._bell.get_nowait()
            return pending.batch()


class _Pending:
    """What was put since the last take, as it grows."""

    def __init__(self) -> None:
        self.events = 0
        self._unnamed = 0
        self._first_s = 0.0
        self._last_s = 0.0
        self._triggers: dict[tuple[str, str], Trigger] = {}

    def add(self, trigger: Trigger, now: float) -> None:
        # A tuple is hashed many times faster than a value, and there may be 10,000 a second.
        key = (trigger.source, trigger.reason)
        if key not in self._triggers:
            if len(self._triggers) < MAX_REASONS:
                self._triggers[key] = trigger
            else:
                self._unnamed += 1
        self._last_s = now
        if not self.events:
            self._first_s = now
        self.events += 1

    def batch(self) -> Batch:
        if not self.events:
            return NO_EVENTS
        return Batch(
            triggers=tuple(self._triggers.values()),
            events=self.events,
            unnamed=self._unnamed,
            first_s=self._first_s,
            last_s=self._last_s,
        )
