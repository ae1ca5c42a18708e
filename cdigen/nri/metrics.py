"""``render``: returns the plugin's Prometheus metrics."""

from __future__ import annotations

from cdigen.config import RULE
from cdigen.nri.status import REGISTERED
from cdigen.service.metrics import counter, exposition, gauge, histogram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from cdigen.nri.status import PluginStatus


def render(status: PluginStatus) -> bytes:
    """Return the metrics of the plugin with STATUS in the text format of Prometheus."""
    is_configured = all(finding.rule != RULE for finding in status.problems)
    return exposition(_metrics(status), is_configured=is_configured)


def _metrics(status: PluginStatus) -> Iterator[Metric]:
    metrics = status.metrics
    yield gauge("cdigen_nri_registered", "Whether the runtime calls the plugin.", status.state == REGISTERED)
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
    yield counter("cdigen_nri_connections", "Registrations with a runtime.", metrics.connections)
    yield counter(
        "cdigen_nri_containers", "Containers about to be created, by outcome.", metrics.outcomes, "outcome"
    )
    yield counter("cdigen_nri_refused", "Refused containers, by cause.", metrics.refusals, "cause")
    yield counter(
        "cdigen_nri_ignored_requests",
        "Ignored requests and ignored parts of requests, by cause.",
        metrics.ignored_requests,
        "cause",
    )
    yield counter(
        "cdigen_nri_validations", "Validated adjustments, by result.", metrics.validations, "result"
    )
    yield gauge(
        "cdigen_nri_uninjected_containers",
        "Running containers without their requested devices, at the last registration.",
        status.uninjected_count,
    )
    yield histogram(
        "cdigen_nri_request_seconds",
        "Duration of the plugin's responses to CreateContainer.",
        metrics.durations,
    )
