"""Metrics of the devices' health: ``device_metrics``.

A device has a series, and one for each cause that lasts. What a cause is called comes from tables of ours; a
text of the host is never a label.
"""

from __future__ import annotations

import re

from cdigen.frontend.metrics import gauge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from cdigen.pipeline.device_names import KnownDevice

OTHER = "other"
MAX_CAUSES = 16
_CAUSE = re.compile(r"[a-z][a-z0-9-]{0,63}", re.ASCII)
_LABELS = ("vendor", "device", "address", "uuid")


def device_metrics(devices: Iterable[KnownDevice]) -> Iterator[Metric]:
    """Yield the metrics of DEVICES; one whose health is unknown has none."""
    known = [device for device in devices if device.health != "unknown"]
    yield gauge(
        "cdigen_device_health",
        "1 for a device that is healthy, 0 for one that is not; none where nothing tells it.",
        {_labels(device): float(device.health == "healthy") for device in known},
        *_LABELS,
    )
    yield gauge(
        "cdigen_device_cause",
        "1 for each cause for which a device is unhealthy (docs/health.md).",
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
