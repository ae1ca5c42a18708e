"""The present stats of a device (``DeviceStats``), which are read on demand and are in no inventory."""

from __future__ import annotations

from cdigen.value import frozen

# The maximum number of processes in the stats of a device. The processes with the most memory have priority.
MAX_PROCESSES = 64


@frozen
class DeviceProcess:
    """A process that uses a device: its PID in the host's namespace, its name and its memory in bytes.

    ``name`` is printable and short. The process itself sets ``name``. An unreadable ``name`` is empty.
    """

    pid: int
    name: str
    memory: int | None


@frozen
class DeviceStats:
    """The stats of the device at ``address``, or of its partition ``instance``; None means unknown.

    Units: bytes, percent, degrees Celsius, watts, MHz, bytes per second. ``problem`` is the reason why values
    are missing, or empty. ``ecc_*`` are the numbers of errors since the driver was loaded. ``ecc_corrected``
    and ``ecc_uncorrected`` are for all memories. ``ecc_l1``, ``ecc_l2`` and ``ecc_memory`` are the
    uncorrected errors of one memory. Only NVIDIA devices have ``cores`` and ``compute_capability`` (``9.0``).
    ``processes`` has at most MAX_PROCESSES entries.
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


def is_known(stats: DeviceStats) -> bool:
    """Return whether STATS have at least one known value."""
    return stats != DeviceStats(address=stats.address, instance=stats.instance, problem=stats.problem)
