"""What the thread that answers the runtime and the main thread share: ``SharedState``."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections import deque
from contextlib import suppress

from cdigen.nri.book import Book
from cdigen.nri.decision.decide import NOTES
from cdigen.nri.decision.handover import new_instance
from cdigen.nri.decision.refusal import CAUSES
from cdigen.nri.events import ConnectionLost, PluginActive, RuntimeConfigured, Synchronized

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.decision.answer import Answer
    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.decision.policy import Policy
    from cdigen.nri.events import Event

# Events of containers are dropped beyond so many that nobody has read; they are counted all the same.
_MAX_EVENTS = 10_000
_OF_CONNECTION = (RuntimeConfigured, Synchronized, PluginActive, ConnectionLost)
# What NOTIFY is called with.
QUESTION, LINK = "question", "link"
OUTCOMES = ("nothing", "served", "inject", "refuse")
# Of validations: passed, rejected.
VERDICTS = ("passed", "rejected")
# Seconds. An answer takes less than a millisecond; one that waits for specs to be read again some more.
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0)


class NriMetrics:
    """Counts since the start; every series exists from the beginning, as rates need the zero."""

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.refusals = dict.fromkeys(CAUSES, 0)
        self.notes = dict.fromkeys((*NOTES, *CAUSES), 0)
        self.verdicts = dict.fromkeys(VERDICTS, 0)
        self.connections = 0
        # How many answers took up to each of BUCKETS but longer than the one before; the last: longer.
        self.durations = [0] * (len(BUCKETS) + 1)
        self.duration_s = 0.0

    def count(self, answer: Answer, duration_s: float) -> None:
        """Count ANSWER to CreateContainer, which took DURATION_S."""
        self.outcomes[answer.outcome] += 1
        if answer.outcome == "refuse":
            self.refusals[answer.cause] += 1
        for note in answer.notes:
            self.notes[note.cause] += 1
        self.durations[bisect_left(BUCKETS, duration_s)] += 1
        self.duration_s += duration_s


class SharedState:
    """What the link answers by, and the events and metrics that it leaves for the main thread.

    NOTIFY is called in the link's thread: with QUESTION where a container waits for a newer state of the
    host, with LINK where it has left an event.
    ``policy`` says which requests count, ``context`` which devices they mean; ``problem``, where it is not
    empty, why every container that requests devices is refused. ``tried`` is set once the first attempt to
    register has succeeded or failed, ``asked`` while a container waits for a newer state. ``alive_s`` is when
    the link's thread has last been at work (time.monotonic). ``instance`` tells this process from another
    cdigen beside it (cdigen.nri.decision.handover); ``stands_by``: that one has the run directory.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self.metrics = NriMetrics()
        self.book = Book()
        self.events: deque[Event] = deque()
        self.alive_s = time.monotonic()
        self.policy: Policy | None = None
        self.context: DecisionContext | None = None
        self.problem = ""
        self.instance = new_instance()
        self.stands_by = False
        self.tried = threading.Event()
        self.asked = threading.Event()
        self.stopping = threading.Event()
        self.wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._notify = notify

    # For the main thread.

    def set_context(self, context: DecisionContext) -> None:
        """Let the link answer by CONTEXT from now on, the containers that wait for it first."""
        self.policy, self.context = context.policy, context
        self.wake()

    def wake(self) -> None:
        """Wake the link's thread: it reads what has changed, and connects now if it waits to do so."""
        with suppress(OSError):
            os.eventfd_write(self.wakeup, 1)

    # For the link.

    def clear_wakeup(self) -> None:
        """Take note of the wakeup, before looking at what has changed."""
        with suppress(OSError):
            os.eventfd_read(self.wakeup)

    def add_event(self, event: Event) -> None:
        """Leave EVENT; those of the connection itself are few, and none of them is dropped."""
        if len(self.events) < _MAX_EVENTS or isinstance(event, _OF_CONNECTION):
            self.events.append(event)
        self._notify(LINK)

    def request_context(self) -> None:
        """Ask for a context by the host as it is now."""
        self.asked.set()
        self._notify(QUESTION)
