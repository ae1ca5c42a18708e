"""What a GPU and its MIG devices do at this moment: the part ``figures``, in NVML's own units."""

from __future__ import annotations

from session import UNASKED, NvmlCallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from session import Nvml

    # The call, its arguments, and what of its result is which figure.
    Calls = tuple[tuple[str, tuple[int, ...], dict[str, Callable[[Any], Any]]], ...]

# Errors after which the GPU, or NVML, answers nothing more; any other costs one figure.
LAST_WORDS = frozenset({1, 9, 15, 16})  # UNINITIALIZED, DRIVER_NOT_LOADED, GPU_IS_LOST, RESET_REQUIRED

MAX_PROCESSES = 64
# 64 bits set are "not available" (NVML_VALUE_NOT_AVAILABLE), and anything near it no amount.
MOST = 1 << 62

_MEMORY_V2 = 0x02000028  # nvmlMemory_v2: its used memory is without the driver's own, as nvidia-smi shows it
_SM, _MEM = 1, 2  # nvmlClockType_t
_CORRECTED, _UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
_VOLATILE = 0  # nvmlEccCounterType_t: since the driver was loaded
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
    # The newer function, which will be the only one, and that of older drivers.
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
FIGURES = (
    "memory_total",
    "memory_used",
    *(name for _, _, picks in (*_OF_ANY, *_OF_GPU, *_THROUGHPUT) for name in picks),
)

_PROCESS_LISTS = (
    # Of drivers since 510, and before.
    ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
)


def blank() -> dict[str, Any]:
    """Return the part of a GPU of which nothing is known."""
    return {"values": values(), "migs": []}


def values() -> dict[str, Any]:
    """Return the figures of a device of which nothing is known."""
    return {**dict.fromkeys(FIGURES), "processes": None}


def tell(nvml: Nvml, part: dict[str, Any], handle: object, _handles: list[object | None]) -> None:
    """Fill in PART of the GPU HANDLE; what fails is its error, and costs one figure.

    Raises NvmlCallError where the GPU is gone, and leaves what it has read by then.
    """
    told = _Telling(nvml, part)
    told.fill(part["values"], handle, (*_OF_ANY, *_OF_GPU))
    for device in told.migs(handle):
        entry: dict[str, Any] = {
            "gpu_instance": told.value("nvmlDeviceGetGpuInstanceId", device),
            "compute_instance": told.value("nvmlDeviceGetComputeInstanceId", device),
            "values": values(),
        }
        if None not in {entry["gpu_instance"], entry["compute_instance"]}:
            part["migs"].append(entry)
            told.fill(entry["values"], device, _OF_ANY)
    # Last, as each measures for 20 ms.
    told.read(part["values"], handle, _THROUGHPUT)


class _Telling:
    """Reads the figures of one GPU; the first error is that of its PART."""

    def __init__(self, nvml: Nvml, part: dict[str, Any]) -> None:
        self._nvml = nvml
        self._part = part

    def value(self, function: str, *arguments: object) -> Any:
        """Return what FUNCTION gives, None where it fails; raises NvmlCallError where all will."""
        try:
            return self._nvml.value(function, *arguments)
        except NvmlCallError as refusal:
            if refusal.code in LAST_WORDS:
                raise
            if refusal.code not in UNASKED:
                self._part["error"] = self._part["error"] or refusal.document
            return None

    def fill(
        self,
        entry: dict[str, Any],
        handle: object,
        calls: Calls,
    ) -> None:
        """Fill in ENTRY of the device HANDLE: its memory, what CALLS give, its processes."""
        memory = self._memory(handle)
        if memory is not None:
            entry["memory_total"], entry["memory_used"] = amount(memory.total), amount(memory.used)
        self.read(entry, handle, calls)
        entry["processes"] = self._processes(handle)

    def read(
        self,
        entry: dict[str, Any],
        handle: object,
        calls: Calls,
    ) -> None:
        """Put what CALLS give of the device HANDLE into ENTRY."""
        for function, arguments, picks in calls:
            given = self.value(function, handle, *arguments)
            if given is not None:
                entry |= {name: amount(pick(given)) for name, pick in picks.items()}

    def migs(self, handle: object) -> Iterable[object]:
        """Yield the MIG devices of the GPU HANDLE."""
        modes = self.value("nvmlDeviceGetMigMode", handle)
        if modes is None or not modes[0]:
            return
        for position in range(self.value("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            try:
                # Positions without a device are as good as any.
                yield self._nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, position)
            except NvmlCallError as refusal:
                if refusal.code in LAST_WORDS:
                    raise

    def _memory(self, handle: object) -> Any:
        try:
            return self._nvml.call("nvmlDeviceGetMemoryInfo", handle, _MEMORY_V2)
        except NvmlCallError as refusal:
            if refusal.code in LAST_WORDS:
                raise
        return self.value("nvmlDeviceGetMemoryInfo", handle)  # a driver before 510

    def _processes(self, handle: object) -> list[dict[str, Any]] | None:
        """Return the processes that use the device HANDLE, those with most memory; None: it is not told."""
        listed: dict[int, int | None] = {}
        is_told = False
        for functions in _PROCESS_LISTS:
            given = (self.value(function, handle) for function in functions)
            found = next((each for each in given if each is not None), None)
            if found is not None:
                is_told = True
                listed |= {each.pid: amount(each.usedGpuMemory) for each in found}
        if not is_told:
            return None
        most = sorted(listed.items(), key=lambda each: (-(each[1] or 0), each[0]))[:MAX_PROCESSES]
        return [{"pid": pid, "memory": memory} for pid, memory in most]


def amount(value: object) -> int | None:
    """Return VALUE if it can be an amount, else None."""
    return value if isinstance(value, int) and 0 <= value < MOST else None
