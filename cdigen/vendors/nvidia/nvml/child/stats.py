"""Read the part ``stats`` of a GPU's entry: the GPU's and its MIG devices' statistics in NVML's units."""

from __future__ import annotations

from session import NO_MIG_DEVICE, NOT_AVAILABLE, NvmlCallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from session import Nvml

    # (function, arguments, name of a value -> function that reads the value from the result).
    Calls = tuple[tuple[str, tuple[int, ...], dict[str, Callable[[Any], Any]]], ...]

# After these errors, all further calls fail. Other errors affect only one value.
FATAL_CODES = frozenset({1, 9, 15, 16})  # UNINITIALIZED, DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED

MAX_PROCESSES = 64
# A value with 64 set bits means "not available" (NVML_VALUE_NOT_AVAILABLE). All values of at least MOST are
# invalid.
MOST = 1 << 62

_MEMORY_V2 = 0x02000028  # nvmlMemory_v2; "used" is without the driver's own memory, as in nvidia-smi
_SM, _MEM = 1, 2  # nvmlClockType_t
_CORRECTED, _UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
_VOLATILE = 0  # nvmlEccCounterType_t: errors since the driver was loaded
_L1, _L2, _DRAM = 0, 1, 2  # nvmlMemoryLocation_t
_SENT, _RECEIVED = 0, 1  # nvmlPcieUtilCounter_t
_GPU_SENSOR = 0  # nvmlTemperatureSensors_t


def _itself(value: Any) -> Any:
    return value


def _first(value: Any) -> Any:
    return value[0]


_OF_ANY: Calls = (
    (
        "nvmlDeviceGetBAR1MemoryInfo",
        (),
        {"bar1_total": lambda info: info.bar1Total, "bar1_used": lambda info: info.bar1Used},
    ),
)
_OF_GPU: Calls = (
    # The first function will replace the second function. Older drivers have only the second function.
    ("nvmlDeviceGetTemperatureV1", (_GPU_SENSOR,), {"temperature": _itself}),
    ("nvmlDeviceGetTemperature", (_GPU_SENSOR,), {"temperature": _itself}),
    ("nvmlDeviceGetPowerUsage", (), {"power": _itself}),
    ("nvmlDeviceGetEnforcedPowerLimit", (), {"power_limit": _itself}),
    (
        "nvmlDeviceGetUtilizationRates",
        (),
        {"utilization": lambda rates: rates.gpu, "memory_utilization": lambda rates: rates.memory},
    ),
    ("nvmlDeviceGetEncoderUtilization", (), {"encoder_utilization": _first}),
    ("nvmlDeviceGetDecoderUtilization", (), {"decoder_utilization": _first}),
    ("nvmlDeviceGetClockInfo", (_SM,), {"core_clock": _itself}),
    ("nvmlDeviceGetClockInfo", (_MEM,), {"memory_clock": _itself}),
    ("nvmlDeviceGetMaxClockInfo", (_SM,), {"core_clock_max": _itself}),
    ("nvmlDeviceGetMaxClockInfo", (_MEM,), {"memory_clock_max": _itself}),
    ("nvmlDeviceGetCurrPcieLinkGeneration", (), {"pcie_generation": _itself}),
    ("nvmlDeviceGetMaxPcieLinkGeneration", (), {"pcie_generation_max": _itself}),
    ("nvmlDeviceGetCurrPcieLinkWidth", (), {"pcie_width": _itself}),
    ("nvmlDeviceGetMaxPcieLinkWidth", (), {"pcie_width_max": _itself}),
    ("nvmlDeviceGetEccMode", (), {"ecc_enabled": _first}),
    ("nvmlDeviceGetTotalEccErrors", (_CORRECTED, _VOLATILE), {"ecc_corrected": _itself}),
    ("nvmlDeviceGetTotalEccErrors", (_UNCORRECTED, _VOLATILE), {"ecc_uncorrected": _itself}),
    ("nvmlDeviceGetMemoryErrorCounter", (_UNCORRECTED, _VOLATILE, _L1), {"ecc_l1": _itself}),
    ("nvmlDeviceGetMemoryErrorCounter", (_UNCORRECTED, _VOLATILE, _L2), {"ecc_l2": _itself}),
    ("nvmlDeviceGetMemoryErrorCounter", (_UNCORRECTED, _VOLATILE, _DRAM), {"ecc_memory": _itself}),
    ("nvmlDeviceGetMemoryBusWidth", (), {"memory_bus_width": _itself}),
    ("nvmlDeviceGetNumGpuCores", (), {"cores": _itself}),
    (
        "nvmlDeviceGetCudaComputeCapability",
        (),
        {"compute_major": _first, "compute_minor": lambda pair: pair[1]},
    ),
)
_THROUGHPUT: Calls = (
    ("nvmlDeviceGetPcieThroughput", (_RECEIVED,), {"pcie_received": _itself}),
    ("nvmlDeviceGetPcieThroughput", (_SENT,), {"pcie_sent": _itself}),
)
STATS = (
    "memory_total",
    "memory_used",
    *(name for _, _, picks in (*_OF_ANY, *_OF_GPU, *_THROUGHPUT) for name in picks),
)

_PROCESS_LISTS = (
    # In each row, the first function is for drivers since 510, and the second is for older drivers.
    ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
)


def blank() -> dict[str, Any]:
    """Return the part ``stats`` without values."""
    return {"values": values(), "migs": []}


def values() -> dict[str, Any]:
    """Return the names of a device's statistics, each with the value None."""
    return {**dict.fromkeys(STATS), "processes": None}


def read(nvml: Nvml, part: dict[str, Any], handle: object, _handles: list[object | None]) -> None:
    """Write the statistics of the GPU HANDLE into PART.

    A failed call is recorded as the error of PART, and affects only one value. If the GPU is lost, the
    function raises NvmlCallError. PART then contains the values that were read before the error.
    """
    reader = _StatsReader(nvml, part)
    reader.fill(part["values"], handle, (*_OF_ANY, *_OF_GPU))
    for device in reader.migs(handle):
        entry: dict[str, Any] = {
            "gpu_instance": reader.value("nvmlDeviceGetGpuInstanceId", device, is_required=True),
            "compute_instance": reader.value("nvmlDeviceGetComputeInstanceId", device, is_required=True),
            "values": values(),
        }
        if None not in {entry["gpu_instance"], entry["compute_instance"]}:
            part["migs"].append(entry)
            reader.fill(entry["values"], device, _OF_ANY)
    # These calls are the last, because each call measures for 20 ms.
    reader.read(part["values"], handle, _THROUGHPUT)


class _StatsReader:
    """Reads the statistics of one GPU. The first error is recorded as the error of PART."""

    def __init__(self, nvml: Nvml, part: dict[str, Any]) -> None:
        self._nvml = nvml
        self._part = part

    def value(self, function: str, *arguments: object, is_required: bool = False) -> Any:
        """Return the result of FUNCTION, or None if the call fails.

        If IS_REQUIRED is set, "not supported" is also an error of the part. The function raises NvmlCallError
        if all further calls would also fail.
        """
        try:
            return self._nvml.call(function, *arguments)
        except NvmlCallError as refusal:
            if is_required or refusal.code not in NOT_AVAILABLE:
                self._record(refusal)
            return None

    def _record(self, refusal: NvmlCallError) -> None:
        """Record the first error of the part; raise REFUSAL again if all further calls would also fail."""
        if refusal.code in FATAL_CODES:
            raise refusal
        self._part["error"] = self._part["error"] or refusal.document

    def fill(self, entry: dict[str, Any], handle: object, calls: Calls) -> None:
        """Write the memory, the results of CALLS and the processes of the device HANDLE into ENTRY."""
        memory = self._memory(handle)
        if memory is not None:
            entry["memory_total"], entry["memory_used"] = amount(memory.total), amount(memory.used)
        self.read(entry, handle, calls)
        entry["processes"] = self._processes(handle)

    def read(self, entry: dict[str, Any], handle: object, calls: Calls) -> None:
        """Add the results of CALLS for the device HANDLE to ENTRY."""
        for function, arguments, picks in calls:
            result = self.value(function, handle, *arguments)
            if result is not None:
                entry |= {name: amount(pick(result)) for name, pick in picks.items()}

    def migs(self, handle: object) -> Iterable[object]:
        """Yield the MIG devices of the GPU HANDLE."""
        modes = self.value("nvmlDeviceGetMigMode", handle)
        if modes is None or not modes[0]:
            return
        # While MIG is on, "not supported" is an error, as in the part ``identity``.
        count = self.value("nvmlDeviceGetMaxMigDeviceCount", handle, is_required=True) or 0
        for position in range(count):
            try:
                yield self._nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, position)
            except NvmlCallError as refusal:
                # A position without a device is normal, as in the part ``identity``.
                if refusal.code not in NO_MIG_DEVICE:
                    self._record(refusal)

    def _memory(self, handle: object) -> Any:
        try:
            return self._nvml.call("nvmlDeviceGetMemoryInfo", handle, _MEMORY_V2)
        except NvmlCallError as refusal:
            if refusal.code in FATAL_CODES:
                raise
        return self.value("nvmlDeviceGetMemoryInfo", handle)  # a driver before 510

    def _processes(self, handle: object) -> list[dict[str, Any]] | None:
        """Return the processes that use the device HANDLE, or None if NVML does not report processes.

        The result has at most MAX_PROCESSES processes. Processes with more memory come first.
        """
        listed: dict[int, int | None] = {}
        is_listed = False
        for functions in _PROCESS_LISTS:
            result = (self.value(function, handle) for function in functions)
            found = next((each for each in result if each is not None), None)
            if found is not None:
                is_listed = True
                listed |= {each.pid: amount(each.usedGpuMemory) for each in found}
        if not is_listed:
            return None
        most = sorted(listed.items(), key=lambda each: (-(each[1] or 0), each[0]))[:MAX_PROCESSES]
        return [{"pid": pid, "memory": memory} for pid, memory in most]


def amount(value: object) -> int | None:
    """Return VALUE if it is a valid amount, else None."""
    return value if isinstance(value, int) and 0 <= value < MOST else None
