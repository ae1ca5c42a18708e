"""``Worker``: the thread of a source, which can be stopped, and which reports an unexpected end."""

from __future__ import annotations

import threading
from errno import EAGAIN, EBUSY

from cdigen.host.root import reason
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Threads end in milliseconds; one that hangs in a system call is left behind. Three sources may hang
# at once, and the daemon has 2 s to end.
JOIN_S = 0.5


class Worker:
    """One thread at a time; the daemon never waits for a hanging thread, and never starts a second one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._fault = ""
        self._has_ended = False
        self.stopping = threading.Event()

    def start(self, work: Callable[[], None], put: Callable[[Trigger], None]) -> None:
        """Run WORK, which ends soon after ``stopping`` is set; call PUT at once if it ends before.

        An OSError of WORK is kept for ``problem``; any other exception is a defect, and Python shows it.
        OSError: the last thread has not ended yet, or no new one can be started.
        """
        if self._thread is not None and self._thread.is_alive():
            raise OSError(EBUSY, "its last thread still hangs")
        self.stopping.clear()
        self._fault, self._has_ended = "", False
        thread = threading.Thread(
            target=self._run, args=(work, put), name=f"cdigen-{self._name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise OSError(EAGAIN, f"no thread can be started ({error})") from error
        self._thread = thread

    def _run(self, work: Callable[[], None], put: Callable[[Trigger], None]) -> None:
        try:
            work()
        except OSError as error:
            self._fault = reason(error)
        finally:
            # The thread lives for a moment after reporting its end, when it is asked for the reason.
            self._has_ended = True
            if not self.stopping.is_set():
                put(Trigger(source=self._name, reason="stopped by itself"))

    def stop(self, within_s: float = JOIN_S) -> None:
        """Set ``stopping`` and wait for the end, for WITHIN_S at most."""
        self.stopping.set()
        if self._thread is not None:
            self._thread.join(within_s)
            if not self._thread.is_alive():
                self._thread = None

    def is_running(self) -> bool:
        """Return whether the thread runs."""
        return self._thread is not None and self._thread.is_alive() and not self._has_ended

    def problem(self) -> str:
        """Return why the thread has ended by itself, if it has."""
        if self._thread is None or self.stopping.is_set():
            return ""
        if self._thread.is_alive() and not self._has_ended:
            return ""
        return f"its thread has ended: {self._fault or 'killed'}"
