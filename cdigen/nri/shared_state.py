"""What the link's thread and the others share: ``SharedState``."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress

from cdigen.nri.counters import NriMetrics
from cdigen.nri.events import ConnectionLost, PluginActive, RuntimeConfigured
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.decision.policy import Policy
    from cdigen.nri.events import Event, Synchronized

# Of containers no more are told than so many before somebody reads: they are counted all the same.
_MAX_EVENTS = 10_000
# What TELL is told.
QUESTION, STATE, LINK = "question", "state", "link"
# So many parts of the runtime's state are held at a time. One is looked at in 0.1 s, and a node with 5,000
# pods has four. After the last the runtime may ask, and its question waits as well.
_PARTS = 1
_LAST_S = 0.3


class SharedState:
    """Where the link gets what it answers by, and leaves word of what it did.

    TELL is called in the link's thread: with QUESTION where one waits for a newer look at the host, with
    STATE where the runtime tells its state, in parts of 4 MiB, and with LINK where there is other news.
    ``policy`` says whose wishes count, ``known`` which devices they mean; ``problem``, where it is not empty,
    why whoever asks is refused. ``tried`` is set as soon as the first attempt has led somewhere: to a runtime
    that has introduced itself, or not. ``alive_s`` is when the link's thread has turned last
    (time.monotonic).
    """

    def __init__(self, tell: Callable[[str], None], tally: NriMetrics | None = None) -> None:
        self.tally = tally or NriMetrics()
        self.news: deque[Event] = deque()
        self.alive_s = time.monotonic()
        self.policy: Policy | None = None
        self.known: DecisionContext | None = None
        self.problem = ""
        self.tried = threading.Event()
        self.stopping = threading.Event()
        self.wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._tell = tell
        self._room = threading.BoundedSemaphore(_PARTS)
        self._room_until_s = 0.0

    # For the others.

    def give(self, known: DecisionContext) -> None:
        """Let the link answer by KNOWN from now on, those who wait for it first."""
        self.policy, self.known = known.policy, known
        self.ring()

    def ring(self) -> None:
        """Let the link look what has changed; connect now, if it waits to do so."""
        with suppress(OSError):
            os.eventfd_write(self.wakeup, 1)

    # For the link.

    def clear_wakeup(self) -> None:
        """Note that the wakeup was heard; what it was rung for is looked at afterwards."""
        with suppress(OSError):
            os.eventfd_read(self.wakeup)

    def report(self, news: Event) -> None:
        """Leave NEWS; those of the runtime itself are never too many, and each counts."""
        if len(self.news) < _MAX_EVENTS or isinstance(
            news, RuntimeConfigured | PluginActive | ConnectionLost
        ):
            self.news.append(news)
        self._tell(LINK)

    def survey(self, news: Synchronized, *, within_s: float) -> None:
        """Leave a part of the runtime's state, after waiting a while until the one before was looked at.

        After WITHIN_S for all of them it is left without its content; not so the last, of which there is one.
        """
        if news.is_first:
            self._room_until_s = time.monotonic() + within_s
        wait_s = _LAST_S if news.is_last else self._room_until_s - time.monotonic()
        has_room = self._room.acquire(timeout=max(0.0, wait_s))
        self.news.append(news if has_room or news.is_last else replace(news, part=None))
        self._tell(STATE)

    def part_done(self, news: Synchronized) -> None:
        """Note that a part was looked at."""
        # ValueError: a last part had no room of its own.
        if news.part is not None:
            with suppress(ValueError):
                self._room.release()

    def ask(self) -> None:
        """Ask for a new look at the host."""
        self._tell(QUESTION)
