"""``Daemon``: the loop of ``cdigen run``, which waits for events, runs cycles and reports their results.

The loop has a single thread. Event sources, the HTTP server and a timer for systemd have separate threads.
The loop and these threads share only the trigger queue, and values that are replaced as a whole.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from cdigen import __version__
from cdigen.daemon import log, status
from cdigen.daemon.device_metrics import UnknownCollector, requests_stats
from cdigen.daemon.device_users import MAX_WAITING as MAX_WAITING_FOR_USERS
from cdigen.daemon.health import HealthWatch, NotifyingSource
from cdigen.daemon.metrics import DaemonMetrics
from cdigen.daemon.reconciler import Reconciler, inventories_for_spec
from cdigen.daemon.report import DaemonStatus, next_status, reason_unready
from cdigen.daemon.routes import Routes
from cdigen.daemon.stats import MAX_WAITING, StatsReader
from cdigen.health.marks import FILE as MARKS
from cdigen.health.tracker import HealthTracker
from cdigen.host import mounts
from cdigen.host.root import Root
from cdigen.model.backoff import Backoff
from cdigen.model.errors import CdigenError, ConfigError, StoreError
from cdigen.model.names import SPEC_SUFFIXES
from cdigen.pipeline import discovery
from cdigen.pipeline.device_names import known_devices
from cdigen.service.configuration import ActiveConfiguration
from cdigen.service.http.client import ClientLimits
from cdigen.service.http.routes import Request, Response, standard_routes
from cdigen.service.http.server import HttpServer, local_server
from cdigen.service.metrics import CONTENT_TYPE
from cdigen.service.process.log import log_sources
from cdigen.service.rundir import save_status
from cdigen.service.runner import ServiceRunner
from cdigen.store.lock import LockHeld
from cdigen.value import replace
from cdigen.watch.debounce import Debounce
from cdigen.watch.files import FileSource
from cdigen.watch.kernel_log import LOG, SOCKET, KernelLogSource
from cdigen.watch.poll import PollSource
from cdigen.watch.triggers import Trigger
from cdigen.watch.uevents import UeventSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.daemon.reconciler import CycleOutcome
    from cdigen.daemon.report import CycleReport
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.model.inventory import Inventory
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.service.process.context import ProcessContext
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.watch.supervisor import Source
    from cdigen.watch.triggers import Batch

# Seconds that a scrape waits for stats. The default scrape timeout of Prometheus is 10 s.
SCRAPE_S = 3.0
# Maximum seconds until the daemon reports readiness. A hanging GPU must not delay services that start later.
READY_WITHIN_S = 5.0
SOURCES = (
    "start",
    "signal",
    "files",
    "uevents",
    "poll",
    "http",
    "timer",
    "retry",
    "kernel-log",
    "health",
)


class Daemon:
    """The process that keeps the specs of one host up to date.

    LOAD reads the configuration and the command line, as in ``ActiveConfiguration``.
    """

    def __init__(
        self,
        load: Callable[[bool], DaemonSetup],
        context: ProcessContext,
    ) -> None:
        self._notifier = context.notifier
        self._log = context.log
        self._configuration = ActiveConfiguration(load, context.log)
        # The daemon locks its run directory when it starts, so a changed run_dir needs a restart.
        self._runner = ServiceRunner(
            self._setup.daemon.run_dir,
            context,
            turn_s=lambda: self._setup.daemon.resync_s,
        )
        self._tracker = HealthTracker()
        self._reconciler = Reconciler(self._tracker)
        self._files = FileSource(compare_s=self._setup.daemon.poll_s)
        self._poll = PollSource(interval_s=self._setup.daemon.poll_s)
        self._uevents = UeventSource(())
        self._kernel_log = _kernel_log(self._setup)
        self._health = HealthWatch(
            self._tracker,
            (self._kernel_log, self._uevents),
            show=self._save_changed_health,
            probe_s=lambda: self._setup.health.probe_minutes * 60,
        )
        self._metrics = DaemonMetrics(SOURCES)
        self._stats = StatsReader(self._context)
        self._runner.on_stop = self._stats.close
        self._status = DaemonStatus(
            version=__version__,
            started_s=time.time(),
            since_s=time.time(),
            maintained=self._setup.maintained,
        )
        self._last: CycleReport | None = None
        self._inventories: Mapping[str, Inventory] = {}
        self._devices: tuple[KnownDevice, ...] = ()

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
        runner.save(self._save_status)
        if runner.was_standby:
            self._reload()
        self._rearm()
        runner.start(*self._sources())
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
            discovery.discover(self._setup.vendors, self._context())

    def _sources(self) -> tuple[Source, ...]:
        uevents = NotifyingSource(self._uevents, self._health, is_quiet=False)
        log = NotifyingSource(self._kernel_log, self._health, is_quiet=True)
        received = (uevents, log) if self._setup.health.kernel_log else (uevents,)
        return (self._files, self._poll, *received, self._health, self._server())

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
            self._show(done)
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
            self._log.warning(
                "vendor_defect", vendor=name, message=f"the code of {name} failed: {error.message}"
            )
        return (
            (*setup.roots, *(path for one in wanted for path in one.files)),
            tuple(path for one in wanted for path in one.polled),
            tuple(dict.fromkeys(name for one in wanted for name in one.subsystems)),
        )

    # Results.

    def _show(self, done: CycleOutcome) -> None:
        """Report the result of a cycle in all outputs. A full disk must not end the daemon."""
        report = done.report
        before = replace(
            self._status,
            is_configured=self._configuration.is_valid,
            maintained=self._setup.maintained,
        )
        self._status = next_status(before, report, self._runner.health())
        self._metrics.count(report)
        self._metrics.show(self._status)
        log.cycle(self._log, report, self._last)
        log_sources(self._log, self._status.sources, before.sources)
        self._last = report
        savings: list[Callable[[str], object]] = []
        if done.inventories or report.result != "failed":
            self._show_devices(done.inventories)
            savings.append(self._save_inventory)
        # The inventory is written first. A reader of the new status then finds the inventory of this cycle.
        self._runner.save(*savings, self._save_status)

    def _show_devices(self, inventories: Mapping[str, Inventory]) -> None:
        self._stats.update(inventories)
        if inventories == self._inventories:
            return
        devices = known_devices(inventories, self._setup.options.profiles)
        log.health(self._log, devices, self._devices)
        self._metrics.show_devices(devices)
        self._inventories, self._devices = inventories, devices

    def _save_inventory(self, run_dir: str) -> None:
        """Write the inventories of the last cycle, with the present health, to RUN_DIR."""

        def save(inventories: dict[str, Inventory]) -> None:
            spec_devices = inventories_for_spec(
                inventories, unhealthy_in_spec=self._setup.health.unhealthy_in_spec
            )
            status.save_inventory(run_dir, spec_devices)

        self._tracker.show(save)

    def _save_changed_health(self) -> None:
        """Write the inventories from the health thread. The next cycle reports an error of the disk."""
        if self._runner.run_directory.is_ours():
            with suppress(CdigenError):
                self._save_inventory(self._setup.daemon.run_dir)

    def _save_status(self, run_dir: str) -> None:
        save_status(run_dir, status.document(self._status, self._runner.process))

    def _summary(self) -> str:
        wrong = (one.message for one in self._configuration.findings)
        return "; ".join((f"{self._status.state}: {self._status.verdict}", *wrong))

    def _server(self) -> HttpServer:
        routes = standard_routes(
            metrics=self._metrics.render,
            alive=self._runner.alive,
            ready=lambda: reason_unready(self._status),
        )
        times = self._setup.daemon
        routes["/metrics"] = self._scrape
        further = Routes(
            status=lambda: self._status,
            inventories=self._tracker.present,
            setup=lambda: self._setup,
            stats=self._stats,
            process=self._runner.process,
        )
        routes |= further.routes()
        return local_server(
            routes,
            times.run_dir,
            times.http_port,
            further.port_routes(),
            # One more than the number of routes that may wait for a driver or an engine.
            limits=ClientLimits(running_routes=MAX_WAITING + MAX_WAITING_FOR_USERS + 1),
        )

    def _context(self) -> DiscoveryContext:
        setup = self._setup
        return setup.context(Root(setup.outer))

    def _scrape(self, request: Request) -> Response:
        try:
            is_requested = requests_stats(request.query)
        except UnknownCollector as error:
            return Response(body=f"{error}\n".encode(), status="400 Bad Request")
        is_read = is_requested and self._setup.daemon.device_metrics
        stats = self._stats.read(SCRAPE_S) if is_read else ()
        return Response(body=self._metrics.render(stats), content_type=CONTENT_TYPE)


def _kernel_log(setup: DaemonSetup) -> KernelLogSource:
    """Return the source of the kernel log of the host in SETUP."""
    outer = setup.outer.rstrip("/")
    return KernelLogSource(socket_path=f"{outer}{SOCKET}", log=f"{outer}{LOG}")


def _attempts(before: int, batch: Batch) -> int:
    """Return the number of successive cycles that found the host unsettled.

    BEFORE is the number before the cycle of BATCH. An event in BATCH sets the number to 1, so the next delay
    is short. Dozens of cycles run while a package is installed. The end of the installation often causes no
    event, because only a lock is released. After a short delay, the next cycle finds the end.
    """
    return before + 1 if all(trigger.source == "retry" for trigger in batch.triggers) else 1
