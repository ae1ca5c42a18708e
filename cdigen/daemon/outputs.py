"""``DaemonOutputs``: the results of the cycles in the daemon's log, files, metrics and HTTP routes.

The HTTP server and the health thread also use the class. It replaces shared values only as a whole.
"""

from __future__ import annotations

import time
from contextlib import suppress

from cdigen import __version__
from cdigen.daemon import log, status
from cdigen.daemon.cycle.reconciler import inventories_for_spec
from cdigen.daemon.cycle.report import DaemonStatus, next_status, reason_unready
from cdigen.daemon.metrics.daemon import DaemonMetrics
from cdigen.daemon.metrics.devices import UnknownCollector, requests_stats
from cdigen.daemon.stats import MAX_WAITING, StatsReader
from cdigen.host.root import Root
from cdigen.model.errors import CdigenError
from cdigen.pipeline.device_names import known_devices
from cdigen.service.http.client import ClientLimits
from cdigen.service.http.routes import Request, Response, standard_routes
from cdigen.service.http.server import HttpServer, local_server
from cdigen.service.metrics import CONTENT_TYPE
from cdigen.service.process.log import log_sources
from cdigen.service.rundir import save_status
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.daemon.cycle.reconciler import CycleOutcome
    from cdigen.daemon.cycle.report import CycleReport
    from cdigen.daemon.setup import DaemonSetup
    from cdigen.health.tracker import HealthTracker
    from cdigen.model.inventory import Inventory
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.service.http.routes import Route
    from cdigen.service.process.buffered_log import Logger
    from cdigen.service.runner import ServiceRunner
    from cdigen.service.status import ServiceProcess

# Seconds that a scrape waits for stats. The default scrape timeout of Prometheus is 10 s.
SCRAPE_S = 3.0
SOURCES = ("start", "signal", "files", "uevents", "poll", "http", "timer", "retry", "kernel-log", "health")


@frozen
class RouteSources:
    """The sources of responses: functions that return the present values, and the reader of stats."""

    status: Callable[[], DaemonStatus]
    inventories: Callable[[], Mapping[str, Inventory]]
    setup: Callable[[], DaemonSetup]
    stats: StatsReader
    process: ServiceProcess


@frozen
class FurtherRoutes:
    """HTTP routes by path, in addition to metrics and health.

    ``port_routes`` are the routes whose response differs on the TCP port, which every user can reach. At most
    ``waiting`` requests wait for an engine.
    """

    routes: dict[str, Route]
    port_routes: dict[str, Route]
    waiting: int


class DaemonOutputs:
    """The outputs of the process RUNNER with the settings that SETUP returns; TRACKER has the health.

    FURTHER_ROUTES returns the routes of the page.
    """

    def __init__(
        self,
        setup: Callable[[], DaemonSetup],
        tracker: HealthTracker,
        runner: ServiceRunner,
        log: Logger,
        further_routes: Callable[[RouteSources], FurtherRoutes],
    ) -> None:
        self._setup = setup
        self._tracker = tracker
        self._runner = runner
        self._log = log
        self._further_routes = further_routes
        self._metrics = DaemonMetrics(SOURCES)
        self._stats = StatsReader(lambda: setup().context(Root(setup().outer)))
        runner.on_stop = self._stats.close
        self._status = DaemonStatus(
            version=__version__, started_s=time.time(), since_s=time.time(), maintained=setup().maintained
        )
        self._last: CycleReport | None = None
        self._inventories: Mapping[str, Inventory] = {}
        self._devices: tuple[KnownDevice, ...] = ()

    @property
    def summary(self) -> str:
        """The state of the host and its reason in one line."""
        return f"{self._status.state}: {self._status.verdict}"

    def show(self, done: CycleOutcome, *, is_configured: bool) -> None:
        """Report the result of a cycle in all outputs. A full disk must not end the daemon.

        IS_CONFIGURED is whether the present configuration is valid.
        """
        report = done.report
        before = replace(self._status, is_configured=is_configured, maintained=self._setup().maintained)
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
        self._runner.save(*savings, self.save_status)

    def _show_devices(self, inventories: Mapping[str, Inventory]) -> None:
        self._stats.update(inventories)
        if inventories == self._inventories:
            return
        devices = known_devices(inventories, self._setup().options.profiles)
        log.health(self._log, devices, self._devices)
        self._metrics.show_devices(devices)
        self._inventories, self._devices = inventories, devices

    def _save_inventory(self, run_dir: str) -> None:
        """Write the inventories of the last cycle, with the present health, to RUN_DIR."""

        def save(inventories: dict[str, Inventory]) -> None:
            spec_devices = inventories_for_spec(
                inventories, unhealthy_in_spec=self._setup().health.unhealthy_in_spec
            )
            status.save_inventory(run_dir, spec_devices)

        self._tracker.show(save)

    def save_changed_health(self) -> None:
        """Write the inventories from the health thread. The next cycle reports an error of the disk."""
        if self._runner.run_directory.is_ours():
            with suppress(CdigenError):
                self._save_inventory(self._setup().daemon.run_dir)

    def save_status(self, run_dir: str) -> None:
        """Write status.json to RUN_DIR; raise StoreError if the file cannot be written."""
        save_status(run_dir, status.document(self._status, self._runner.process))

    def server(self) -> HttpServer:
        """Return the HTTP server of the run directory and of the port."""
        routes = standard_routes(
            metrics=self._metrics.render, alive=self._runner.alive, ready=lambda: reason_unready(self._status)
        )
        times = self._setup().daemon
        routes["/metrics"] = self._scrape
        further = self._further_routes(
            RouteSources(
                status=lambda: self._status,
                inventories=self._tracker.present,
                setup=self._setup,
                stats=self._stats,
                process=self._runner.process,
            )
        )
        routes |= further.routes
        return local_server(
            routes,
            times.run_dir,
            times.http_port,
            further.port_routes,
            # One more than the number of routes that may wait for a driver or an engine.
            limits=ClientLimits(running_routes=MAX_WAITING + further.waiting + 1),
        )

    def _scrape(self, request: Request) -> Response:
        try:
            is_requested = requests_stats(request.query)
        except UnknownCollector as error:
            return Response(body=f"{error}\n".encode(), status="400 Bad Request")
        is_read = is_requested and self._setup().daemon.device_metrics
        stats = self._stats.read(SCRAPE_S) if is_read else ()
        return Response(body=self._metrics.render(stats), content_type=CONTENT_TYPE)
