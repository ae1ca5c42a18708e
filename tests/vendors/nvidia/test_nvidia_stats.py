"""Statistics of NVIDIA's GPUs. The real child process and the real pynvml query a stand-in library."""

import os
import sys
import time
from pathlib import Path

import pytest
from support.hosts.driver_files import link, put
from support.nvml.standin import Gpu, Instance, Machine, gpu, install, uuid
from support.values import devices
from support.waiting import PATIENCE_S, limited

from cdigen.host.root import Root
from cdigen.model.inventory import Inventory, Partition
from cdigen.model.stats import MAX_PROCESSES, DeviceProcess, DeviceStats
from cdigen.value import fields
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.nvidia.nvml.query import query
from cdigen.vendors.nvidia.stats import SUSPENDED, read_stats

GIB = 1 << 30
# The values of an H100 in NVML's units.
BUSY = (
    f"memory-used 0 {10 * GIB}",
    f"nvmlDeviceGetBAR1MemoryInfo 0 {128 * GIB} {2 << 20}",
    "nvmlDeviceGetTemperature 0 56",
    "nvmlDeviceGetPowerUsage 0 346120",
    "nvmlDeviceGetEnforcedPowerLimit 0 700000",
    "nvmlDeviceGetUtilizationRates 0 97 31",
    "nvmlDeviceGetEncoderUtilization 0 3 167000",
    "nvmlDeviceGetDecoderUtilization 0 4 167000",
    "nvmlDeviceGetClockInfo 1 1755",
    "nvmlDeviceGetClockInfo 2 2619",
    "nvmlDeviceGetMaxClockInfo 1 1980",
    "nvmlDeviceGetMaxClockInfo 2 2620",
    "nvmlDeviceGetCurrPcieLinkGeneration 0 4",
    "nvmlDeviceGetMaxPcieLinkGeneration 0 5",
    "nvmlDeviceGetCurrPcieLinkWidth 0 8",
    "nvmlDeviceGetMaxPcieLinkWidth 0 16",
    "nvmlDeviceGetPcieThroughput 0 1500",
    "nvmlDeviceGetPcieThroughput 1 2500000",
    "nvmlDeviceGetEccMode 0 1 1",
    "nvmlDeviceGetTotalEccErrors 0 12",
    "nvmlDeviceGetTotalEccErrors 1 3",
    "nvmlDeviceGetMemoryErrorCounter 0 1",
    "nvmlDeviceGetMemoryErrorCounter 1 2",
    "nvmlDeviceGetMemoryErrorCounter 2 0",
    "nvmlDeviceGetMemoryBusWidth 0 5120",
    "nvmlDeviceGetNumGpuCores 0 16896",
)


def inventory(*gpus: Gpu) -> Inventory:
    def partitions(each: Gpu) -> tuple[Partition, ...]:
        return tuple(
            devices.partition(f"gi{part.gpu_instance}/ci{part.compute_instance}", index, uuid=part.uuid)
            for index, part in enumerate(each.instances)
            if part
        )

    found = (
        devices.accelerator(
            index, each.address[4:].lower(), partitioned=bool(each.mig), partitions=partitions(each)
        )
        for index, each in enumerate(gpus)
    )
    return devices.inventory("nvidia", *found)


def context(library: Path | str, root: Path | str = "/") -> DiscoveryContext:
    tree = Root(str(root))
    return DiscoveryContext(host=tree, driver=tree, dev=tree, nvml=str(library))


def read(
    folder: Path, *gpus: Gpu, faults: tuple[str, ...] = (), root: Path | str = "/", deadline_s: float = 20.0
) -> tuple[DeviceStats, ...]:
    library = install(folder, Machine(gpus=gpus, faults=faults))
    return read_stats(context(library, root), inventory(*gpus), deadline_s=deadline_s)


def known(device: DeviceStats) -> set[str]:
    """Return the names of the known values."""
    others = {"address", "instance", "problem"}
    return {name for name in fields(device) if getattr(device, name) is not None} - others


def test_every_value_has_the_unit_of_cdigen(folder: Path) -> None:
    (only,) = read(folder, gpu(0, results=BUSY, processes=((os.getpid(), 9 * GIB), (0x7FFFFFFF, GIB))))
    own = Path("/proc/self/comm").read_text().strip()
    assert only == DeviceStats(
        address="0000:19:00.0", memory_total=81559 << 20, memory_used=10 * GIB,
        bar1_total=128 * GIB, bar1_used=2 << 20,
        utilization=97, memory_utilization=31, encoder_utilization=3, decoder_utilization=4,
        temperature=56, power=346.12, power_limit=700,
        core_clock=1755, memory_clock=2619, core_clock_max=1980, memory_clock_max=2620,
        pcie_generation=4, pcie_generation_max=5, pcie_width=8, pcie_width_max=16,
        pcie_sent=1_500_000, pcie_received=2_500_000_000,
        ecc_enabled=True, ecc_corrected=12, ecc_uncorrected=3, ecc_l1=1, ecc_l2=2, ecc_memory=0,
        memory_bus_width=5120, cores=16896, compute_capability="9.0",
        processes=(
            DeviceProcess(pid=os.getpid(), name=own, memory=9 * GIB),
            DeviceProcess(pid=0x7FFFFFFF, name="", memory=GIB),
        ),
    )  # fmt: skip


def test_a_value_that_a_gpu_does_not_support_is_none_without_a_problem(folder: Path) -> None:
    (only,) = read(folder, gpu(0))
    assert known(only) == {"memory_total", "memory_used", "compute_capability", "processes"}
    assert (only.problem, only.processes) == ("", ())


def test_a_driver_without_the_newer_functions_is_queried_with_the_older_functions(folder: Path) -> None:
    faults = ("nvmlDeviceGetMemoryInfo_v2 error 13", "nvmlDeviceGetComputeRunningProcesses_v3 error 13")
    (only,) = read(folder, gpu(0, results=BUSY, processes=((1, GIB),), faults=faults))
    # The older structure includes the driver's own memory.
    assert only.memory_used == 10 * GIB + (512 << 20)
    assert only.processes is not None
    assert [each.pid for each in only.processes] == [1]


def test_mig_instances_have_their_own_memory_and_processes(folder: Path) -> None:
    instances = (
        Instance(
            gpu_instance=7,
            compute_instance=0,
            uuid=uuid(5, "MIG"),
            profile="1g.10gb",
            results=(f"memory-total 0 {10 * GIB}", f"memory-used 0 {GIB}"),
            processes=((os.getpid(), GIB),),
        ),
        None,
        Instance(gpu_instance=9, compute_instance=1, uuid=uuid(6, "MIG"), profile="1g.10gb"),
    )
    whole, first, second = read(folder, gpu(0, mig=True, instances=instances, results=BUSY))
    assert (whole.instance, first.instance, second.instance) == ("", "gi7/ci0", "gi9/ci1")
    assert (first.memory_total, first.memory_used, first.utilization) == (10 * GIB, GIB, None)
    assert first.processes is not None
    assert [each.pid for each in first.processes] == [os.getpid()]
    assert (second.memory_total, second.processes, second.problem) == (None, (), "")


def test_a_mig_instance_that_nvml_does_not_list_has_a_problem(folder: Path) -> None:
    gone = Instance(gpu_instance=7, compute_instance=0, uuid=uuid(5, "MIG"), profile="1g.10gb")
    library = install(folder, Machine(gpus=(gpu(0, mig=True),)))
    whole, part = read_stats(context(library), inventory(gpu(0, mig=True, instances=(gone,))))
    assert (whole.problem, part.problem) == ("", "NVML does not list the MIG instance")


@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"]
)
def test_mig_devices_that_nvml_does_not_support_while_mig_is_on_are_a_problem(
    folder: Path, function: str
) -> None:
    one = Instance(gpu_instance=7, compute_instance=0, uuid=uuid(5, "MIG"), profile="1g.10gb")
    broken = gpu(0, mig=True, instances=(one,), results=BUSY, faults=(f"{function} error 3",))
    whole, part = read(folder, broken)
    problem = f"NVML call failed: {function} returned NVML_ERROR_NOT_SUPPORTED (3)"
    assert (whole.problem, part.problem) == (problem, problem)
    assert whole.temperature == 56


def test_a_failed_call_affects_only_one_value(folder: Path) -> None:
    (only,) = read(folder, gpu(0, results=BUSY, faults=("nvmlDeviceGetPowerUsage error 999",)))
    assert only.problem == "NVML call failed: nvmlDeviceGetPowerUsage returned NVML_ERROR_UNKNOWN (999)"
    assert (only.power, only.power_limit, only.temperature) == (None, 700, 56)


def test_a_lost_gpu_does_not_affect_the_values_of_other_gpus(folder: Path) -> None:
    lost = gpu(0, results=BUSY, faults=("nvmlDeviceGetPowerUsage error 15",))
    gone = gpu(1, faults=("* error 15",))
    first, second, third = read(folder, lost, gone, gpu(2, results=BUSY))
    assert first.memory_used == 10 * GIB
    assert "NVML_ERROR_GPU_IS_LOST" in first.problem
    assert (known(second), second.problem) == (
        set(),
        "NVML call failed: nvmlDeviceGetHandleByPciBusId returned NVML_ERROR_GPU_IS_LOST (15)",
    )
    assert (third.power, third.problem) == (346.12, "")


def test_invalid_numbers_are_unknown(folder: Path) -> None:
    garbage = (
        f"memory-total 0 {2**64 - 1}",
        "nvmlDeviceGetTemperature 0 4294967295",
        "nvmlDeviceGetPowerUsage 0 4294967295",
        "nvmlDeviceGetUtilizationRates 0 101 4294967295",
        "nvmlDeviceGetClockInfo 1 4294967295",
        "nvmlDeviceGetCurrPcieLinkWidth 0 63",
        "nvmlDeviceGetCurrPcieLinkGeneration 0 0",
        f"nvmlDeviceGetTotalEccErrors 1 {2**64 - 1}",
    )
    (only,) = read(folder, gpu(0, results=garbage, processes=((7, 2**64 - 1),)))
    assert known(only) == {"compute_capability", "processes"}
    assert only.processes is not None
    assert only.processes[0].memory is None


def test_only_the_processes_with_the_most_memory_are_reported(folder: Path) -> None:
    many = tuple((1_000_000 + number, number) for number in range(500))
    (only,) = read(folder, gpu(0, processes=many))
    assert only.processes is not None
    assert [each.memory for each in only.processes] == list(range(499, 499 - MAX_PROCESSES, -1))


def test_the_document_has_space_for_sixteen_gpus_with_many_processes(folder: Path) -> None:
    gpus = tuple(
        gpu(number, results=BUSY, processes=tuple((4_000_000 + each, 2**40 + each) for each in range(64)))
        for number in range(16)
    )
    answers = read(folder, *gpus)
    assert [answer.problem for answer in answers] == [""] * 16
    assert all(answer.processes is not None and len(answer.processes) == 64 for answer in answers)


# ---- suspended GPUs ----


def test_a_suspended_gpu_is_not_queried(folder: Path, tmp_path: Path) -> None:
    for address, status in (("0000:19:00.0", b"suspended\n"), ("0000:1a:00.0", b"active\n")):
        put(tmp_path / "sys/devices" / address / "power/runtime_status", status)
        link(tmp_path / "sys/bus/pci/devices" / address, f"../../../devices/{address}")
    suspended = gpu(0, results=BUSY, faults=("* trace",))
    first, second = read(folder, suspended, gpu(1, results=BUSY), root=tmp_path)
    assert (known(first), first.problem) == (set(), SUSPENDED)
    assert second.power == 346.12
    assert not (folder / "calls").exists()


def test_a_gpu_whose_video_memory_is_off_is_not_queried(folder: Path, tmp_path: Path) -> None:
    put(tmp_path / "proc/driver/nvidia/gpus/0000:19:00.0/power", b"Video Memory:          Off\n")
    (only,) = read(folder, gpu(0), faults=("load trace",), root=tmp_path)
    assert only.problem == SUSPENDED
    assert not (folder / "calls").exists()


def test_nvml_is_not_started_if_all_gpus_are_suspended(folder: Path, tmp_path: Path) -> None:
    put(tmp_path / "sys/bus/pci/devices/0000:19:00.0/power/runtime_status", b"suspended\n")
    (only,) = read(folder, gpu(0), faults=("load trace",), root=tmp_path)
    assert only.problem == SUSPENDED
    assert not (folder / "calls").exists()


# ---- a library that misbehaves ----


@pytest.mark.parametrize(
    ("fault", "words", "deadline_s"),
    [
        ("nvmlDeviceGetPowerUsage hang", "did not answer within 1.5 s", 1.5),
        ("load hang", "did not answer within 1.5 s", 1.5),
        ("nvmlDeviceGetPowerUsage crash", "SIGSEGV", PATIENCE_S),
        ("nvmlDeviceGetPowerUsage flood 1", "did not answer within 1.5 s", 1.5),
        ("nvmlDeviceGetPowerUsage exit 0", "no valid document", PATIENCE_S),
        ("nvmlInitWithFlags error 18", "NVML_ERROR_LIB_RM_VERSION_MISMATCH", PATIENCE_S),
    ],
)
@limited(6)
def test_a_hanging_or_broken_library_is_a_problem_of_every_gpu(
    folder: Path, fault: str, words: str, deadline_s: float, within_s: float
) -> None:
    started = time.monotonic()
    answers = read(folder, gpu(0), gpu(1), faults=(fault,), deadline_s=deadline_s)
    assert time.monotonic() - started < within_s
    for answer in answers:
        assert words in answer.problem
        assert known(answer) == set()


@limited(10)
@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetPowerUsage"])
def test_a_gpu_that_hangs_does_not_affect_the_values_of_other_gpus(
    folder: Path, call: str, within_s: float
) -> None:
    hanging = gpu(1, results=BUSY, faults=(f"{call} hang",))
    started = time.monotonic()
    first, second, third = read(folder, gpu(0, results=BUSY), hanging, gpu(2, results=BUSY))
    took = time.monotonic() - started
    assert [first.power, third.power] == [346.12, 346.12]
    assert known(second) == set()
    assert "NVML_ERROR_TIMEOUT (10)" in second.problem
    # The child process stops waiting for the GPU long before the deadline of the query, which is 20 s.
    assert took < within_s


@pytest.mark.parametrize("fault", ["crash", "exit 0", "signal 9"])
def test_a_gpu_that_crashes_the_process_does_not_affect_the_values_of_other_gpus(
    folder: Path, fault: str
) -> None:
    bad = gpu(1, results=BUSY, faults=(f"nvmlDeviceGetPowerUsage {fault}",))
    first, second, third = read(folder, gpu(0, results=BUSY), bad, gpu(2, results=BUSY))
    assert [first.power, third.power] == [346.12, 346.12]
    assert known(second) == set()
    assert second.problem


@limited(15)
def test_a_child_process_that_does_not_end_does_not_delay_its_document(folder: Path, within_s: float) -> None:
    # The child prints the document and does not end, as with a thread that hangs in the kernel.
    document = '{"stage": "nvml", "message": "no", "error": null}'
    script = f"import os, time; os.write(1, {document.encode()!r}); os.close(1); time.sleep(3600)"
    started = time.monotonic()
    answer = query(
        str(install(folder, Machine())), child=(sys.executable, "-I", "-c", script), deadline_s=600.0
    )
    assert time.monotonic() - started < within_s
    assert [finding.message for finding in answer.findings] == ["NVML cannot be queried: no"]


def test_the_reason_is_reported_if_nvml_is_off_or_missing() -> None:
    (off,) = read_stats(context("off"), inventory(gpu(0)))
    assert "nvml: off" in off.problem
    (missing,) = read_stats(context("auto"), inventory(gpu(0)))
    assert missing.problem == "libnvidia-ml.so.1 was not found"


@pytest.mark.parametrize(
    "part",
    [
        '{"error": null, "values": {}, "migs": []}',
        '{"error": null, "values": {"power": -1}, "migs": []}',
        '{"error": null, "values": null, "migs": []}',
        '{"error": null, "migs": []}',
        "[]",
        "7",
    ],
)
def test_a_document_with_another_structure_is_rejected(folder: Path, part: str) -> None:
    start = '{"gpus": [{"index": 0, "address": "0000:19:00.0", "error": null, "stats": '
    command = (sys.executable, "-I", "-c", f"print({start + part + '}]}'!r})")
    answer = query(str(install(folder, Machine())), what=("stats",), child=command)
    assert answer.report is None
    assert [finding.rule for finding in answer.findings] == ["nvml-invalid-output"]
