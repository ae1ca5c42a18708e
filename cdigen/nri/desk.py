"""What the link's thread and the others share: ``Desk``."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress

from cdigen.nri.tally import Tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.known import Known
    from cdigen.nri.news import News

# Of those that nobody has read, the oldest go: what is counted is counted all the same.
_MAX_NEWS = 10_000


class Desk:
    """Where the link gets what it answers by, and leaves word of what it did.

    TELL is called in the link's thread: with True where a question waits for a newer look at the host, with
    False where there is news. ``parts`` counts the parts of the runtime's state in ``news``, of 4 MiB each;
    ``beat_s`` is when the link's thread has turned last, by ``time.monotonic``.
    """

    def __init__(self, tell: Callable[[bool], None], tally: Tally | None = None) -> None:
        self.tally = tally or Tally()
        self.news: deque[News] = deque(maxlen=_MAX_NEWS)
        self.parts = 0
        self.beat_s = time.monotonic()
        self.known: Known | None = None
        self.stopping = threading.Event()
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._tell = tell

    # For the others.

    def give(self, known: Known) -> None:
        """Let the link answer by KNOWN from now on, those who wait for it first."""
        self.known = known
        self.ring()

    def ring(self) -> None:
        """Let the link look what has changed; connect now, if it waits to do so."""
        with suppress(OSError):
            os.eventfd_write(self.bell, 1)

    # For the link.

    def hush(self) -> None:
        """Note that the bell was heard; what it was rung for is looked at afterwards."""
        with suppress(OSError):
            os.eventfd_read(self.bell)

    def report(self, news: News) -> None:
        """Leave NEWS."""
        self.news.append(news)
        self._tell(False)  # noqa: FBT003 - its own signature

    def ask(self) -> None:
        """Ask for a new look at the host."""
        self._tell(True)  # noqa: FBT003 - its own signature
