"""``listen``: receive SIGHUP, SIGTERM and SIGINT from a process's first moment on, whatever it is doing.

Python's own handlers run in the main thread, between two bytecodes: a thread that hangs in a system call
never gets there, and at a high rate handlers interrupt each other until the stack is full. So one thread
receives them: only it leaves them unblocked, and gets each one's number through a pipe
(``signal.set_wakeup_fd``). Not sigwait(3): a signal unblocked for a moment, while a program is started
(``host.childprocess``), would then kill the process.
"""

from __future__ import annotations

import operator
import os
import select
import signal
import threading
import time
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
HEARD = ENDING | {signal.SIGHUP}
# How long work may go on when the daemon has to end. A cycle takes less, unless it waits for NVML (ten
# seconds); unfinished work is as after a kill: the next start sweeps up everything.
FINISH_WITHIN_S = 0.4
# The main thread may hang where no signal interrupts it: a file system that does not answer.
LEAVE_WITHIN_S = 1.6
# A storm of signals wakes the thread at most this often; the pipe holds the others.
_PAUSE_S = 0.01
_PIPE = 1 << 16


class Overdue(BaseException):
    """Ends work that runs when the daemon has to end; not an error, and only the daemon catches it."""


class Signals:
    """The signals SIGHUP, SIGTERM and SIGINT; made by the main thread, once in a process.

    Before ``attach``, SIGTERM and SIGINT end the process at once, and SIGHUP is kept. Afterwards, work during
    which ``is_interruptible`` is set gets an ``Overdue`` after FINISH_WITHIN_S, and after LEAVE_WITHIN_S the
    process exits; a process that answers others may set ``leave_within_s``.
    """

    def __init__(self) -> None:
        self.is_interruptible = False
        self.leave_within_s = LEAVE_WITHIN_S
        self._heard: Callable[[str], None] | None = None
        self._give_up: Callable[[], None] = _nothing
        self._kept: list[str] = []
        self._lock = threading.Lock()
        self._told_s: float | None = None
        self._was_interrupted = False
        self._reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in HEARD:
            # The pipe carries all information, and a C function is not interrupted by a handler.
            signal.signal(number, operator.is_)
        signal.signal(signal.SIGALRM, self._interrupt)
        # Our parent may have blocked them. A thread begins with the mask of its creator.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD | {signal.SIGALRM})
        threading.Thread(target=self._listen, name="signals", daemon=True).start()
        signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)

    def attach(self, heard: Callable[[str], None], *, give_up: Callable[[], None]) -> None:
        """Tell HEARD the name of each signal, from another thread, and call GIVE_UP before a hard end."""
        with self._lock:
            self._heard, self._give_up = heard, give_up
            for name in self._kept:
                heard(name)

    def ignore(self) -> None:
        """Ignore signals during the exit: Python removes its handlers before it has ended."""
        self.is_interruptible = False
        for number in HEARD:
            signal.signal(number, signal.SIG_IGN)

    def _listen(self) -> None:
        poller = select.poll()
        poller.register(self._reading, select.POLLIN)
        while True:
            if poller.poll(self._patience_ms()):
                for number in set(os.read(self._reading, _PIPE)) & HEARD:
                    self._hear(signal.Signals(number))
                time.sleep(_PAUSE_S)
            self._hurry()

    def _hear(self, number: signal.Signals) -> None:
        with self._lock:
            if number in ENDING and self._told_s is None:
                if self._heard is None:
                    # No work has begun.
                    os._exit(0)
                self._told_s = time.monotonic()
            if self._heard is not None:
                self._heard(number.name)
            elif number.name not in self._kept:
                self._kept.append(number.name)

    def _patience_ms(self) -> float | None:
        """Return how long to wait for another signal; None: for ever."""
        if self._told_s is None:
            return None
        limit_s = self.leave_within_s if self._was_interrupted else FINISH_WITHIN_S
        return max(0.0, self._told_s + limit_s - time.monotonic()) * 1000

    def _hurry(self) -> None:
        """Interrupt the main thread, or end the process, if it is time."""
        if self._told_s is None:
            return
        late_s = time.monotonic() - self._told_s
        if not self._was_interrupted and late_s >= FINISH_WITHIN_S:
            self._was_interrupted = True
            main = threading.main_thread().ident
            if main is not None:
                signal.pthread_kill(main, signal.SIGALRM)
        elif late_s >= self.leave_within_s:
            try:
                self._give_up()
            finally:
                os._exit(0)

    def _interrupt(self, _: int, __: object) -> None:
        if self.is_interruptible:
            # Only once: the exit itself follows.
            self.is_interruptible = False
            raise Overdue


@cache
def listen() -> Signals:
    """Return this process's signals, received from the first call on, which the main thread makes."""
    return Signals()


def _nothing() -> None:
    """Do nothing: the default before ``attach``."""
