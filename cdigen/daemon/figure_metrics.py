"""Metrics of what the devices do, for scrapes that ask for them: ``wants_figures``, ``figure_metrics``.

A device has one series of each metric: what uses it is counted, and not named.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from cdigen.frontend.metrics import counter, gauge
from cdigen.model.figures import is_known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from cdigen.daemon.figures import VendorFigures
    from cdigen.model.figures import DeviceFigures
    from cdigen.pipeline.device_names import KnownDevice

    # The values that a metric has for a device: the further label's, and the number.
    Values = Callable[[DeviceFigures], tuple[tuple[str, float | None], ...]]

PARAMETER = "collect[]"
COLLECTOR = "figures"
_LABELS = ("vendor", "device", "address", "uuid")
_MEGA = 1_000_000
_MAX_PARAMETERS = 16


class UnknownCollector(ValueError):
    """Say what a scrape asked for that there is not."""


def wants_figures(query: str) -> bool:
    """Return whether the QUERY of a scrape asks for figures; raises UnknownCollector."""
    try:
        wanted = parse_qs(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS).get(PARAMETER, [])
    except ValueError:
        raise UnknownCollector(f"more than {_MAX_PARAMETERS} parameters") from None
    if any(name != COLLECTOR for name in wanted):
        raise UnknownCollector(f"{PARAMETER} can be {COLLECTOR} only")
    return bool(wanted)


def figure_metrics(devices: Iterable[KnownDevice], answers: tuple[VendorFigures, ...]) -> Iterator[Metric]:
    """Yield the metrics of those of DEVICES of which ANSWERS tell; what is unknown has no series."""
    told = {
        (answer.vendor, figures.address, figures.instance): figures
        for answer in answers
        for figures in answer.devices
    }
    pairs = [
        ((device.vendor, device.name, device.accelerator.address, device.uuid or ""), figures)
        for device in devices
        if (figures := told.get((device.vendor, device.accelerator.address, device.instance)))
    ]
    yield gauge(
        "cdigen_figures_success",
        "Whether any device of a vendor told figures in time for this scrape.",
        {(answer.vendor,): float(any(map(is_known, answer.devices))) for answer in answers},
        "vendor",
    )
    for name, text, label, values in _METRICS:
        if samples := _samples(pairs, values):
            yield gauge(name, text, samples, *_LABELS, *((label,) if label else ()))
    if samples := _samples(pairs, _ECC_ERRORS):
        yield counter(
            "cdigen_device_ecc_errors",
            "Errors of the device's memories since its driver was loaded.",
            samples,
            *_LABELS,
            "severity",
        )


def _samples(
    pairs: Sequence[tuple[tuple[str, ...], DeviceFigures]], values: Values
) -> dict[tuple[str, ...], float]:
    return {
        (*labels, *((word,) if word else ())): float(value)
        for labels, figures in pairs
        for word, value in values(figures)
        if value is not None
    }


def _only(name: str) -> Values:
    return lambda figures: (("", getattr(figures, name)),)


def _by(names: dict[str, str], *, factor: int = 1, divisor: int = 1) -> Values:
    return lambda figures: tuple(
        (word, _scaled(getattr(figures, name), factor, divisor)) for word, name in names.items()
    )


def _scaled(value: float | None, factor: int, divisor: int) -> float | None:
    return None if value is None else value * factor / divisor


# Name, text, the further label, values. Units are the base units of Prometheus' conventions.
_METRICS: tuple[tuple[str, str, str, Values], ...] = (
    ("cdigen_device_memory_bytes", "Memory of the device.", "", _only("memory_total")),
    ("cdigen_device_memory_used_bytes", "Memory in use.", "", _only("memory_used")),
    ("cdigen_device_bar1_bytes", "Memory that can be mapped over PCI.", "", _only("bar1_total")),
    ("cdigen_device_bar1_used_bytes", "Memory mapped over PCI.", "", _only("bar1_used")),
    (
        "cdigen_device_utilization_ratio",
        "The part of the time in which an engine was at work, 0 to 1.",
        "engine",
        _by(
            {
                "compute": "utilization",
                "memory": "memory_utilization",
                "encoder": "encoder_utilization",
                "decoder": "decoder_utilization",
            },
            divisor=100,
        ),
    ),
    ("cdigen_device_temperature_celsius", "Temperature.", "", _only("temperature")),
    ("cdigen_device_power_watts", "Power that the device draws.", "", _only("power")),
    ("cdigen_device_power_limit_watts", "Power that it may draw at the most.", "", _only("power_limit")),
    (
        "cdigen_device_clock_hertz",
        "Clock at this moment.",
        "clock",
        _by({"core": "core_clock", "memory": "memory_clock"}, factor=_MEGA),
    ),
    (
        "cdigen_device_clock_max_hertz",
        "The highest clock.",
        "clock",
        _by({"core": "core_clock_max", "memory": "memory_clock_max"}, factor=_MEGA),
    ),
    ("cdigen_device_pcie_generation", "Generation of the PCIe link, now.", "", _only("pcie_generation")),
    (
        "cdigen_device_pcie_generation_max",
        "The highest generation that the link can have.",
        "",
        _only("pcie_generation_max"),
    ),
    ("cdigen_device_pcie_lanes", "Lanes of the PCIe link, now.", "", _only("pcie_width")),
    ("cdigen_device_pcie_lanes_max", "The most lanes that the link can have.", "", _only("pcie_width_max")),
    (
        "cdigen_device_pcie_bytes_per_second",
        "What goes over the PCIe link, sampled for some milliseconds.",
        "direction",
        _by({"received": "pcie_received", "sent": "pcie_sent"}),
    ),
    (
        "cdigen_device_processes",
        "Processes that use the device, counted up to 64.",
        "",
        lambda figures: (("", None if figures.processes is None else len(figures.processes)),),
    ),
)
_ECC_ERRORS = _by({"corrected": "ecc_corrected", "uncorrected": "ecc_uncorrected"})
