"""Make metrics for Prometheus: ``gauge`` and ``counter`` make families for a collector to yield."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client.metrics_core import Metric

# What every version of Prometheus reads; our names and labels need nothing newer.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def gauge(name: str, text: str, samples: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    """Return the gauge NAME, explained by TEXT, with a sample for each tuple of values of LABELS."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples.items():
        family.add_metric(values, value)
    return family


def counter(name: str, text: str, samples: Mapping[tuple[str, ...], float], *labels: str) -> Metric:
    """Return the counter NAME, explained by TEXT, with a sample for each tuple of values of LABELS."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in samples.items():
        family.add_metric(values, value)
    return family
