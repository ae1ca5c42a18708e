"""``Daemon``: the loop of ``cdigen run``: wait for events, debounce them, reconcile, report, and again.

One thread does all of this; sources of events, the HTTP server and a timer for systemd have their own and
share with it only the inbox and values that are replaced as a whole.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from cdigen import __version__
from cdigen.config import RULE
from cdigen.daemon import log, status
from cdigen.daemon.figure_metrics import UnknownCollector, wants_figures
from cdigen.daemon.figures import MAX_WAITING, FiguresOnDemand
from cdigen.daemon.health import HealthWatch, Heeded
from cdigen.daemon.metrics import DaemonMetrics
from cdigen.daemon.reconciler import Reconciler, as_offered
from cdigen.daemon.report import DaemonStatus, next_status, overall, reason_unready
from cdigen.daemon.routes import Views
from cdigen.frontend.chassis import Chassis
from cdigen.frontend.http import SOCKET_FILE, Response, Server, standard_routes
from cdigen.frontend.log import log_sources
from cdigen.frontend.metrics import CONTENT_TYPE
from cdigen.frontend.rundir import save_status
from cdigen.health.keeper import Keeper
from cdigen.health.marks import FILE as MARKS
from cdigen.holders.asking import MAX_WAITING as ASKING
from cdigen.host import mounts
from cdigen.host.root import Root
from cdigen.model.errors import CdigenError, ConfigError, StoreError
from cdigen.model.findings import Finding
from cdigen.model.names import SPEC_SUFFIXES
from cdigen.pipeline import discovery
from cdigen.pipeline.device_names import known_devices
from cdigen.store.lock import LockHeld
from cdigen.value import replace
from cdigen.watch.debounce import Backoff, Debounce
from cdigen.watch.files import FileSource
from cdigen.watch.kernel_log import LOG, SOCKET, KernelLogSource
from cdigen.watch.poll import PollSource
from cdigen.watch.triggers import Trigger
from cdigen.watch.uevents import UeventSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from cdigen.daemon.reconciler import CycleOutcome
    from cdigen.daemon.report import CycleReport
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.frontend.sd_notify import Notifier
    from cdigen.frontend.signals import Signals
    from cdigen.model.inventory import Inventory
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.watch.supervisor import Source
    from cdigen.watch.triggers import Batch

# How long a scrape waits for figures; Prometheus waits 10 s unless it is told otherwise.
SCRAPE_S = 3.0
# A boot must not wait for a GPU that hangs: services ordered after us start after this time anyway.
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
    """Keeps the specs of one host up to date until it is told to stop.

    ``load`` reads configuration and command line and returns the setup, or raises a CdigenError;
    ``watched`` are further files that matter: the configuration.
    """

    def __init__(
        self,
        load: Callable[[], DaemonSetup],
        *,
        watched: tuple[str, ...],
        notifier: Notifier,
        logger: FilteringBoundLogger,
        signals: Signals,
    ) -> None:
        self._load = load
        self._watched = watched
        self._notifier = notifier
        self._log = logger
        self._setup = load()
        # The lock is there, so a changed run_dir in the configuration takes effect at the next start.
        self._chassis = Chassis(
            self._setup.daemon.run_dir,
            notifier=notifier,
            logger=logger,
            signals=signals,
            turn_s=lambda: self._setup.daemon.resync_s,
        )
        self._keeper = Keeper()
        self._reconciler = Reconciler(self._keeper)
        self._files = FileSource(compare_s=self._setup.daemon.poll_s)
        self._poll = PollSource(interval_s=self._setup.daemon.poll_s)
        self._uevents = UeventSource(())
        self._kernel_log = _kernel_log(self._setup)
        self._health = HealthWatch(
            self._keeper,
            (self._kernel_log, self._uevents),
            show=self._save_changed_health,
            probe_s=lambda: self._setup.health.probe_minutes * 60,
        )
        self._metrics = DaemonMetrics(SOURCES)
        self._figures = FiguresOnDemand(self._context)
        self._chassis.on_stop = self._figures.close
        self._status = DaemonStatus(version=__version__, started_s=time.time(), since_s=time.time())
        self._last: CycleReport | None = None
        self._inventories: Mapping[str, Inventory] = {}
        self._devices: tuple[KnownDevice, ...] = ()
        self._misconfigured: Finding | None = None

    def run(self, *, stands_by: bool = False) -> None:
        """Run until SIGTERM or SIGINT. STANDS_BY: where another instance runs, wait until that ends.

        StoreError: another instance runs, or no run directory can be made.
        """
        # Before anything that may hang.
        in_time = threading.Timer(READY_WITHIN_S, self._say_ready)
        in_time.daemon = True
        in_time.start()
        chassis = self._chassis
        try:
            with chassis.running(stand_by=self._prepare if stands_by else None):
                if not chassis.is_stopping:
                    self._serve(in_time)
        except LockHeld:
            raise
        except StoreError as error:
            raise self._explained(error) from None
        finally:
            in_time.cancel()
            self._keeper.close()

    def _serve(self, in_time: threading.Timer) -> None:
        chassis = self._chassis
        # Replaces the status that a killed daemon left: the first cycle may take a while.
        chassis.save(self._save_status)
        if chassis.has_stood_by:
            self._reload()
        self._rearm()
        chassis.start(*self._sources())
        self._log.info("started", version=__version__, vendors=list(self._setup.vendors))
        chassis.inbox.put(Trigger(source="start", reason="the daemon has started"))
        self._loop(in_time)

    def _explained(self, error: StoreError) -> StoreError:
        """Return ERROR about the run directory with the mount that is missing for it, if one is."""
        found = mounts.findings(self._setup.outer, (self._setup.daemon.run_dir,))
        hints = [one.hint for one in found if one.rule == mounts.READ_ONLY]
        return StoreError(error.message, hint=hints[0]) if hints else error

    def _say_ready(self) -> None:
        if not self._chassis.stands_by:
            self._notifier.ready("looking at the host")

    def _prepare(self) -> None:
        """Import what a cycle needs, by a look at the host that changes nothing."""
        with suppress(CdigenError):  # a driver container that is not there yet
            discovery.discover(self._setup.vendors, self._context())

    def _sources(self) -> tuple[Source, ...]:
        uevents = Heeded(self._uevents, self._health, is_quiet=False)
        log = Heeded(self._kernel_log, self._health, is_quiet=True)
        heard = (uevents, log) if self._setup.health.kernel_log else (uevents,)
        return (self._files, self._poll, *heard, self._health, self._server())

    # The loop.

    def _loop(self, in_time: threading.Timer) -> None:
        attempts = 0
        next_look_s = time.monotonic()
        while not self._chassis.is_stopping:
            batch = self._wait(next_look_s, why="retry" if attempts else "timer")
            if batch is None:
                continue
            self._chassis.run_directory.keep()
            self._reload()
            # Before the cycle: a later change at a new path then makes an event. Files that the cycle makes
            # are in watched folders, so another cycle follows.
            self._rearm()
            done = self._look(batch)
            self._show(done)
            in_time.cancel()
            self._chassis.report(self._summary())
            attempts = _attempts(attempts, batch) if done.needs_retry else 0
            next_look_s = time.monotonic() + self._delay_s(attempts)

    def _look(self, batch: Batch) -> CycleOutcome:
        """Run a cycle; its report also says what is wrong with the configuration."""
        done = self._reconciler.cycle(self._setup, batch)
        # What the cycle has seen may ask for a probe, or end by itself after a while.
        self._health.wake()
        if self._misconfigured is None:
            return done
        findings = (self._misconfigured, *done.report.findings)
        return replace(done, report=replace(done.report, findings=findings))

    def _wait(self, next_look_s: float, *, why: str) -> Batch | None:
        """Wait for events and the quiet after them, or for NEXT_LOOK_S; None: it is not time for a cycle."""
        chassis, times = self._chassis, self._setup.daemon
        if chassis.wait(next_look_s):
            batch = chassis.gather(Debounce(debounce_s=times.debounce_s, max_delay_s=times.max_delay_s))
            return None if chassis.is_stopping else batch
        if chassis.is_stopping or time.monotonic() < next_look_s:
            return None
        chassis.inbox.put(Trigger(source=why, reason="looking without an event"))
        return chassis.inbox.take()

    def _delay_s(self, attempts: int) -> float:
        times = self._setup.daemon
        if not attempts:
            return times.resync_s
        backoff = Backoff(first_s=times.backoff_min_s, factor=1.5, most_s=times.backoff_max_s)
        return backoff.delay(attempts - 1)

    # Configuration.

    def _reload(self) -> None:
        """Read the configuration again before every cycle; report an invalid one, and ignore it."""
        self._chassis.take_reload()
        problem: Finding | None = None
        try:
            self._setup = self._load()
        except CdigenError as error:
            problem = Finding(
                severity="error",
                rule=RULE,
                path=self._watched[0],
                message=f"the configuration does not count, the last good one does: {error.message}",
                hint=error.hint,
            )
        if problem is not None and problem != self._misconfigured:
            self._log.error("configuration", message=problem.message, hint=problem.hint)
        self._misconfigured = problem

    def _rearm(self) -> None:
        setup = self._setup
        files, polled, subsystems = self._watches()
        # What runtimes load; our temporary files beside them have another ending.
        specs = (f"{folder}/*{suffix}" for folder in setup.directories for suffix in SPEC_SUFFIXES)
        marks = f"{setup.state_dir}/{MARKS}"
        own = (setup.outer,) if setup.outer != "/" else ()
        # Links in a driver container's tree are resolved within that tree.
        self._files.rearm(
            (*files, *specs, marks, *self._watched, self._chassis.run_directory.lock),
            roots=(*own, *setup.roots),
        )
        # A mount over a folder makes no event: a driver container's root is compared as well.
        self._poll.rearm(polled, setup.roots)
        self._uevents.rearm(subsystems)

    def _watches(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Return the files, the polled files and the subsystems of all vendors."""
        setup = self._setup
        try:
            context = setup.context(Root(setup.outer))
        except ConfigError:
            # The driver root does not exist yet: watch its folder.
            return setup.roots, (), ("pci", "module", "drm")
        wanted, failures = discovery.watches(setup.vendors, context)
        for name, error in failures.items():
            self._log.warning("vendor-defect", vendor=name, error=error.message)
        return (
            (*setup.roots, *(path for one in wanted for path in one.files)),
            tuple(path for one in wanted for path in one.polled),
            tuple(dict.fromkeys(name for one in wanted for name in one.subsystems)),
        )

    # Showing.

    def _show(self, done: CycleOutcome) -> None:
        """Report what the cycle did everywhere; a full disk must not end the daemon."""
        report = done.report
        before = replace(self._status, is_configured=self._misconfigured is None)
        self._status = next_status(before, report, self._chassis.health())
        self._metrics.count(report)
        self._metrics.show(self._status)
        log.cycle(self._log, report, self._last)
        log_sources(self._log, self._status.sources, before.sources)
        self._last = report
        savings: list[Callable[[str], object]] = []
        if done.inventories or report.result != "failed":
            self._show_devices(done.inventories)
            savings.append(self._save_inventory)
        # Last: a program that reads the status of a cycle finds its inventory.
        self._chassis.save(*savings, self._save_status)

    def _show_devices(self, inventories: Mapping[str, Inventory]) -> None:
        self._figures.show(inventories)
        if inventories == self._inventories:
            return
        devices = known_devices(inventories, self._setup.options.profiles)
        log.health(self._log, devices, self._devices)
        self._metrics.show_devices(devices)
        self._inventories, self._devices = inventories, devices

    def _save_inventory(self, run_dir: str) -> None:
        """Put the inventories of the last cycle, with the health of now, into RUN_DIR."""

        def save(inventories: dict[str, Inventory]) -> None:
            offered = as_offered(inventories, in_spec=self._setup.health.in_spec)
            status.save_inventory(run_dir, offered)

        self._keeper.show(save)

    def _save_changed_health(self) -> None:
        """Do the same in the thread of health; the cycle that follows reports what is wrong with the disk."""
        if self._chassis.run_directory.is_ours():
            with suppress(CdigenError):
                self._save_inventory(self._setup.daemon.run_dir)

    def _save_status(self, run_dir: str) -> None:
        save_status(run_dir, status.document(self._status, self._chassis.process))

    def _summary(self) -> str:
        vendors = self._status.vendors
        state = overall(vendors) if vendors else self._status.state
        served = sum(spec.served for spec in self._status.specs)
        why = next((one.reason for one in vendors if one.state == state and one.reason), "")
        if self._misconfigured is not None:
            why = self._misconfigured.message
        return f"{state}, {served} devices" + (f"; {why}" if why else "")

    def _server(self) -> Server:
        routes = standard_routes(
            metrics=self._metrics.render,
            alive=self._chassis.alive,
            ready=lambda: reason_unready(self._status),
        )
        times = self._setup.daemon
        routes["/metrics"] = self._scraped
        views = Views(
            status=lambda: self._status,
            inventories=self._keeper.present,
            setup=lambda: self._setup,
            figures=self._figures,
            process=self._chassis.process,
        )
        routes |= views.routes()
        return Server(
            routes,
            f"{times.run_dir}/{SOCKET_FILE}",
            port=times.http_port,
            port_routes=views.port_routes(),
            threads=MAX_WAITING + ASKING + 1,
        )

    def _context(self) -> DiscoveryContext:
        setup = self._setup
        return setup.context(Root(setup.outer))

    def _scraped(self, query: str) -> Response:
        try:
            wants = wants_figures(query)
        except UnknownCollector as error:
            return Response(body=f"{error}\n".encode(), status="400 Bad Request")
        is_asked = wants and self._setup.daemon.figure_metrics
        figures = self._figures.ask(SCRAPE_S) if is_asked else ()
        return Response(body=self._metrics.render(figures), content_type=CONTENT_TYPE)


def _kernel_log(setup: DaemonSetup) -> KernelLogSource:
    """Return the source of the kernel's log, of the host that SETUP is about."""
    outer = setup.outer.rstrip("/")
    return KernelLogSource(socket_path=f"{outer}{SOCKET}", log=f"{outer}{LOG}")


def _attempts(before: int, batch: Batch) -> int:
    """Return how many cycles found the host unsettled since it last changed, including that for BATCH.

    An installation takes dozens of cycles; its end often makes no event (a lock is released).
    """
    return before + 1 if all(trigger.source == "retry" for trigger in batch.triggers) else 1
