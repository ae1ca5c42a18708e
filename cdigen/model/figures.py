"""What a device does at this moment (``DeviceFigures``); read on demand only, never kept in an inventory."""

from __future__ import annotations

from cdigen.value import frozen

# The most processes of a device that are told, those with most memory.
MAX_PROCESSES = 64


@frozen
class DeviceProcess:
    """A process that uses a device: its number in the host's namespace, its name, its memory in bytes.

    ``name`` is printable and short; it comes from the process itself. It is empty where it cannot be read.
    """

    pid: int
    name: str
    memory: int | None


@frozen
class DeviceFigures:
    """The figures of the device at ``address``, or of its partition ``instance``; None is unknown.

    Bytes, percent, degrees Celsius, watts, MHz, bytes a second. ``problem`` says why figures are missing that
    the device has otherwise (``it sleeps``), or is empty. ``ecc_*`` count the errors since the driver was
    loaded, in all memories or in the one named (``ecc_l1``: of the first cache, uncorrected). ``cores`` and
    ``compute_capability`` (``9.0``) are NVIDIA's. ``processes`` is None where they cannot be known; it has
    MAX_PROCESSES at the most.
    """

    address: str
    instance: str = ""
    problem: str = ""
    memory_total: int | None = None
    memory_used: int | None = None
    bar1_total: int | None = None
    bar1_used: int | None = None
    utilization: float | None = None
    memory_utilization: float | None = None
    encoder_utilization: float | None = None
    decoder_utilization: float | None = None
    temperature: float | None = None
    power: float | None = None
    power_limit: float | None = None
    core_clock: int | None = None
    memory_clock: int | None = None
    core_clock_max: int | None = None
    memory_clock_max: int | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_received: int | None = None
    pcie_sent: int | None = None
    ecc_enabled: bool | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    ecc_l1: int | None = None
    ecc_l2: int | None = None
    ecc_memory: int | None = None
    memory_bus_width: int | None = None
    cores: int | None = None
    compute_capability: str | None = None
    processes: tuple[DeviceProcess, ...] | None = None


def is_known(figures: DeviceFigures) -> bool:
    """Return whether FIGURES tell anything."""
    return figures != DeviceFigures(
        address=figures.address, instance=figures.instance, problem=figures.problem
    )
