"""``cdigen inspect --figures``: what the devices do at this moment, as text or as JSON."""

from __future__ import annotations

import sys

from cdigen.cli import report
from cdigen.model.figures import DeviceFigures
from cdigen.model.strict import as_json
from cdigen.pipeline.device_names import known_devices
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.vendors.base import DiscoveryContext

NOBODY = "nobody tells its figures"
_HEADER = ("DEVICE", "MEMORY", "BUSY", "TEMP", "POWER", "CLOCK", "PCIE LINK", "ECC", "")
_GIB = 1 << 30
_MIB = 1 << 20


def show(
    arguments: Namespace,
    context: DiscoveryContext,
    inventories: Mapping[str, Inventory],
    profiles: tuple[Profile, ...],
) -> None:
    """Print the figures of the devices of INVENTORIES, which are called as PROFILES say."""
    told = {
        (vendor, figures.address, figures.instance): figures
        for vendor, inventory in inventories.items()
        if inventory.accelerators and (health := registry.health(vendor)) is not None
        for figures in health.figures(context, inventory)
    }
    pairs = tuple(
        (device, _of(device, told.get((device.vendor, device.accelerator.address, device.instance))))
        for device in known_devices(inventories, profiles)
    )
    if arguments.json:
        report.print_json([_row(device, figures) for device, figures in pairs])
        return
    tables = (
        (_HEADER, [_cells(device, figures) for device, figures in pairs]),
        (("DEVICE", "PID", "PROCESS", "MEMORY"), _process_cells(pairs)),
    )
    report.write(sys.stdout, "\n".join(report.table(rows, header=header) for header, rows in tables if rows))
    if not pairs:
        report.print_note("no device is known: see 'cdigen inspect'", arguments)


def _of(device: KnownDevice, figures: DeviceFigures | None) -> DeviceFigures:
    return figures or DeviceFigures(
        address=device.accelerator.address, instance=device.instance, problem=NOBODY
    )


def _row(device: KnownDevice, figures: DeviceFigures) -> dict[str, object]:
    return {"device": device.name, "vendor": device.vendor, "uuid": device.uuid, **as_json(figures)}


def _cells(device: KnownDevice, figures: DeviceFigures) -> tuple[str, ...]:
    return (
        device.name,
        _share(figures.memory_used, figures.memory_total, _GIB, "GiB"),
        _unit(figures.utilization, "%"),
        _unit(figures.temperature, " C"),
        _share(figures.power, figures.power_limit, 1, "W"),
        _unit(figures.core_clock, " MHz"),
        _link(figures),
        _ecc(figures),
        figures.problem,
    )


def _unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


def _share(value: float | None, most: float | None, size: int, unit: str) -> str:
    """Return ``10.0 of 79.6 GiB``."""
    if value is None and most is None:
        return "-"
    digits = 0 if size == 1 else 1
    first, last = ("?" if each is None else f"{each / size:.{digits}f}" for each in (value, most))
    return f"{first} {unit}" if most is None else f"{first} of {last} {unit}"


def _link(figures: DeviceFigures) -> str:
    """Return ``gen 4 x8``, and what the link can be where it is less."""
    now = _generation(figures.pcie_generation, figures.pcie_width)
    most = _generation(figures.pcie_generation_max, figures.pcie_width_max)
    if not now:
        return most or "-"
    return now if most in {now, ""} else f"{now} of {most}"


def _generation(generation: int | None, width: int | None) -> str:
    words = ("" if generation is None else f"gen {generation}", "" if width is None else f"x{width}")
    return " ".join(word for word in words if word)


def _ecc(figures: DeviceFigures) -> str:
    if figures.ecc_enabled is False:
        return "off"
    if figures.ecc_uncorrected is None and figures.ecc_corrected is None:
        return "-" if figures.ecc_enabled is None else "on"
    counts = (("uncorrected", figures.ecc_uncorrected), ("corrected", figures.ecc_corrected))
    return ", ".join(f"{count} {word}" for word, count in counts if count) or "no errors"


def _process_cells(pairs: tuple[tuple[KnownDevice, DeviceFigures], ...]) -> list[tuple[str, ...]]:
    return [
        (
            device.name,
            str(process.pid),
            process.name or "?",
            "-" if process.memory is None else f"{process.memory / _MIB:.0f} MiB",
        )
        for device, figures in pairs
        for process in figures.processes or ()
    ]
