"""``ServiceRunner``: the parts that all long-running processes of cdigen share. Each process has a loop.

``ServiceRunner`` holds the run directory, handles signals, keeps event sources running, notifies the service
manager, and shuts everything down. docs/contributing/adding-a-service.md has a complete service. This module
imports no slow module, because some processes must first respond to a peer. Therefore the log, HTTP and
metrics are separate modules.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager

from cdigen.model.errors import StoreError
from cdigen.service.process.sd_notify import Watchdog
from cdigen.service.process.signals import ShutdownTimeout
from cdigen.service.rundir import LOCK_TIMEOUT_S, RunDirectory
from cdigen.service.status import this_process
from cdigen.store.lock import LockHeld
from cdigen.watch.supervisor import Source, Supervisor
from cdigen.watch.triggers import Trigger, TriggerQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.service.process.context import ProcessContext
    from cdigen.watch.triggers import Batch, Debounce

# Maximum seconds of one iteration of the loop (a turn).
TURN_S = 60.0


class ServiceRunner:
    """The parts of the process CONTEXT with the run directory RUN_DIR; the caller implements the loop.

    A turn is one iteration of the loop. TURN_S returns the maximum seconds that a turn may wait. ALIVE
    returns the reason why the process does not work, or ""; by default, a process works if its loop runs. The
    caller may set ``on_stop``, which is called in the thread of the signals when the process must end.
    """

    def __init__(
        self,
        run_dir: str,
        context: ProcessContext,
        *,
        turn_s: Callable[[], float] = lambda: TURN_S,
        alive: Callable[[], str] | None = None,
    ) -> None:
        self.triggers = TriggerQueue()
        self.run_directory = RunDirectory(run_dir, context.log)
        self.has_run_directory = False
        self.process = this_process()
        self.is_stopping = False
        # Whether this instance waits for another instance now, and whether it has waited.
        self.is_standby = self.was_standby = False
        self.on_stop: Callable[[], object] | None = None
        self._notifier = context.notifier
        self._log = context.log
        self._signals = context.signals
        self._watchdog = Watchdog(context.notifier, turn_s, alive)
        self._supervisor = Supervisor((), self.triggers)
        self._is_reloading = False

    @contextmanager
    def running(
        self,
        on_refusal: Callable[[StoreError], None] | None = None,
        *,
        on_standby: Callable[[], object] | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> Iterator[None]:
        """Handle signals and hold the run directory during the ``with`` body; then shut everything down.

        Raises StoreError if the run directory cannot be used, and ``LockHeld`` if another instance still
        holds the directory after LOCK_TIMEOUT_S. If ON_REFUSAL is set, it is called with the error instead,
        and no status is written. If ON_STANDBY is set, the process calls ON_STANDBY to prepare, and waits
        until the other instance ends. If the process must end during this wait, ``is_stopping`` is set, and
        the process has no run directory.
        """
        self._signals.attach(self._on_signal, give_up=self._give_up)
        with ExitStack() as held:
            held.callback(self.run_directory.leave)
            try:
                self.run_directory.take(timeout_s=lock_timeout_s)
                self.has_run_directory = True
            except StoreError as error:
                if on_standby is not None and isinstance(error, LockHeld):
                    self._stand_by(error, on_standby)
                elif on_refusal is None:
                    raise
                else:
                    on_refusal(error)
            try:
                self._signals.is_interruptible = True
                yield
                self._signals.is_interruptible = False
            except ShutdownTimeout:
                self._give_up()
            finally:
                self._signals.is_interruptible = False
                self._notifier.stopping()
                if self.has_run_directory:
                    self.run_directory.remove_status()
                self._supervisor.stop()
                self._log.info("stopped")

    def wait_on_standby(self, error: LockHeld) -> None:
        """Start to wait for the end of the instance in ERROR; return immediately.

        When that instance has ended, this instance has the run directory. ``has_run_directory`` is then set,
        and ``triggers`` gets a trigger of the source "standby".
        """

        def take() -> None:
            self.has_run_directory = True
            self._log.info("active", message=f"{error.holder} has ended; this instance takes over")
            self.triggers.put(Trigger(source="standby", reason="the other instance has ended"))

        message = f"{error.holder} serves this host; this instance waits until the other instance ends"
        self._log.info("standby", message=message, lock=self.run_directory.lock)
        self.run_directory.take_later(take)

    def _stand_by(self, error: LockHeld, prepare: Callable[[], object]) -> None:
        """Wait until the instance in ERROR ends, or until this instance must end; call PREPARE first."""
        self.is_standby = self.was_standby = True
        summary = f"on standby: {error.holder} serves this host"
        self.report(summary)
        self.wait_on_standby(error)
        prepare()
        ping_interval_s = self._notifier.watchdog_s / 3 or None
        while not self.has_run_directory and not self.is_stopping:
            if self._notifier.watchdog_s:
                self._notifier.ping()
            if self.take_reload():
                self.report(summary)
            self.triggers.wait(ping_interval_s)
            self.triggers.take()
        self.is_standby = False

    def start(self, *sources: Source) -> None:
        """Start SOURCES, which put their triggers into ``triggers``. Failed sources are restarted."""
        self._supervisor = Supervisor(sources, self.triggers)
        self._supervisor.start()

    def add(self, source: Source) -> None:
        """Start SOURCE in addition to the present sources."""
        self._supervisor.add(source)

    def health(self) -> dict[str, str]:
        """Return the problem of each source by its name; a source that works has the problem ""."""
        return self._supervisor.health()

    def wait(self, until_s: float) -> bool:
        """Wait until UNTIL_S (time.monotonic) at most; return whether ``triggers`` has a trigger."""
        now = self._watchdog.turn()
        wake_s = min(until_s, self._supervisor.tick(), now + self._watchdog.interval_s)
        return self.triggers.wait(max(0.0, wake_s - now))

    def gather(self, debounce: Debounce) -> Batch:
        """Return all events after a quiet period, or when the first event is old enough."""
        while not self.is_stopping:
            pending = self.triggers.peek()
            left_s = debounce.due(pending.first_s, pending.last_s) - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(left_s, 0.1))
            self._watchdog.turn()
        return self.triggers.take()

    def alive(self) -> str:
        """Return the reason why the process does not work, or ""."""
        return self._watchdog.problem()

    def stop(self) -> None:
        """Request the end of the process, as a signal does."""
        self.is_stopping = True

    def leave(self) -> None:
        """Prevent the interruption of the work until the exit. The time limit for the exit still applies."""
        self._signals.is_interruptible = False

    def take_reload(self) -> bool:
        """Return whether SIGHUP was received since the last call; if so, notify the service manager."""
        # The flag is reset first, so a signal during the notification causes another reload.
        is_reloading, self._is_reloading = self._is_reloading, False
        if is_reloading:
            self._notifier.reloading()
        return is_reloading

    def report(self, summary: str) -> None:
        """Report SUMMARY, a single line, to the service manager; report READY after start and reload."""
        self._notifier.report(summary)

    def save(self, *savings: Callable[[str], object]) -> bool:
        """Call each of SAVINGS with the run directory's path; return whether all have written their files.

        Raises ``LockHeld`` if another instance holds the directory. A full disk is logged once.
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
        self.triggers.put(Trigger(source="signal", reason=name))

    def _give_up(self) -> None:
        self._log.warning("shutdown_timeout", message="the process ended before its work was finished")
