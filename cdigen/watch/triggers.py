"""``Trigger``: a reason to check the host; ``TriggerQueue``, and ``Debounce`` for bursts of triggers."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Maximum number of distinct triggers in a batch. A log line shows them to people, and a package installation
# has hundreds of reasons.
MAX_REASONS = 32


@frozen
class Trigger:
    """A reason to check the host: ``source`` is its origin, ``reason`` is a line for people."""

    source: str
    reason: str


@frozen
class Batch:
    """The triggers since the last ``take``.

    ``triggers`` are the first distinct triggers in their order. ``events`` is the number of all events.
    ``first_s`` and ``last_s`` are the monotonic times of the first and the last event, or 0.0 without events.
    """

    triggers: tuple[Trigger, ...] = ()
    events: int = 0
    first_s: float = 0.0
    last_s: float = 0.0


@frozen
class Debounce:
    """The delay that combines many events into a single cycle.

    The cycle is due ``debounce_s`` after the last event, and at most ``max_delay_s`` after the first event.
    """

    debounce_s: float
    max_delay_s: float

    def due(self, first_event: float, last_event: float) -> float:
        """Return the time to check the host, by the clock of FIRST_EVENT and LAST_EVENT."""
        return min(last_event + self.debounce_s, first_event + self.max_delay_s)


class TriggerQueue:
    """A queue for many writers and one reader. Its size is limited, even if many triggers are put.

    Any thread may call ``put``. A signal handler may call it as well, even while the handler interrupts
    another method of the same queue. Therefore the lock is reentrant, and the state is replaced as a whole.
    The queue uses a SimpleQueue, which is reentrant. The wait of a Condition would miss a call by a handler.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._pending = _Pending()
        # Contains one token while a trigger is pending. ``wait`` waits for the token.
        self._token: SimpleQueue[None] = SimpleQueue()

    def put(self, trigger: Trigger) -> None:
        """Add TRIGGER. The method never waits for the reader, and never fails."""
        with self._lock:
            self._pending.add(trigger, self._clock())
            if self._token.empty():
                self._token.put(None)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait at most TIMEOUT_S (None for no limit) for a trigger; return whether a trigger is pending."""
        if not self._pending.events and (timeout_s is None or timeout_s > 0):
            with suppress(Empty):
                self._token.get(timeout=timeout_s)
        return self._pending.events > 0

    def peek(self) -> Batch:
        """Return the pending triggers, and leave them in the queue."""
        with self._lock:
            return self._pending.batch()

    def take(self) -> Batch:
        """Take and return the pending triggers."""
        with self._lock:
            pending, self._pending = self._pending, _Pending()
            while not self._token.empty():
                self._token.get_nowait()
            return pending.batch()


class _Pending:
    """The triggers since the last ``take``. ``add`` adds a trigger."""

    def __init__(self) -> None:
        self.events = 0
        self._first_s = 0.0
        self._last_s = 0.0
        self._triggers: dict[tuple[str, str], Trigger] = {}

    def add(self, trigger: Trigger, now: float) -> None:
        # A tuple is hashed many times faster than a Trigger, and 10,000 triggers per second are possible.
        key = (trigger.source, trigger.reason)
        if len(self._triggers) < MAX_REASONS:
            self._triggers.setdefault(key, trigger)
        self._last_s = now
        if not self.events:
            self._first_s = now
        self.events += 1

    def batch(self) -> Batch:
        return Batch(
            triggers=tuple(self._triggers.values()),
            events=self.events,
            first_s=self._first_s,
            last_s=self._last_s,
        )
