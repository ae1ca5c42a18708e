"""Metrics for Prometheus: ``gauge``, ``counter`` and ``histogram`` return metrics, ``exposition`` their text.

A process computes its metrics from its present state at each scrape. So no series outlives its object.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from cdigen import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from prometheus_client.metrics_core import Metric

    from cdigen.service.durations import DurationCounts

    # A number without labels, or numbers by the value of one label, or by the tuple of the values of several.
    Samples = float | Mapping[Any, float]

# Every version of Prometheus reads this format. The names and labels of cdigen require no newer format.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(metrics: Iterable[Metric], *, is_configured: bool | None = None) -> bytes:
    """Return METRICS in the text format of Prometheus, with the version and the resources of this process.

    IS_CONFIGURED is whether the configuration on the disk is valid, or None if there is no configuration.
    """
    registry = CollectorRegistry()
    registry.register(_Collected((*_common(is_configured=is_configured), *metrics)))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def gauge(name: str, text: str, samples: Samples, *labels: str) -> Metric:
    """Return the gauge NAME with the help TEXT and SAMPLES by the values of LABELS."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def counter(name: str, text: str, samples: Samples, *labels: str) -> Metric:
    """Return the counter NAME with the help TEXT and SAMPLES by the values of LABELS."""
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def histogram(name: str, text: str, durations: DurationCounts) -> Metric:
    """Return the histogram NAME of DURATIONS with the help TEXT."""
    return HistogramMetricFamily(name, text, buckets=durations.buckets(), sum_value=durations.sum_s)


def _common(*, is_configured: bool | None) -> Iterator[Metric]:
    yield gauge("cdigen_build_info", "The version of cdigen.", {__version__: 1}, "version")
    if is_configured is not None:
        yield gauge(
            "cdigen_config_valid",
            "Whether the configuration on the disk is valid; otherwise the previous one stays active.",
            is_configured,
        )


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    rows = samples.items() if isinstance(samples, Mapping) else (((), samples),)
    for values, value in rows:
        family.add_metric((values,) if isinstance(values, str) else values, value)
    return family


class _Collected:
    """The metrics of one scrape, as a collector."""

    def __init__(self, metrics: tuple[Metric, ...]) -> None:
        self._metrics = metrics

    def collect(self) -> tuple[Metric, ...]:
        return self._metrics
