"""``DaemonMetrics``: count cycles for Prometheus, and show the last status at each scrape.

Everything that can vanish (a kind, a vendor, a source) is computed from the status at each scrape, so that
no series outlives its subject. Labels have few values: a reason is the name of a source, never free text.
"""

from __future__ import annotations

import time

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest

from cdigen.daemon.device_metrics import device_metrics
from cdigen.daemon.figure_metrics import figure_metrics
from cdigen.daemon.report import CYCLE_RESULTS, VENDOR_STATES
from cdigen.frontend.metrics import gauge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from cdigen.daemon.figures import VendorFigures
    from cdigen.daemon.report import CycleReport, DaemonStatus
    from cdigen.pipeline.device_names import KnownDevice

# A warm cycle takes milliseconds, one that has to copy a driver's files into a view most of a minute.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OTHER = "other"


class DaemonMetrics:
    """The metrics of one daemon, in a registry of their own.

    SOURCES are the names of all sources of triggers; a cycle of any other counts as ``other``.
    """

    def __init__(self, sources: tuple[str, ...], *, clock: Callable[[], float] = time.time) -> None:
        # A creation time for each series would double their number, and nobody needs it.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
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
            "How long cycles took.",
            buckets=BUCKETS,
            registry=self._registry,
        )
        # A rate needs the zero before the first failure.
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
        """Let scrapes from now on show STATUS."""
        self._latest.status = status

    def show_devices(self, devices: tuple[KnownDevice, ...]) -> None:
        """Let scrapes from now on show the health of DEVICES, and of no others."""
        self._latest.devices = devices

    def render(self, figures: tuple[VendorFigures, ...] = ()) -> bytes:
        """Return all metrics as Prometheus reads them, and those of FIGURES where there are any."""
        text = generate_latest(self._registry)
        if not figures:
            return text
        asked = CollectorRegistry()
        asked.register(_Collected(tuple(figure_metrics(self._latest.devices, figures))))
        return text + generate_latest(asked)


class _Collected:
    """Metrics of one scrape, which are there already."""

    def __init__(self, metrics: tuple[Metric, ...]) -> None:
        self._metrics = metrics

    def collect(self) -> tuple[Metric, ...]:
        """Return the metrics."""
        return self._metrics


class _Latest:
    """Computes metrics of the last status at each scrape."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.status: DaemonStatus | None = None
        self.devices: tuple[KnownDevice, ...] = ()
        self._clock = clock

    def describe(self) -> tuple[Metric, ...]:
        """Return all that ``collect`` may give, so that registering does not call it."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of the last status, none before the first."""
        status = self.status
        if status is None:
            return
        yield gauge("cdigen_build_info", "The version of cdigen.", {(status.version,): 1}, "version")
        yield gauge(
            "cdigen_config_valid",
            "Whether the configuration on the disk is used; if it is wrong, the last good one is.",
            {(): float(status.is_configured)},
        )
        if status.last_success_s is not None:
            yield gauge(
                "cdigen_last_success_timestamp_seconds",
                "When a cycle last succeeded.",
                {(): status.last_success_s},
            )
        yield gauge(
            "cdigen_vendor_state",
            "1 for the state that a vendor is in.",
            {
                (vendor.vendor, state): float(vendor.state == state)
                for vendor in status.vendors
                for state in VENDOR_STATES
            },
            "vendor",
            "state",
        )
        yield gauge(
            "cdigen_source_healthy",
            "Whether a source of triggers works; the periodic cycle makes up for one that does not.",
            {(name,): float(not problem) for name, problem in status.sources},
            "source",
        )
        yield from self._specs(status)
        yield from device_metrics(self.devices)

    def _specs(self, status: DaemonStatus) -> Iterator[Metric]:
        yield gauge(
            "cdigen_devices",
            "Devices that a spec serves, and those that had to be left out of it.",
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
            "How long ago the spec on the disk was written.",
            {
                (spec.kind,): max(0.0, now - spec.written_s)
                for spec in status.specs
                if spec.written_s is not None
            },
            "kind",
        )
