"""``listen``: receives SIGHUP, SIGTERM and SIGINT at any time, even if the main thread hangs.

Python's own handlers run in the main thread, between two bytecodes. A thread that hangs in a system call
never runs them. If signals arrive fast, handlers interrupt each other until the stack is full. So a separate
thread receives the signals. Only that thread unblocks the signals, and it reads their numbers from a pipe
(``signal.set_wakeup_fd``). The thread does not use sigwait(3), because the start of a program unblocks
signals for a moment (``host.childprocess``). A signal at that moment would kill the process.
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
HANDLED = ENDING | {signal.SIGHUP}
# Seconds that work may continue when the daemon must end. A cycle takes less time if it does not wait for
# NVML (ten seconds). The next start removes the temporary files of unfinished work, as after SIGKILL.
FINISH_WITHIN_S = 0.4
# Seconds until the exit. The main thread may hang where no signal interrupts it, such as in a file system
# that does not respond.
LEAVE_WITHIN_S = 1.6
# Seconds between two reads of the pipe. The pipe holds all further signals.
_PAUSE_S = 0.01
_PIPE = 1 << 16


class ShutdownTimeout(BaseException):
    """The exception that ends running work when the daemon must end.

    It is not an error. Only ``ServiceRunner`` catches it.
    """


class Signals:
    """The signals SIGHUP, SIGTERM and SIGINT. The main thread creates this object once in a process.

    Before ``attach``, SIGTERM and SIGINT end the process immediately, and SIGHUP is kept. After ``attach``,
    the running work gets a ``ShutdownTimeout`` after FINISH_WITHIN_S if ``is_interruptible`` is set. After
    LEAVE_WITHIN_S, the process exits. A process that responds to peers may set ``leave_within_s``.
    """

    def __init__(self) -> None:
        self.is_interruptible = False
        self.leave_within_s = LEAVE_WITHIN_S
        self._on_signal: Callable[[str], None] | None = None
        self._give_up: Callable[[], object] = bool
        self._kept: list[str] = []
        self._lock = threading.Lock()
        self._ending_since_s: float | None = None
        self._was_interrupted = False
        self._reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in HANDLED:
            # The handler does nothing, because the pipe has all information. It is a C function, which other
            # handlers do not interrupt.
            signal.signal(number, operator.is_)
        signal.signal(signal.SIGALRM, self._interrupt)
        # The parent may have blocked the signals. A thread inherits the mask of its creator.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED | {signal.SIGALRM})
        threading.Thread(target=self._listen, name="signals", daemon=True).start()
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)

    def attach(self, on_signal: Callable[[str], None], *, give_up: Callable[[], object]) -> None:
        """Call ON_SIGNAL in another thread with the name of each signal, and GIVE_UP before a forced exit."""
        with self._lock:
            self._on_signal, self._give_up = on_signal, give_up
            for name in self._kept:
                on_signal(name)

    def ignore(self) -> None:
        """Ignore signals during the exit, because Python removes its handlers before the process ends."""
        self.is_interruptible = False
        for number in HANDLED:
            signal.signal(number, signal.SIG_IGN)

    def _listen(self) -> None:
        poller = select.poll()
        poller.register(self._reading, select.POLLIN)
        while True:
            if poller.poll(self._timeout_ms()):
                for number in set(os.read(self._reading, _PIPE)) & HANDLED:
                    self._receive(signal.Signals(number))
                time.sleep(_PAUSE_S)
            self._hurry()

    def _receive(self, number: signal.Signals) -> None:
        with self._lock:
            if number in ENDING and self._ending_since_s is None:
                if self._on_signal is None:
                    # No work has begun.
                    os._exit(0)
                self._ending_since_s = time.monotonic()
            if self._on_signal is not None:
                self._on_signal(number.name)
            elif number.name not in self._kept:
                self._kept.append(number.name)

    def _timeout_ms(self) -> float | None:
        """Return the milliseconds to wait for another signal, None for no limit."""
        if self._ending_since_s is None:
            return None
        limit_s = self.leave_within_s if self._was_interrupted else FINISH_WITHIN_S
        return max(0.0, self._ending_since_s + limit_s - time.monotonic()) * 1000

    def _hurry(self) -> None:
        """Interrupt the main thread after FINISH_WITHIN_S, and end the process after ``leave_within_s``."""
        if self._ending_since_s is None:
            return
        late_s = time.monotonic() - self._ending_since_s
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
            # Interrupt only once, because the exit follows.
            self.is_interruptible = False
            raise ShutdownTimeout


@cache
def listen() -> Signals:
    """Return the ``Signals`` of this process. The main thread must make the first call."""
    return Signals()
