"""The option ``cdigen inspect --stats``: the current statistics of the devices, as text or JSON."""

from __future__ import annotations

import sys

from cdigen.cli.shared import report
from cdigen.model.stats import DeviceStats
from cdigen.model.strict import as_json
from cdigen.pipeline.device_names import known_devices
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.vendors.context import DiscoveryContext

NO_STATS = "no statistics are available"
_HEADER = ("DEVICE", "MEMORY", "BUSY", "TEMP", "POWER", "CLOCK", "PCIE LINK", "ECC", "")
_GIB = 1 << 30
_MIB = 1 << 20


def show(
    arguments: Namespace,
    context: DiscoveryContext,
    inventories: Mapping[str, Inventory],
    profiles: tuple[Profile, ...],
) -> None:
    """Print the statistics of the devices of INVENTORIES, with the device names of PROFILES."""
    failures: list[Finding] = []
    by_device: dict[tuple[str, str, str], DeviceStats] = {}
    for vendor, inventory in inventories.items():
        read = registry.stats(vendor) if inventory.accelerators else None
        with registry.reporting(vendor, failures):
            found = read(context, inventory) if read is not None else ()
            by_device |= {(vendor, stats.address, stats.instance): stats for stats in found}
    report.print_findings(failures, arguments)
    pairs = tuple(
        (device, _of(device, by_device.get((device.vendor, device.accelerator.address, device.instance))))
        for device in known_devices(inventories, profiles)
    )
    if arguments.json:
        report.print_json([_row(device, stats) for device, stats in pairs])
        return
    tables = (
        (_HEADER, [_cells(device, stats) for device, stats in pairs]),
        (("DEVICE", "PID", "PROCESS", "MEMORY"), _process_cells(pairs)),
    )
    report.write(sys.stdout, "\n".join(report.table(rows, header=header) for header, rows in tables if rows))
    if not pairs:
        report.print_note("no device is known: see 'cdigen inspect'", arguments)


def _of(device: KnownDevice, stats: DeviceStats | None) -> DeviceStats:
    return stats or DeviceStats(
        address=device.accelerator.address, instance=device.instance, problem=NO_STATS
    )


def _row(device: KnownDevice, stats: DeviceStats) -> dict[str, object]:
    return {"device": device.name, "vendor": device.vendor, "uuid": device.uuid, **as_json(stats)}


def _cells(device: KnownDevice, stats: DeviceStats) -> tuple[str, ...]:
    return (
        device.name,
        _share(stats.memory_used, stats.memory_total, _GIB, "GiB"),
        _unit(stats.utilization, "%"),
        _unit(stats.temperature, " C"),
        _share(stats.power, stats.power_limit, 1, "W"),
        _unit(stats.core_clock, " MHz"),
        _link(stats),
        _ecc(stats),
        stats.problem,
    )


def _unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


def _share(value: float | None, most: float | None, size: int, unit: str) -> str:
    """Return VALUE and its maximum MOST as text, such as ``10.0 of 79.6 GiB``."""
    if value is None and most is None:
        return "-"
    digits = 0 if size == 1 else 1
    first, last = ("?" if each is None else f"{each / size:.{digits}f}" for each in (value, most))
    return f"{first} {unit}" if most is None else f"{first} of {last} {unit}"


def _link(stats: DeviceStats) -> str:
    """Return the PCIe link as text, such as ``gen 4 x8``.

    The maximum of the link follows if it differs from the current link.
    """
    now = _generation(stats.pcie_generation, stats.pcie_width)
    most = _generation(stats.pcie_generation_max, stats.pcie_width_max)
    if not now:
        return most or "-"
    return now if most in {now, ""} else f"{now} of {most}"


def _generation(generation: int | None, width: int | None) -> str:
    words = ("" if generation is None else f"gen {generation}", "" if width is None else f"x{width}")
    return " ".join(word for word in words if word)


def _ecc(stats: DeviceStats) -> str:
    if stats.ecc_enabled is False:
        return "off"
    if stats.ecc_uncorrected is None and stats.ecc_corrected is None:
        return "-" if stats.ecc_enabled is None else "on"
    counts = (("uncorrected", stats.ecc_uncorrected), ("corrected", stats.ecc_corrected))
    return ", ".join(f"{count} {word}" for word, count in counts if count) or "no errors"


def _process_cells(pairs: tuple[tuple[KnownDevice, DeviceStats], ...]) -> list[tuple[str, ...]]:
    return [
        (
            device.name,
            str(process.pid),
            process.name or "?",
            "-" if process.memory is None else f"{process.memory / _MIB:.0f} MiB",
        )
        for device, stats in pairs
        for process in stats.processes or ()
    ]
