"""``Daemon``: the loop of ``cdigen run``, which waits for events, runs cycles and reports their results.

The loop has a single thread. Event sources, the HTTP server and a timer for systemd have separate threads.
The loop and these threads share only the trigger queue, and values that are replaced as a whole.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from cdigen import __version__
from cdigen.daemon.cycle.reconciler import Reconciler
from cdigen.daemon.health import HealthWatch, NotifyingSource
from cdigen.daemon.outputs import DaemonOutputs
from cdigen.health.marks import FILE as MARKS
from cdigen.health.tracker import HealthTracker
from cdigen.host import mounts
from cdigen.host.root import Root
from cdigen.model.errors import CdigenError, ConfigError, StoreError
from cdigen.model.names import SPEC_SUFFIXES
from cdigen.model.times.backoff import Backoff
from cdigen.pipeline import discovery
from cdigen.service.configuration import ActiveConfiguration
from cdigen.service.runner import ServiceRunner
from cdigen.store.lock import LockHeld
from cdigen.value import replace
from cdigen.vendors import registry
from cdigen.watch.files import FileSource
from cdigen.watch.kernel_log import LOG, SOCKET, KernelLogSource
from cdigen.watch.poll import PollSource
from cdigen.watch.triggers import Debounce, Trigger
from cdigen.watch.uevents import UeventSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.daemon.cycle.reconciler import CycleOutcome
    from cdigen.daemon.outputs import FurtherRoutes, RouteSources
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.service.process.context import ProcessContext
    from cdigen.watch.supervisor import Source
    from cdigen.watch.triggers import Batch

# Maximum seconds until the daemon reports readiness. A hanging GPU must not delay services that start later.
READY_WITHIN_S = 5.0


class Daemon:
    """The process that keeps the specs of one host up to date.

    LOAD reads the configuration and the command line, as in ``ActiveConfiguration``. FURTHER_ROUTES returns
    the routes of the page.
    """

    def __init__(
        self,
        load: Callable[[bool], DaemonSetup],
        context: ProcessContext,
        further_routes: Callable[[RouteSources], FurtherRoutes],
    ) -> None:
        self._notifier = context.notifier
        self._log = context.log
        self._configuration = ActiveConfiguration(load, context.log)
        # The daemon locks its run directory when it starts, so a changed run_dir needs a restart.
        run_dir = self._setup.daemon.run_dir
        self._runner = ServiceRunner(run_dir, context, turn_s=lambda: self._setup.daemon.resync_s)
        self._tracker = HealthTracker()
        self._reconciler = Reconciler(self._tracker)
        self._outputs = DaemonOutputs(
            lambda: self._setup, self._tracker, self._runner, self._log, further_routes
        )
        self._files = FileSource(compare_s=self._setup.daemon.poll_s)
        self._poll = PollSource(interval_s=self._setup.daemon.poll_s)
        self._uevents = UeventSource(())
        self._kernel_log = _kernel_log(self._setup)
        self._health = HealthWatch(
            self._tracker,
            (self._kernel_log, self._uevents),
            show=self._outputs.save_changed_health,
            probe_s=lambda: self._setup.health.probe_minutes * 60,
        )

    def run(self, *, standby: bool = False) -> None:
        """Run until SIGTERM or SIGINT. With STANDBY, first wait until the active instance has ended.

        Raises StoreError if another instance runs, or if the run directory cannot be created.
        """
        # The timer starts before any call that may hang.
        ready_timer = threading.Timer(READY_WITHIN_S, self._report_ready)
        ready_timer.daemon = True
        ready_timer.start()
        runner = self._runner
        try:
            with runner.running(on_standby=self._prepare if standby else None):
                if not runner.is_stopping:
                    self._serve(ready_timer)
        except LockHeld:
            raise
        except StoreError as error:
            raise self._explained(error) from None
        finally:
            ready_timer.cancel()
            self._tracker.close()

    def _serve(self, ready_timer: threading.Timer) -> None:
        runner = self._runner
        # Replace the status of a killed daemon at once, because the first cycle may take long.
        runner.save(self._outputs.save_status)
        if runner.was_standby:
            self._reload()
        self._rearm()
        runner.start(*self._sources(), self._outputs.server())
        self._log.info("started", version=__version__, vendors=list(self._setup.vendors))
        runner.triggers.put(Trigger(source="start", reason="the daemon has started"))
        self._loop(ready_timer)

    def _explained(self, error: StoreError) -> StoreError:
        """Return ERROR, with the hint for a read-only mount if the run directory is on such a mount."""
        found = mounts.findings(self._setup.outer, (self._setup.daemon.run_dir,))
        hints = [one.hint for one in found if one.rule == mounts.READ_ONLY]
        return StoreError(error.message, hint=hints[0]) if hints else error

    def _report_ready(self) -> None:
        if not self._runner.is_standby:
            self._notifier.ready("the first cycle is running")

    def _prepare(self) -> None:
        """Run a discovery and discard its result. The discovery imports the modules that a cycle needs."""
        with suppress(CdigenError):  # the driver container does not exist yet
            discovery.discover(self._setup.vendors, self._setup.context(Root(self._setup.outer)))

    def _sources(self) -> tuple[Source, ...]:
        uevents = NotifyingSource(self._uevents, self._health, is_quiet=False)
        log = NotifyingSource(self._kernel_log, self._health, is_quiet=True)
        received = (uevents, log) if self._setup.health.kernel_log else (uevents,)
        return (self._files, self._poll, *received, self._health)

    # The loop.

    def _loop(self, ready_timer: threading.Timer) -> None:
        attempts = 0
        next_cycle_s = time.monotonic()
        while not self._runner.is_stopping:
            batch = self._wait(next_cycle_s, source="retry" if attempts else "timer")
            if batch is None:
                continue
            self._runner.run_directory.keep()
            self._reload()
            # Watch new paths first. Then a change during the cycle, even by the cycle, causes another cycle.
            self._rearm()
            done = self._run_cycle(batch)
            self._outputs.show(done, is_configured=self._configuration.is_valid)
            ready_timer.cancel()
            self._runner.report(self._summary())
            attempts = _attempts(attempts, batch) if done.needs_retry else 0
            next_cycle_s = time.monotonic() + self._delay_s(attempts)

    def _run_cycle(self, batch: Batch) -> CycleOutcome:
        """Run a cycle for BATCH, and add the problem of an invalid configuration to the report."""
        done = self._reconciler.cycle(self._setup, batch)
        # The health thread may have a new reason for a probe, or a new cause to clear after some time.
        self._health.wake()
        findings = (*self._configuration.findings, *done.report.findings)
        return replace(done, report=replace(done.report, findings=findings))

    def _wait(self, next_cycle_s: float, *, source: str) -> Batch | None:
        """Wait for events until NEXT_CYCLE_S, and debounce the events; return None if no cycle is due.

        SOURCE is the source of the trigger if the cycle is due without an event.
        """
        runner, times = self._runner, self._setup.daemon
        if runner.wait(next_cycle_s):
            batch = runner.gather(Debounce(debounce_s=times.debounce_s, max_delay_s=times.max_delay_s))
            return None if runner.is_stopping else batch
        if runner.is_stopping or time.monotonic() < next_cycle_s:
            return None
        runner.triggers.put(Trigger(source=source, reason="cycle without an event"))
        return runner.triggers.take()

    def _delay_s(self, attempts: int) -> float:
        times = self._setup.daemon
        if not attempts:
            return times.resync_s
        backoff = Backoff(first_s=times.backoff_min_s, factor=1.5, most_s=times.backoff_max_s)
        return backoff.delay(attempts - 1)

    # Configuration.

    @property
    def _setup(self) -> DaemonSetup:
        return self._configuration.current

    def _reload(self) -> None:
        """Read the configuration again, even if its file is unchanged, because links may have changed."""
        self._runner.take_reload()
        self._configuration.refresh(is_reload=True)

    def _rearm(self) -> None:
        setup = self._setup
        files, polled, subsystems = self._watches()
        # Watch the files that runtimes load. Temporary files of cdigen in these folders have another suffix.
        specs = (f"{folder}/*{suffix}" for folder in setup.directories for suffix in SPEC_SUFFIXES)
        marks = f"{setup.state_dir}/{MARKS}"
        own = (setup.outer,) if setup.outer != "/" else ()
        # Links in a driver container's tree are resolved within that tree.
        self._files.rearm(
            (*files, *specs, marks, *self._configuration.watched, self._runner.run_directory.lock),
            roots=(*own, *setup.roots),
        )
        # A mount over a folder causes no event, so the roots of driver containers are also polled.
        self._poll.rearm(polled, setup.roots)
        self._uevents.rearm(subsystems)

    def _watches(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Return the watched files, the polled files and the subsystems of all vendors."""
        setup = self._setup
        try:
            context = setup.context(Root(setup.outer))
        except ConfigError:
            # The driver root does not exist yet, so its creation is watched.
            return setup.roots, (), ("pci", "module", "drm")
        wanted, failures = discovery.watches(setup.vendors, context)
        for name, error in failures.items():
            self._log.warning("vendor_defect", vendor=name, message=error.message)
        return (
            (*setup.roots, *(path for one in wanted for path in one.files)),
            tuple(path for one in wanted for path in one.polled),
            tuple(dict.fromkeys(name for one in wanted for name in one.subsystems)),
        )

    def _summary(self) -> str:
        return "; ".join((self._outputs.summary, *(one.message for one in self._configuration.findings)))


def _kernel_log(setup: DaemonSetup) -> KernelLogSource:
    """Return the source of the kernel log of the host in SETUP."""
    outer = setup.outer.rstrip("/")
    added = (registry.load(name) for name in setup.vendors if name not in registry.VENDORS)
    drivers = tuple(module for vendor in added for module in vendor.MODULES)
    return KernelLogSource(socket_path=f"{outer}{SOCKET}", log=f"{outer}{LOG}", drivers=drivers)


def _attempts(before: int, batch: Batch) -> int:
    """Return the number of successive cycles that found the host unsettled.

    BEFORE is the number before the cycle of BATCH. An event in BATCH sets the number to 1, so the next delay
    is short. Dozens of cycles run while a package is installed. The end of the installation often causes no
    event, because only a lock is released. After a short delay, the next cycle finds the end.
    """
    return before + 1 if all(trigger.source == "retry" for trigger in batch.triggers) else 1
