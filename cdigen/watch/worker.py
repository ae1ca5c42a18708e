"""``Worker``: a thread for a source. The thread can be stopped, and reports an unexpected end of its work."""

from __future__ import annotations

import threading
from errno import EAGAIN, EBUSY

from cdigen.host.root import reason
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds to wait for the end of a thread. Threads end in milliseconds. A thread that hangs in a system call
# is abandoned. Three sources may hang at the same time, and the daemon has 2 s to end.
JOIN_S = 0.5


class Worker:
    """A single thread at a time. If the thread hangs, ``stop`` abandons it, and ``start`` fails."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._fault = ""
        self._has_ended = False
        self.stopping = threading.Event()

    def start(self, work: Callable[[], None], put: Callable[[Trigger], None]) -> None:
        """Run WORK, which ends soon after ``stopping`` is set; call PUT immediately if WORK ends before that.

        An OSError of WORK is kept for ``problem``. Any other exception is a defect, and Python prints it.
        Raises OSError if the previous thread has not ended yet, or if no new thread can be started.
        """
        if self._thread is not None and self._thread.is_alive():
            raise OSError(EBUSY, "the previous thread still hangs")
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
            # The thread still runs for a moment after ``put``. ``problem`` may be called in this moment.
            self._has_ended = True
            if not self.stopping.is_set():
                put(Trigger(source=self._name, reason="stopped unexpectedly"))

    def stop(self, within_s: float = JOIN_S) -> None:
        """Set ``stopping``, and wait at most WITHIN_S seconds for the end of the thread."""
        self.stopping.set()
        if self._thread is not None:
            self._thread.join(within_s)
            if not self._thread.is_alive():
                self._thread = None

    def is_running(self) -> bool:
        """Return whether the thread runs."""
        return self._thread is not None and self._thread.is_alive() and not self._has_ended

    def problem(self) -> str:
        """Return the reason why the thread has ended without ``stop``, or ""."""
        if self._thread is None or self.stopping.is_set():
            return ""
        if self._thread.is_alive() and not self._has_ended:
            return ""
        return f"the source's thread has ended: {self._fault or 'killed'}"
