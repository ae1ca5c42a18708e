"""``NriCollector``: computes the plugin's Prometheus metrics at each scrape."""

from __future__ import annotations

from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import HistogramMetricFamily

from cdigen import __version__
from cdigen.config import RULE
from cdigen.nri.shared_state import BUCKETS
from cdigen.nri.status import REGISTERED
from cdigen.service.metrics import counter, gauge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from cdigen.nri.status import PluginStatus


class NriCollector:
    """The collector of the metrics of one plugin; STATUS is the status of the plugin."""

    def __init__(self, status: PluginStatus) -> None:
        self._status = status
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def describe(self) -> tuple[Metric, ...]:
        """Return no metrics, so that ``CollectorRegistry.register`` does not call ``collect``."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        status, metrics = self._status, self._status.metrics
        yield gauge("cdigen_build_info", "The version of cdigen.", {(__version__,): 1}, "version")
        yield gauge(
            "cdigen_config_valid",
            "Whether the configuration on the disk is valid; otherwise the previous one stays active.",
            {(): float(all(finding.rule != RULE for finding in status.problems))},
        )
        yield gauge(
            "cdigen_nri_registered",
            "Whether the runtime calls the plugin.",
            {(): float(status.state == REGISTERED)},
        )
        if status.abilities is not None:
            abilities = status.abilities
            yield gauge(
                "cdigen_nri_runtime_info",
                "The runtime, its NRI version, and its handling of CDI devices.",
                {(abilities.runtime, abilities.version, ".".join(map(str, abilities.nri)), abilities.cdi): 1},
                "runtime",
                "version",
                "nri",
                "cdi",
            )
        yield counter("cdigen_nri_connections", "Registrations with a runtime.", {(): metrics.connections})
        yield counter(
            "cdigen_nri_containers",
            "Containers about to be created, by outcome.",
            _rows(metrics.outcomes),
            "outcome",
        )
        yield counter("cdigen_nri_refused", "Refused containers, by cause.", _rows(metrics.refusals), "cause")
        yield counter(
            "cdigen_nri_ignored_requests",
            "Ignored requests and ignored parts of requests, by cause.",
            _rows(metrics.ignored_requests),
            "cause",
        )
        yield counter(
            "cdigen_nri_validations",
            "Validated adjustments, by result.",
            _rows(metrics.validations),
            "result",
        )
        yield gauge(
            "cdigen_nri_uninjected_containers",
            "Running containers without their requested devices, at the last registration.",
            {(): float(status.uninjected_count)},
        )
        yield self._durations()

    def _durations(self) -> Metric:
        metrics = self._status.metrics
        counts = list(accumulate(metrics.durations))
        family = HistogramMetricFamily(
            "cdigen_nri_request_seconds", "Duration of the plugin's responses to CreateContainer."
        )
        bounds = (*(f"{bound:g}" for bound in BUCKETS), "+Inf")
        family.add_metric([], list(zip(bounds, map(float, counts), strict=True)), metrics.duration_s)
        return family


def _rows(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(name,): float(count) for name, count in counts.items()}
