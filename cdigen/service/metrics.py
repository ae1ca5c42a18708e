"""Metrics for Prometheus: ``gauge`` and ``counter`` return the metric families that a collector yields."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client.metrics_core import Metric

# Every version of Prometheus reads this format. The names and labels of cdigen require no newer format.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def gauge(name: str, text: str, samples: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    """Return the gauge NAME with the help TEXT. SAMPLES maps the values of LABELS to a number."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def counter(name: str, text: str, samples: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    """Return the counter NAME with the help TEXT. SAMPLES maps the values of LABELS to a number."""
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, samples: Mapping[tuple[str, ...], float]
) -> Metric:
    for values, value in samples.items():
        family.add_metric(values, value)
    return family
