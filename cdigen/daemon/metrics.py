"""``DaemonMetrics``: counts cycles for Prometheus, and exports the last status at each scrape.

Metrics of objects that can vanish (a kind, a vendor, a source) are computed from the status at each scrape,
so no series outlives its object. Labels have few values: a reason is the name of a source, never free text.
"""

from __future__ import annotations

import time

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest

from cdigen.daemon.device_metrics import device_metrics
from cdigen.daemon.health_metrics import health_metrics
from cdigen.daemon.report import CYCLE_RESULTS, VENDOR_STATES
from cdigen.service.metrics import gauge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from cdigen.daemon.report import CycleReport, DaemonStatus
    from cdigen.daemon.stats import VendorStats
    from cdigen.pipeline.device_names import KnownDevice

# Durations of cycles in seconds. A cycle with filled caches takes milliseconds. A cycle that copies the files
# of a driver into a view takes almost a minute.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OTHER = "other"


class DaemonMetrics:
    """The metrics of one daemon, in a separate registry.

    SOURCES are the names of all sources of triggers. A cycle of any other source is counted as ``other``.
    """

    def __init__(self, sources: tuple[str, ...], *, clock: Callable[[], float] = time.time) -> None:
        # Series of creation times would double the number of series, and no program reads them.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # no annotations
        self._sources = sources
        self._registry = CollectorRegistry()
        self._cycles = Counter(
            "cdigen_cycles",
            "Cycles by result and by the source of the first of their reasons.",
            ("result", "reason"),
            registry=self._registry,
        )
        self._duration = Histogram(
            "cdigen_cycle_duration_seconds",
            "Duration of cycles.",
            buckets=BUCKETS,
            registry=self._registry,
        )
        # A rate needs a series with the value 0 before the first failure.
        for result in CYCLE_RESULTS:
            for source in (*sources, OTHER):
                self._cycles.labels(result, source)
        self._latest = _Latest(clock)
        self._registry.register(self._latest)
        ProcessCollector(registry=self._registry)

    def count(self, report: CycleReport) -> None:
        """Count the cycle of REPORT."""
        first = report.reasons[0].source if report.reasons else OTHER
        self._cycles.labels(report.result, first if first in self._sources else OTHER).inc()
        self._duration.observe(report.duration_s)

    def show(self, status: DaemonStatus) -> None:
        """Export STATUS from the next scrape on."""
        self._latest.status = status

    def show_devices(self, devices: tuple[KnownDevice, ...]) -> None:
        """Export the health of DEVICES from the next scrape on; other devices have no series."""
        self._latest.devices = devices

    def render(self, stats: tuple[VendorStats, ...] = ()) -> bytes:
        """Return all metrics in Prometheus' format, with the metrics of STATS if STATS is not empty."""
        text = generate_latest(self._registry)
        if not stats:
            return text
        registry = CollectorRegistry()
        registry.register(_Collected(tuple(device_metrics(self._latest.devices, stats))))
        return text + generate_latest(registry)


class _Collected:
    """The metrics of one scrape, computed in advance."""

    def __init__(self, metrics: tuple[Metric, ...]) -> None:
        self._metrics = metrics

    def collect(self) -> tuple[Metric, ...]:
        """Return the metrics."""
        return self._metrics


class _Latest:
    """A collector that computes the metrics of the last status at each scrape."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.status: DaemonStatus | None = None
        self.devices: tuple[KnownDevice, ...] = ()
        self._clock = clock

    def describe(self) -> tuple[Metric, ...]:
        """Return no metrics, so that registration does not call ``collect``."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of the last status, or no metrics before the first status."""
        status = self.status
        if status is None:
            return
        yield gauge("cdigen_build_info", "The version of cdigen.", {(status.version,): 1}, "version")
        yield gauge(
            "cdigen_config_valid",
            "Whether the configuration on the disk is valid; otherwise the previous one stays active.",
            {(): float(status.is_configured)},
        )
        if status.last_success_s is not None:
            yield gauge(
                "cdigen_last_success_timestamp_seconds",
                "Time of the last successful cycle.",
                {(): status.last_success_s},
            )
        yield gauge(
            "cdigen_vendor_state",
            "1 for the present state of a vendor.",
            {
                (vendor.vendor, state): float(vendor.state == state)
                for vendor in status.vendors
                for state in VENDOR_STATES
            },
            "vendor",
            "state",
        )
        yield gauge(
            "cdigen_watch_source_up",
            "Whether a source of triggers works; the periodic cycle finds changes that a source misses.",
            {(name,): float(not problem) for name, problem in status.sources},
            "source",
        )
        yield from self._specs(status)
        yield from health_metrics(self.devices)

    def _specs(self, status: DaemonStatus) -> Iterator[Metric]:
        yield gauge(
            "cdigen_devices",
            "Devices in a spec, and devices that are left out of it.",
            {
                (spec.kind, state): float(count)
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
                (spec.kind,): max(0.0, now - spec.written_s)
                for spec in status.specs
                if spec.written_s is not None
            },
            "kind",
        )
