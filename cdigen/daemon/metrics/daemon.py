"""``DaemonMetrics``: counts cycles for Prometheus, and exports the last status at each scrape.

Metrics of objects that can vanish (a kind, a vendor, a source) are computed from the status at each scrape,
so no series outlives its object. Labels have few values: a reason is the name of a source, never free text.
"""

from __future__ import annotations

import time
from itertools import product

from cdigen.daemon.cycle.report import CYCLE_RESULTS, VENDOR_STATES
from cdigen.daemon.metrics.devices import OTHER, device_metrics, health_metrics
from cdigen.service.durations import DurationCounts
from cdigen.service.metrics import counter, exposition, gauge, histogram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from cdigen.daemon.cycle.report import CycleReport, DaemonStatus
    from cdigen.daemon.stats import VendorStats
    from cdigen.pipeline.device_names import KnownDevice

# Durations of cycles in seconds. A cycle with filled caches takes milliseconds. A cycle that copies the files
# of a driver into a view takes almost a minute.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class DaemonMetrics:
    """The metrics of one daemon.

    SOURCES are the names of all sources of triggers. A cycle of any other source is counted as ``other``.
    """

    def __init__(self, sources: tuple[str, ...], *, clock: Callable[[], float] = time.time) -> None:
        self._sources = sources
        self._clock = clock
        # A rate needs a series with the value 0 before the first failure.
        self._cycles = dict.fromkeys(product(CYCLE_RESULTS, (*sources, OTHER)), 0)
        self._durations = DurationCounts(BUCKETS)
        self._status: DaemonStatus | None = None
        self._devices: tuple[KnownDevice, ...] = ()

    def count(self, report: CycleReport) -> None:
        """Count the cycle of REPORT."""
        first = report.reasons[0].source if report.reasons else OTHER
        self._cycles[report.result, first if first in self._sources else OTHER] += 1
        self._durations.add(report.duration_s)

    def show(self, status: DaemonStatus) -> None:
        """Export STATUS from the next scrape on."""
        self._status = status

    def show_devices(self, devices: tuple[KnownDevice, ...]) -> None:
        """Export the health of DEVICES from the next scrape on; other devices have no series."""
        self._devices = devices

    def render(self, stats: tuple[VendorStats, ...] = ()) -> bytes:
        """Return all metrics in Prometheus' format, with the metrics of STATS if STATS is not empty."""
        status = self._status
        is_configured = None if status is None else status.is_configured
        return exposition(self._metrics(status, stats), is_configured=is_configured)

    def _metrics(self, status: DaemonStatus | None, stats: tuple[VendorStats, ...]) -> Iterator[Metric]:
        yield counter(
            "cdigen_cycles",
            "Cycles by result and by the source of the first of their reasons.",
            self._cycles,
            "result",
            "reason",
        )
        yield histogram("cdigen_cycle_duration_seconds", "Duration of cycles.", self._durations)
        if status is not None:
            yield from self._of_status(status)
        if stats:
            yield from device_metrics(self._devices, stats)

    def _of_status(self, status: DaemonStatus) -> Iterator[Metric]:
        if status.last_success_s is not None:
            yield gauge(
                "cdigen_last_success_timestamp_seconds",
                "Time of the last successful cycle.",
                status.last_success_s,
            )
        yield gauge(
            "cdigen_vendor_state",
            "1 for the present state of a vendor.",
            {
                (vendor.vendor, state): vendor.state == state
                for vendor in status.vendors
                for state in VENDOR_STATES
            },
            "vendor",
            "state",
        )
        yield gauge(
            "cdigen_watch_source_up",
            "Whether a source of triggers works; the periodic cycle finds changes that a source misses.",
            {name: not problem for name, problem in status.sources},
            "source",
        )
        yield from self._specs(status)
        yield from health_metrics(self._devices)

    def _specs(self, status: DaemonStatus) -> Iterator[Metric]:
        yield gauge(
            "cdigen_devices",
            "Devices in a spec, and devices that are left out of it.",
            {
                (spec.kind, state): count
                for spec in status.specs
                for state, count in (("served", spec.served), ("left-out", spec.left_out))
            },
            "kind",
            "state",
        )
        now = self._clock()
        yield gauge(
            "cdigen_spec_age_seconds",
            "Time since the spec on the disk was written.",
            {
                spec.kind: max(0.0, now - spec.written_s)
                for spec in status.specs
                if spec.written_s is not None
            },
            "kind",
        )
