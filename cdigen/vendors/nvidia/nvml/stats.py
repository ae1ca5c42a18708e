"""The statistics of a GPU in NVML's reply (``NvmlStats``). child/stats.py writes these values."""

from __future__ import annotations

from cdigen.model.strict import many, number, optional, record, typed_record, whole
from cdigen.value import frozen
from cdigen.vendors.nvidia.nvml.parts import ERROR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.nvidia.nvml.parts import NvmlError

MAX_AMOUNT = 1 << 62


@frozen
class NvmlProcess:
    """A process that uses the device. ``memory`` is in bytes, or None if NVML does not report it."""

    pid: int
    memory: int | None


@frozen
class NvmlValues:
    """The statistics of a GPU or MIG device, in NVML's units. An unknown value is None.

    Memory is in bytes, power in milliwatts, clocks in MHz, and PCIe traffic in KB/s. All other values have
    the same units as in ``DeviceStats``. ``ecc_enabled`` is 0 or 1.
    """

    memory_total: int | None
    memory_used: int | None
    bar1_total: int | None
    bar1_used: int | None
    temperature: int | None
    power: int | None
    power_limit: int | None
    utilization: int | None
    memory_utilization: int | None
    encoder_utilization: int | None
    decoder_utilization: int | None
    core_clock: int | None
    memory_clock: int | None
    core_clock_max: int | None
    memory_clock_max: int | None
    pcie_generation: int | None
    pcie_generation_max: int | None
    pcie_width: int | None
    pcie_width_max: int | None
    ecc_enabled: int | None
    ecc_corrected: int | None
    ecc_uncorrected: int | None
    ecc_l1: int | None
    ecc_l2: int | None
    ecc_memory: int | None
    memory_bus_width: int | None
    cores: int | None
    compute_major: int | None
    compute_minor: int | None
    pcie_received: int | None
    pcie_sent: int | None
    processes: tuple[NvmlProcess, ...] | None


@frozen
class NvmlMigStats:
    """The statistics of a MIG device, with the ids of its GPU instance and compute instance."""

    gpu_instance: int
    compute_instance: int
    values: NvmlValues


@frozen
class NvmlStats:
    """The current statistics of a GPU. If values are missing because of an error, ``error`` is set."""

    error: NvmlError | None
    values: NvmlValues
    migs: tuple[NvmlMigStats, ...]


_AMOUNT = whole(0, MAX_AMOUNT - 1)
_PROCESS = record(NvmlProcess, pid=number, memory=optional(_AMOUNT))
_NUMBERS = tuple(name for name in NvmlValues.__annotations__ if name != "processes")
_VALUES = record(NvmlValues, **dict.fromkeys(_NUMBERS, optional(_AMOUNT)), processes=optional(many(_PROCESS)))
_MIG = typed_record(NvmlMigStats, values=_VALUES)
READER = record(NvmlStats, error=ERROR, values=_VALUES, migs=many(_MIG))
