"""What NVIDIA's GPUs and MIG instances do at this moment, by NVML in its child process: ``figures``."""

from __future__ import annotations

from cdigen.model.figures import MAX_PROCESSES, DeviceFigures, DeviceProcess
from cdigen.value import replace
from cdigen.vendors.kernel.processes import process_name
from cdigen.vendors.nvidia.nvml.library import library_of
from cdigen.vendors.nvidia.sleep import is_asleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.nvidia.nvml.document import NvmlGpu
    from cdigen.vendors.nvidia.nvml.figures import NvmlValues

ASLEEP = "it sleeps, and asking would wake it"
# NVML's start without nvidia-persistenced takes seconds.
DEADLINE_S = 10.0
ALONE_S = 2.0
# What one GPU may do to NVML.
_CRASHES = frozenset({"nvml-crashed", "nvml-garbage"})
# Above these a number of NVML's is none: an error of the library is not shown as a figure.
MAX_PERCENT = 100
MAX_CELSIUS = 200
MAX_WATTS = 100_000
MAX_MHZ = 100_000
MAX_GENERATION = 15
MAX_LANES = 32
MAX_COMPUTE = 999
_KILO = 1000


def figures(
    context: DiscoveryContext, inventory: Inventory, *, deadline_s: float = DEADLINE_S
) -> tuple[DeviceFigures, ...]:
    """Return the figures of INVENTORY's GPUs and of their MIG instances; no GPU that sleeps is woken.

    Those of which nothing is known say why; never raises. DEADLINE_S is NVML's.
    """
    awake = tuple(gpu.address for gpu in inventory.accelerators if not is_asleep(context.host, gpu.address))
    library, problem = library_of(context, inventory)
    told: dict[str | None, NvmlGpu] = {}
    if library and awake:
        told, problem = _asked(library, awake, deadline_s)
    return tuple(
        each
        for gpu in inventory.accelerators
        for each in _of_gpu(
            context.host, gpu, told.get(gpu.address), problem if gpu.address in awake else ASLEEP
        )
    )


def _asked(
    library: str, addresses: tuple[str, ...], deadline_s: float
) -> tuple[dict[str | None, NvmlGpu], str]:
    """Return what NVML tells of the GPUs at ADDRESSES, and why that is not all.

    If NVML crashes, each GPU is asked alone, since the cause may be one of them. Each has ALONE_S, or its
    share of the time that is left if that is longer.
    """
    import time  # noqa: PLC0415 - few ask for figures

    from cdigen.vendors.nvidia.nvml.ask import ask  # noqa: PLC0415 - likewise

    began_s = time.monotonic()
    answer = ask(library, what=("figures",), addresses=addresses, deadline_s=deadline_s)
    if answer.report is not None:
        return {gpu.address: gpu for gpu in answer.report.gpus}, "NVML does not tell of it"
    problem = next((finding.message for finding in answer.findings), "NVML is silent")
    told: dict[str | None, NvmlGpu] = {}
    if len(addresses) > 1 and any(finding.rule in _CRASHES for finding in answer.findings):
        for place, address in enumerate(addresses):
            left_s = deadline_s - (time.monotonic() - began_s)
            share_s = left_s / (len(addresses) - place)
            if left_s > 0:
                told |= _asked(library, (address,), min(left_s, max(share_s, ALONE_S)))[0]
    return told, problem


def _of_gpu(host: Root, gpu: Accelerator, told: NvmlGpu | None, problem: str) -> Iterator[DeviceFigures]:
    """Yield the figures of GPU and of its partitions; PROBLEM is why NVML TOLD nothing."""
    found = told.figures if told is not None else None
    error = told.error or (found.error if found is not None else None) if told is not None else None
    if error is not None:
        problem = f"NVML does not tell all: {error.call} gives {error.name} ({error.code})"
    elif found is not None:
        problem = ""
    blank = DeviceFigures(address=gpu.address, problem=problem)
    yield blank if found is None else _filled(blank, host, found.values)
    migs = (
        {}
        if found is None
        else {f"gi{mig.gpu_instance}/ci{mig.compute_instance}": mig.values for mig in found.migs}
    )
    for part in gpu.partitions:
        mine = replace(blank, instance=part.instance)
        if part.instance in migs:
            yield _filled(mine, host, migs[part.instance])
        else:
            yield replace(mine, problem=problem or "NVML does not tell of it")


def _filled(blank: DeviceFigures, host: Root, values: NvmlValues) -> DeviceFigures:
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
