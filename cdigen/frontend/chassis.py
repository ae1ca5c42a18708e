"""``Chassis``: what every long-running process of cdigen needs besides its own loop.

It holds the run directory, handles signals, keeps event sources running, notifies the service manager, and
shuts all of that down again. docs/adding-a-front-end.md shows a whole front end. Nothing heavy is imported
here: the log, HTTP and metrics are modules of their own, for a process that must first answer a peer.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager

from cdigen.frontend.rundir import RunDirectory
from cdigen.frontend.signals import Overdue
from cdigen.frontend.status import this_process
from cdigen.model.errors import StoreError
from cdigen.watch.supervisor import Source, Supervisor
from cdigen.watch.triggers import Inbox, Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.frontend.rundir import Logger
    from cdigen.frontend.sd_notify import Notifier
    from cdigen.frontend.signals import Signals
    from cdigen.watch.debounce import Debounce
    from cdigen.watch.triggers import Batch

# How often the loop turns at least, unless the service manager asks for more.
TURN_S = 60.0


class Chassis:
    """The frame of one process, with the run directory RUN_DIR; its loop is the caller's.

    TURN_S says how long a turn of the loop may take without anything to do. Two attributes may be set before
    ``running``: ``on_stop`` is called in the signals' thread as soon as the process is told to end; ``alive``
    returns why this process does not work, "" while it does: only then is the service manager's watchdog
    notified; by default, whether the loop turns.
    """

    def __init__(
        self,
        run_dir: str,
        *,
        notifier: Notifier,
        logger: Logger,
        signals: Signals,
        turn_s: Callable[[], float] = lambda: TURN_S,
    ) -> None:
        self.inbox = Inbox()
        self.run_directory = RunDirectory(run_dir, logger)
        self.has_run_directory = False
        self.process = this_process()
        self.is_stopping = False
        self.alive: Callable[[], str] = self._is_turning
        self.on_stop: Callable[[], object] | None = None
        self._notifier = notifier
        self._log = logger
        self._signals = signals
        self._turn_s = turn_s
        self._supervisor = Supervisor((), self.inbox)
        self._is_reloading = False
        # Whether the service manager still has to be told that we are ready, or have reloaded.
        self._is_awaited = True
        self._turned_s = time.monotonic()

    @contextmanager
    def running(self, on_refusal: Callable[[StoreError], None] | None = None) -> Iterator[None]:
        """Handle signals and hold the run directory while the body runs; then shut everything down.

        StoreError if the run directory cannot be used (``LockHeld``: another instance has it), unless
        ON_REFUSAL handles that: then there is no status.
        """
        self._signals.attach(self._on_signal, give_up=self._give_up)
        with ExitStack() as held:
            try:
                held.enter_context(self.run_directory.taken())
                self.has_run_directory = True
            except StoreError as error:
                if on_refusal is None:
                    raise
                on_refusal(error)
            try:
                self._signals.is_interruptible = True
                yield
                self._signals.is_interruptible = False
            except Overdue:
                self._give_up()
            finally:
                self._signals.is_interruptible = False
                self._notifier.stopping()
                if self.has_run_directory:
                    self.run_directory.remove_status()
                self._supervisor.stop()
                self._log.info("stopped")

    def start(self, *sources: Source) -> None:
        """Start SOURCES, which put their triggers into ``inbox``; those that fail are started again."""
        self._supervisor = Supervisor(sources, self.inbox)
        self._supervisor.start()

    def health(self) -> dict[str, str]:
        """Return the problem of each source by its name; empty: none."""
        return self._supervisor.health()

    def wait(self, until_s: float) -> bool:
        """Wait until UNTIL_S (time.monotonic) at most; returns whether a trigger is in ``inbox``."""
        self.turn()
        now = self._turned_s
        wake_s = min(until_s, self._supervisor.tick(), now + self._beat_s())
        return self.inbox.wait(max(0.0, wake_s - now))

    def gather(self, debounce: Debounce) -> Batch:
        """Wait until no event has come for a while, or the first is old enough; returns what has come."""
        while not self.is_stopping:
            pending = self.inbox.peek()
            left_s = debounce.due(pending.first_s, pending.last_s) - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(left_s, 0.1))
            self.turn()
        return self.inbox.take()

    def turn(self) -> None:
        """Note that the loop turns, and notify the service manager's watchdog."""
        self._turned_s = time.monotonic()
        if self._notifier.watchdog_s and not self.alive():
            self._notifier.ping()

    def stop(self) -> None:
        """Let the process end, without a signal."""
        self.is_stopping = True

    def take_reload(self) -> bool:
        """Return whether SIGHUP has come since the last call, and tell the service manager of the reload."""
        # Before notifying: a signal that comes during that asks for another reload.
        is_reloading, self._is_reloading = self._is_reloading, False
        if is_reloading:
            self._is_awaited = True
            self._notifier.reloading()
        return is_reloading

    def report(self, summary: str) -> None:
        """Tell the service manager SUMMARY, one line; at first and after a reload, also that it is ready."""
        if self._is_awaited:
            self._is_awaited = False
            self._notifier.ready(summary)
        else:
            self._notifier.status(summary)

    def save(self, *savings: Callable[[str], object]) -> None:
        """Let each of SAVINGS, which gets the run directory's path, put its file there.

        ``LockHeld``: another instance has the directory by now; a full disk is logged once.
        """
        if self.has_run_directory:
            self.run_directory.keep()
            self.run_directory.show(*savings)

    def _on_signal(self, name: str) -> None:
        if name == "SIGHUP":
            self._is_reloading = True
        else:
            self.is_stopping = True
            if self.on_stop is not None:
                self.on_stop()
        self.inbox.put(Trigger(source="signal", reason=name))

    def _give_up(self) -> None:
        self._log.warning("gave up", message="it was still at work when it had to stop")

    def _beat_s(self) -> float:
        return self._notifier.watchdog_s / 3 if self._notifier.watchdog_s else self._turn_s()

    def _is_turning(self) -> str:
        silent_s = time.monotonic() - self._turned_s
        limit_s = max(60.0, 2 * self._beat_s())
        return f"the loop has not turned for {silent_s:.0f} s" if silent_s > limit_s else ""
