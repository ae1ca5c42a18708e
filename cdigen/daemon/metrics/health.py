"""Metrics of the health of devices: ``health_metrics``.

Each device of known health has one series for its health, and one series for each present cause. The label
of a cause is a name from cdigen's tables, never a text from the host.
"""

from __future__ import annotations

import re

from cdigen.service.metrics import gauge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from cdigen.pipeline.device_names import KnownDevice

OTHER = "other"
MAX_CAUSES = 16
_CAUSE = re.compile(r"[a-z][a-z0-9-]{0,63}", re.ASCII)
_LABELS = ("vendor", "device", "address", "uuid")


def health_metrics(devices: Iterable[KnownDevice]) -> Iterator[Metric]:
    """Yield the metrics of DEVICES. A device of unknown health has no series."""
    known = [device for device in devices if device.health != "unknown"]
    yield gauge(
        "cdigen_device_health",
        "1 for a healthy device, 0 for an unhealthy one; no series if the health is unknown.",
        {_labels(device): device.health == "healthy" for device in known},
        *_LABELS,
    )
    yield gauge(
        "cdigen_device_cause",
        "1 for each cause of a device's unhealthiness (docs/health.md).",
        {
            (*_labels(device), cause.cause if _CAUSE.fullmatch(cause.cause) else OTHER): 1
            for device in known
            for cause in device.causes[:MAX_CAUSES]
        },
        *_LABELS,
        "cause",
    )


def _labels(device: KnownDevice) -> tuple[str, ...]:
    return device.vendor, device.name, device.accelerator.address, device.uuid or ""
