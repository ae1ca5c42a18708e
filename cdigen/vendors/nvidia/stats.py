"""Read the statistics of NVIDIA's GPUs and MIG instances from NVML in a child process (``STATS``)."""

from __future__ import annotations

from cdigen.host.procfs import process_name
from cdigen.model.stats import MAX_PROCESSES, DeviceProcess, DeviceStats
from cdigen.value import replace
from cdigen.vendors.nvidia.nvml.readiness import is_suspended, library_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.nvidia.nvml.document import NvmlGpu, NvmlValues

SUSPENDED = "the device is suspended, and a query would resume it"
# In seconds. Without nvidia-persistenced, the start of NVML takes several seconds.
DEADLINE_S = 10.0
ALONE_S = 2.0
# Failures of the whole query that a single GPU may cause.
_CRASHES = frozenset({"nvml-crashed", "nvml-invalid-output"})
# The maximum valid values. cdigen does not show a greater value, because the value is an error of NVML.
MAX_PERCENT = 100
MAX_CELSIUS = 200
MAX_WATTS = 100_000
MAX_MHZ = 100_000
MAX_GENERATION = 15
MAX_LANES = 32
MAX_COMPUTE = 999
_KILO = 1000


def read_stats(
    context: DiscoveryContext, inventory: Inventory, *, deadline_s: float = DEADLINE_S
) -> tuple[DeviceStats, ...]:
    """Return the statistics of INVENTORY's GPUs and of the GPUs' MIG instances; raise no exception.

    The function does not resume suspended GPUs. If no value of a GPU is known, the result contains the
    reason. DEADLINE_S is the time limit for NVML in seconds.
    """
    active = tuple(
        gpu.address for gpu in inventory.accelerators if not is_suspended(context.host, gpu.address)
    )
    library, problem = library_of(context, inventory)
    replies: dict[str | None, NvmlGpu] = {}
    if library and active:
        replies, problem = _query(library, active, deadline_s)
    return tuple(
        each
        for gpu in inventory.accelerators
        for each in _of_gpu(
            context.host, gpu, replies.get(gpu.address), problem if gpu.address in active else SUSPENDED
        )
    )


def _query(
    library: str, addresses: tuple[str, ...], deadline_s: float
) -> tuple[dict[str | None, NvmlGpu], str]:
    """Return NVML's entries for the GPUs at ADDRESSES, and the reason why entries are missing.

    If NVML crashes, the function queries each GPU separately, because a single GPU may be the cause. The time
    limit of each query is an equal part of the remaining time, or ALONE_S if this is longer. The limit never
    exceeds the remaining time.
    """
    import time  # noqa: PLC0415 - on demand

    from cdigen.vendors.nvidia.nvml.query import query  # noqa: PLC0415 - on demand

    began_s = time.monotonic()
    answer = query(library, what=("stats",), addresses=addresses, deadline_s=deadline_s)
    if answer.report is not None:
        return {gpu.address: gpu for gpu in answer.report.gpus}, "NVML does not list the GPU"
    problem = next((finding.message for finding in answer.findings), "NVML does not answer")
    replies: dict[str | None, NvmlGpu] = {}
    if len(addresses) > 1 and any(finding.rule in _CRASHES for finding in answer.findings):
        for place, address in enumerate(addresses):
            left_s = deadline_s - (time.monotonic() - began_s)
            share_s = left_s / (len(addresses) - place)
            if left_s > 0:
                replies |= _query(library, (address,), min(left_s, max(share_s, ALONE_S)))[0]
    return replies, problem


def _of_gpu(host: Root, gpu: Accelerator, reply: NvmlGpu | None, problem: str) -> Iterator[DeviceStats]:
    """Yield the statistics of GPU and of its partitions from REPLY.

    PROBLEM is the reason if REPLY has no statistics.
    """
    found = reply.stats if reply is not None else None
    error = reply.error or (found.error if found is not None else None) if reply is not None else None
    if error is not None:
        problem = f"NVML call failed: {error.call} returned {error.name} ({error.code})"
    elif found is not None:
        problem = ""
    blank = DeviceStats(address=gpu.address, problem=problem)
    yield blank if found is None else _filled(blank, host, found.values)
    listed = found.migs if found is not None else ()
    migs = {f"gi{mig.gpu_instance}/ci{mig.compute_instance}": mig.values for mig in listed}
    for part in gpu.partitions:
        blank_part = replace(blank, instance=part.instance)
        if part.instance in migs:
            yield _filled(blank_part, host, migs[part.instance])
        else:
            yield replace(blank_part, problem=problem or "NVML does not list the MIG instance")


def _filled(blank: DeviceStats, host: Root, values: NvmlValues) -> DeviceStats:
    has_compute = values.compute_major is not None and values.compute_minor is not None
    major, minor = _within(values.compute_major, MAX_COMPUTE), _within(values.compute_minor, MAX_COMPUTE)
    return replace(
        blank,
        memory_total=values.memory_total or None,
        memory_used=values.memory_used if values.memory_total else None,
        bar1_total=values.bar1_total or None,
        bar1_used=values.bar1_used if values.bar1_total else None,
        utilization=_within(values.utilization, MAX_PERCENT),
        memory_utilization=_within(values.memory_utilization, MAX_PERCENT),
        encoder_utilization=_within(values.encoder_utilization, MAX_PERCENT),
        decoder_utilization=_within(values.decoder_utilization, MAX_PERCENT),
        temperature=_within(values.temperature, MAX_CELSIUS),
        power=_watts(values.power),
        power_limit=_watts(values.power_limit),
        core_clock=_within(values.core_clock, MAX_MHZ),
        memory_clock=_within(values.memory_clock, MAX_MHZ),
        core_clock_max=_within(values.core_clock_max, MAX_MHZ),
        memory_clock_max=_within(values.memory_clock_max, MAX_MHZ),
        pcie_generation=_within(values.pcie_generation, MAX_GENERATION) or None,
        pcie_generation_max=_within(values.pcie_generation_max, MAX_GENERATION) or None,
        pcie_width=_within(values.pcie_width, MAX_LANES) or None,
        pcie_width_max=_within(values.pcie_width_max, MAX_LANES) or None,
        pcie_received=_bytes(values.pcie_received),
        pcie_sent=_bytes(values.pcie_sent),
        ecc_enabled=None if values.ecc_enabled is None else values.ecc_enabled == 1,
        ecc_corrected=values.ecc_corrected,
        ecc_uncorrected=values.ecc_uncorrected,
        ecc_l1=values.ecc_l1,
        ecc_l2=values.ecc_l2,
        ecc_memory=values.ecc_memory,
        memory_bus_width=values.memory_bus_width or None,
        cores=values.cores or None,
        compute_capability=f"{major}.{minor}" if has_compute and major is not None else None,
        processes=None
        if values.processes is None
        else tuple(
            DeviceProcess(pid=each.pid, name=process_name(host, each.pid), memory=each.memory)
            for each in values.processes[:MAX_PROCESSES]
        ),
    )


def _within(value: int | None, most: int) -> int | None:
    return value if value is not None and value <= most else None


def _watts(milliwatts: int | None) -> float | None:
    watts = _within(milliwatts, MAX_WATTS * _KILO)
    return None if watts is None else watts / _KILO


def _bytes(kilobytes: int | None) -> int | None:
    return None if kilobytes is None else kilobytes * _KILO


STATS = read_stats
