"""``Chassis``: what every long-running process of cdigen needs besides its own loop.

It holds the run directory, handles signals, keeps event sources running, notifies the service manager, and
shuts all of that down again. docs/adding-a-front-end.md shows a whole front end. Nothing heavy is imported
here: the log, HTTP and metrics are modules of their own, for a process that must first answer a peer.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager

from cdigen.frontend.candidate import Candidate
from cdigen.frontend.rundir import LOCK_TIMEOUT_S, RunDirectory
from cdigen.frontend.signals import Overdue
from cdigen.frontend.status import this_process
from cdigen.model.errors import StoreError
from cdigen.store.lock import LockHeld
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
        # Whether another instance had the run directory, for whose end this one has waited, or waits.
        self.stands_by = self.has_stood_by = False
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
    def running(
        self,
        on_refusal: Callable[[StoreError], None] | None = None,
        *,
        stand_by: Callable[[], object] | None = None,
        patience_s: float = LOCK_TIMEOUT_S,
    ) -> Iterator[None]:
        """Handle signals and hold the run directory while the body runs; then shut everything down.

        StoreError if the run directory cannot be used (``LockHeld``: another instance has it, for PATIENCE_S
        and longer), unless ON_REFUSAL handles that: then there is no status. With STAND_BY the other
        instance's end is waited for, and STAND_BY is called meanwhile, to prepare what can be; a process that
        is told to end before has ``is_stopping`` and no run directory.
        """
        self._signals.attach(self._on_signal, give_up=self._give_up)
        with ExitStack() as held:
            held.callback(self.run_directory.leave)
            try:
                self.run_directory.take(timeout_s=patience_s)
                self.has_run_directory = True
            except StoreError as error:
                if stand_by is not None and isinstance(error, LockHeld):
                    self._stand_by(error, stand_by)
                elif on_refusal is None:
                    raise
                else:
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

    def take_over_later(self, error: LockHeld) -> None:
        """Take the run directory as soon as the instance that has it, as ERROR says, ends.

        A trigger of "place" tells of it, and ``has_run_directory``. Meanwhile the caller may be at work.
        """

        def take() -> None:
            self.has_run_directory = True
            self._log.info("takes over", message=f"{error.holder} has ended")
            self.inbox.put(Trigger(source="place", reason="the other instance has ended"))

        self._log.info("stands by", message=f"{error.holder} serves this host", lock=self.run_directory.lock)
        Candidate(self.run_directory, self._log, take).start()

    def _stand_by(self, error: LockHeld, prepare: Callable[[], object]) -> None:
        """Wait until the instance that ERROR names has ended, or this one is told to end."""
        self.stands_by = self.has_stood_by = True
        summary = f"stands by: {error.holder} serves this host"
        self.report(summary)
        self.take_over_later(error)
        prepare()
        beat_s = self._notifier.watchdog_s / 3 or None
        while not self.has_run_directory and not self.is_stopping:
            if self._notifier.watchdog_s:
                self._notifier.ping()
            if self.take_reload():
                self.report(summary)
            self.inbox.wait(beat_s)
            self.inbox.take()
        self.stands_by = False

    def start(self, *sources: Source) -> None:
        """Start SOURCES, which put their triggers into ``inbox``; those that fail are started again."""
        self._supervisor = Supervisor(sources, self.inbox)
        self._supervisor.start()

    def add(self, source: Source) -> None:
        """Start SOURCE beside those that are there."""
        self._supervisor.add(source)

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

    def leave(self) -> None:
        """Let nothing interrupt what the process ends with, until all its time to end is over."""
        self._signals.is_interruptible = False

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

    def save(self, *savings: Callable[[str], object]) -> bool:
        """Let each of SAVINGS, which gets the run directory's path, put its file there; returns if all did.

        ``LockHeld``: another instance has the directory by now; a full disk is logged once.
        """
        if not self.has_run_directory:
            return False
        self.run_directory.keep()
        return self.run_directory.show(*savings)

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
