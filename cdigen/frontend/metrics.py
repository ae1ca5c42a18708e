"""Make metrics for Prometheus: ``gauge`` and ``counter`` make families for a collector to yield."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client.metrics_core import Metric

# The format that every version of Prometheus reads; our names and labels need nothing newer.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def gauge(name: str, text: str, samples: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    """Return the gauge NAME, explained by TEXT, with a sample for each tuple of values of LABELS."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def counter(name: str, text: str, samples: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    """Return the counter NAME, explained by TEXT, with a sample for each tuple of values of LABELS."""
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, samples: Mapping[tuple[str, ...], float]
) -> Metric:
    for values, value in samples.items():
        family.add_metric(values, value)
    return family
