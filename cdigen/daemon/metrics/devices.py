"""Metrics of devices: ``health_metrics`` of their health, ``device_metrics`` of their stats.

Each device of known health has one series for its health, and one series for each present cause. The label
of a cause is a name from cdigen's tables, never a text from the host.

A scrape gets the metrics of stats only if it requests them (``collect[]=devices``). The labels of a series
name one device. The label of ``cdigen_scrape_collector_success`` names a vendor. The names of processes are
not exported, only the number.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from cdigen.model.stats import is_known
from cdigen.service.metrics import counter, gauge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from cdigen.daemon.stats import VendorStats
    from cdigen.model.stats import DeviceStats
    from cdigen.pipeline.device_names import KnownDevice

    # Returns pairs for the stats of one device: the value of the label after _LABELS, and the sample.
    Values = Callable[[DeviceStats], tuple[tuple[str, float | None], ...]]
    # The label after _LABELS, or "" for no further label, and its values.
    LabelledValues = tuple[str, Values]

PARAMETER = "collect[]"
COLLECTOR = "devices"
OTHER = "other"
MAX_CAUSES = 16
_CAUSE = re.compile(r"[a-z][a-z0-9-]{0,63}", re.ASCII)
_LABELS = ("vendor", "device", "address", "uuid")
_MEGA = 1_000_000
_MAX_PARAMETERS = 16


class UnknownCollector(ValueError):
    """The error for an invalid query of a scrape, such as an unknown collector. The client gets its text."""


def requests_stats(query: str) -> bool:
    """Return whether the QUERY of a scrape requests stats; raise UnknownCollector if QUERY is invalid."""
    try:
        names = parse_qs(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS).get(PARAMETER, [])
    except ValueError:
        raise UnknownCollector(f"more than {_MAX_PARAMETERS} parameters") from None
    if any(name != COLLECTOR for name in names):
        raise UnknownCollector(f"{PARAMETER} must be {COLLECTOR}")
    return bool(names)


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
        "1 for each cause of a device's unhealthiness.",
        {
            (*_labels(device), cause.cause if _CAUSE.fullmatch(cause.cause) else OTHER): 1
            for device in known
            for cause in device.causes[:MAX_CAUSES]
        },
        *_LABELS,
        "cause",
    )


def device_metrics(devices: Iterable[KnownDevice], vendor_stats: tuple[VendorStats, ...]) -> Iterator[Metric]:
    """Yield the metrics of DEVICES from VENDOR_STATS. An unknown value has no series."""
    by_device = {
        (vendor.vendor, stats.address, stats.instance): stats
        for vendor in vendor_stats
        for stats in vendor.devices
    }
    pairs = [
        (_labels(device), stats)
        for device in devices
        if (stats := by_device.get((device.vendor, device.accelerator.address, device.instance)))
    ]
    yield gauge(
        "cdigen_scrape_collector_success",
        "Whether a device of the vendor returned stats in time for this scrape.",
        {vendor.vendor: any(map(is_known, vendor.devices)) for vendor in vendor_stats},
        "vendor",
    )
    for name, text, (label, values) in _METRICS:
        if samples := _samples(pairs, values):
            yield gauge(name, text, samples, *_LABELS, *((label,) if label else ()))
    label, values = _ECC_ERRORS
    if samples := _samples(pairs, values):
        yield counter(
            "cdigen_device_ecc_errors",
            "Errors of the device's memories since its driver was loaded.",
            samples,
            *_LABELS,
            label,
        )


def _labels(device: KnownDevice) -> tuple[str, ...]:
    return device.vendor, device.name, device.accelerator.address, device.uuid or ""


def _samples(
    pairs: Sequence[tuple[tuple[str, ...], DeviceStats]], values: Values
) -> dict[tuple[str, ...], float]:
    return {
        (*labels, *((label_value,) if label_value else ())): float(value)
        for labels, stats in pairs
        for label_value, value in values(stats)
        if value is not None
    }


def _only(name: str) -> LabelledValues:
    return "", lambda stats: (("", getattr(stats, name)),)


def _by(label: str, names: dict[str, str], *, factor: int = 1, divisor: int = 1) -> LabelledValues:
    return label, lambda stats: tuple(
        (label_value, _scaled(getattr(stats, name), factor, divisor)) for label_value, name in names.items()
    )


def _scaled(value: float | None, factor: int, divisor: int) -> float | None:
    return None if value is None else value * factor / divisor


# (name, help text, values). Units are the base units of Prometheus' conventions.
_METRICS: tuple[tuple[str, str, LabelledValues], ...] = (
    ("cdigen_device_memory_bytes", "Memory of the device.", _only("memory_total")),
    ("cdigen_device_memory_used_bytes", "Memory in use.", _only("memory_used")),
    ("cdigen_device_bar1_bytes", "Memory that can be mapped over PCI.", _only("bar1_total")),
    ("cdigen_device_bar1_used_bytes", "Memory mapped over PCI.", _only("bar1_used")),
    (
        "cdigen_device_utilization_ratio",
        "The part of the time in which an engine was busy, 0 to 1.",
        _by(
            "engine",
            {
                "compute": "utilization",
                "memory": "memory_utilization",
                "encoder": "encoder_utilization",
                "decoder": "decoder_utilization",
            },
            divisor=100,
        ),
    ),
    ("cdigen_device_temperature_celsius", "Temperature.", _only("temperature")),
    ("cdigen_device_power_watts", "Power that the device draws.", _only("power")),
    ("cdigen_device_power_limit_watts", "Highest power that the device may draw.", _only("power_limit")),
    (
        "cdigen_device_clock_hertz",
        "Present clock.",
        _by("clock", {"core": "core_clock", "memory": "memory_clock"}, factor=_MEGA),
    ),
    (
        "cdigen_device_clock_max_hertz",
        "Highest clock.",
        _by("clock", {"core": "core_clock_max", "memory": "memory_clock_max"}, factor=_MEGA),
    ),
    ("cdigen_device_pcie_generation", "Present generation of the PCIe link.", _only("pcie_generation")),
    (
        "cdigen_device_pcie_generation_max",
        "Highest generation of the PCIe link.",
        _only("pcie_generation_max"),
    ),
    ("cdigen_device_pcie_lanes", "Present number of lanes of the PCIe link.", _only("pcie_width")),
    ("cdigen_device_pcie_lanes_max", "Highest number of lanes of the PCIe link.", _only("pcie_width_max")),
    (
        "cdigen_device_pcie_bytes_per_second",
        "Traffic on the PCIe link, sampled for some milliseconds.",
        _by("direction", {"received": "pcie_received", "sent": "pcie_sent"}),
    ),
    (
        "cdigen_device_processes",
        "Processes that use the device, counted up to 64.",
        ("", lambda stats: (("", None if stats.processes is None else len(stats.processes)),)),
    ),
)
_ECC_ERRORS = _by("severity", {"corrected": "ecc_corrected", "uncorrected": "ecc_uncorrected"})
