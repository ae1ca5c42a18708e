"""The plugin's metrics for Prometheus: ``NriCollector`` computes them at each scrape."""

from __future__ import annotations

from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import HistogramMetricFamily

from cdigen import __version__
from cdigen.config import RULE
from cdigen.frontend.metrics import counter, gauge
from cdigen.nri.shared_state import BUCKETS
from cdigen.nri.status import REGISTERED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from cdigen.nri.status import PluginStatus


class NriCollector:
    """The metrics of one plugin, by its STATUS."""

    def __init__(self, status: PluginStatus) -> None:
        self._status = status
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return generate_latest(self._registry)

    def describe(self) -> tuple[Metric, ...]:
        """Return nothing, so that registering does not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the metrics as they are now."""
        status, metrics = self._status, self._status.metrics
        yield gauge("cdigen_build_info", "The version of cdigen.", {(__version__,): 1}, "version")
        yield gauge(
            "cdigen_config_valid",
            "Whether the configuration on the disk counts; where it is wrong, the last good one does.",
            {(): float(all(finding.rule != RULE for finding in status.problems))},
        )
        yield gauge(
            "cdigen_nri_registered",
            "Whether the runtime asks the plugin.",
            {(): float(status.state == REGISTERED)},
        )
        if status.abilities is not None:
            able = status.abilities
            yield gauge(
                "cdigen_nri_runtime_info",
                "The runtime, its NRI, and what becomes there of CDI devices.",
                {(able.runtime, able.version, ".".join(map(str, able.nri)), able.cdi): 1},
                "runtime",
                "version",
                "nri",
                "cdi",
            )
        yield counter("cdigen_nri_connections", "Registrations with a runtime.", {(): metrics.connections})
        yield counter(
            "cdigen_nri_containers",
            "Containers about to be created, by what became of them.",
            _rows(metrics.outcomes),
            "outcome",
        )
        yield counter(
            "cdigen_nri_refused", "Refused containers by the cause.", _rows(metrics.refusals), "cause"
        )
        yield counter(
            "cdigen_nri_notes",
            "What did not count, or was let pass, by the cause.",
            _rows(metrics.notes),
            "cause",
        )
        yield counter("cdigen_nri_validations", "Containers validated.", _rows(metrics.verdicts), "verdict")
        yield gauge(
            "cdigen_nri_missed_containers",
            "Running containers that asked and did not get, at the last registration.",
            {(): float(status.missed_count)},
        )
        yield self._durations()

    def _durations(self) -> Metric:
        metrics = self._status.metrics
        counts = list(accumulate(metrics.durations))
        family = HistogramMetricFamily(
            "cdigen_nri_request_seconds", "How long containers waited for the plugin's answer."
        )
        bounds = (*(f"{bound:g}" for bound in BUCKETS), "+Inf")
        family.add_metric([], list(zip(bounds, map(float, counts), strict=True)), metrics.duration_s)
        return family


def _rows(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(name,): float(count) for name, count in counts.items()}
