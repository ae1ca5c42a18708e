"""NVIDIA's original nvidia-smi works with the stand-in, a library that replaces libnvidia-ml.

The program is the unchanged nvidia-smi of Debian (tests/e2e/provision). It prints the values in the test's
description of the machine (``Machine``). This proves that the stand-in has NVIDIA's names, signatures and
structures for the functions that both nvidia-smi and cdigen call.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.nvml.standin import Machine, gpu, install, instances, trusted_folder, uuid

from cdigen.vendors.nvidia.nvml.query import query

pytestmark = pytest.mark.e2e


@pytest.fixture
def nvidia_smi(driver_tree: Path) -> Path:
    return driver_tree / "usr/lib/nvidia/current/nvidia-smi"


def run_nvidia_smi(
    nvidia_smi: Path, folder: Path, machine: Machine, *arguments: str
) -> subprocess.CompletedProcess[str]:
    environment = {"LD_LIBRARY_PATH": str(install(folder, machine).parent)}
    return subprocess.run(
        [nvidia_smi, *arguments], check=False, env=environment, capture_output=True, text=True, timeout=60
    )


def test_nvidia_smi_lists_gpus_and_mig_devices(nvidia_smi: Path, tmp_path: Path) -> None:
    migs = instances(16, "1g.10gb", None, "1c.3g.40gb")
    machine = Machine(gpus=(gpu(0), gpu(1, mig=True, instances=migs), gpu(2, name="NVIDIA A2", mig=False)))
    done = run_nvidia_smi(nvidia_smi, tmp_path, machine, "-L")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {uuid(0)})",
        f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {uuid(1)})",
        f"  MIG 1g.10gb     Device  0: (UUID: {uuid(16, 'MIG')})",
        f"  MIG 1c.3g.40gb  Device  1: (UUID: {uuid(18, 'MIG')})",
        f"GPU 2: NVIDIA A2 (UUID: {uuid(2)})",
    ]


def test_nvidia_smi_finds_a_gpu_by_its_uuid(nvidia_smi: Path, tmp_path: Path) -> None:
    machine = Machine(gpus=(gpu(0), gpu(1)))
    done = run_nvidia_smi(nvidia_smi, tmp_path, machine, "--id", uuid(1), "--query-gpu=index", "--format=csv")
    assert done.stdout.splitlines() == ["index", "1"]


def test_nvidia_smi_reads_the_fields_that_cdigen_queries(nvidia_smi: Path, tmp_path: Path) -> None:
    fields = "index,name,uuid,driver_version,mig.mode.current,compute_cap"
    machine = Machine(gpus=(gpu(0), gpu(1, mig=True, capability="10.3")))
    done = run_nvidia_smi(nvidia_smi, tmp_path, machine, f"--query-gpu={fields}", "--format=csv,noheader")
    assert done.stdout.splitlines() == [
        f"0, NVIDIA H100 80GB HBM3, {uuid(0)}, 550.163.01, [N/A], 9.0",
        f"1, NVIDIA H100 80GB HBM3, {uuid(1)}, 550.163.01, Enabled, 10.3",
    ]


# Rows: a field of nvidia-smi, the line that sets the stand-in's result, and the text that nvidia-smi prints.
VALUES = (
    ("memory.used", f"memory-used 0 {10 << 30}", "10240 MiB"),
    ("utilization.gpu", "nvmlDeviceGetUtilizationRates 0 97 31", "97 %"),
    ("utilization.memory", "nvmlDeviceGetUtilizationRates 0 97 31", "31 %"),
    ("utilization.encoder", "nvmlDeviceGetEncoderUtilization 0 3 167000", "3 %"),
    ("utilization.decoder", "nvmlDeviceGetDecoderUtilization 0 4 167000", "4 %"),
    ("temperature.gpu", "nvmlDeviceGetTemperature 0 56", "56"),
    ("power.draw", "nvmlDeviceGetPowerUsage 0 346120", "346.12 W"),
    ("clocks.sm", "nvmlDeviceGetClockInfo 1 1755", "1755 MHz"),
    ("clocks.mem", "nvmlDeviceGetClockInfo 2 2619", "2619 MHz"),
    ("clocks.max.sm", "nvmlDeviceGetMaxClockInfo 1 1980", "1980 MHz"),
    ("clocks.max.mem", "nvmlDeviceGetMaxClockInfo 2 2620", "2620 MHz"),
    ("pcie.link.gen.current", "nvmlDeviceGetCurrPcieLinkGeneration 0 4", "4"),
    ("pcie.link.gen.max", "nvmlDeviceGetMaxPcieLinkGeneration 0 5", "5"),
    ("pcie.link.width.current", "nvmlDeviceGetCurrPcieLinkWidth 0 8", "8"),
    ("pcie.link.width.max", "nvmlDeviceGetMaxPcieLinkWidth 0 16", "16"),
    ("ecc.mode.current", "nvmlDeviceGetEccMode 0 1 1", "Enabled"),
    ("ecc.errors.corrected.volatile.total", "nvmlDeviceGetTotalEccErrors 0 12", "12"),
    ("ecc.errors.uncorrected.volatile.total", "nvmlDeviceGetTotalEccErrors 1 3", "3"),
)


# The same columns for health. The first column contains the option and the field: gpu=fabric.state means
# --query-gpu=fabric.state. This nvidia-smi is older than the recovery action, but it reads reset_required
# with the function that cdigen calls for the recovery action.
HEALTH = (
    ("remapped-rows=remapped_rows.pending", "nvmlDeviceGetRemappedRows 0 1 0", "1"),
    ("remapped-rows=remapped_rows.failure", "nvmlDeviceGetRemappedRows 0 1 0", "0"),
    ("remapped-rows=remapped_rows.failure", "nvmlDeviceGetRemappedRows 0 0 1", "1"),
    ("gpu=fabric.state", "nvmlDeviceGetGpuFabricInfoV 0 2 0", "In Progress"),
    ("gpu=fabric.state", "nvmlDeviceGetGpuFabricInfoV 0 3 0", "Completed"),
    ("gpu=fabric.status", "nvmlDeviceGetGpuFabricInfoV 0 3 0", "Success"),
    ("gpu=reset_status.reset_required", "nvmlDeviceGetFieldValues 226 1", "Yes"),
    ("gpu=reset_status.reset_required", "nvmlDeviceGetFieldValues 226 0", "No"),
)


def test_nvidia_smi_reads_the_health_that_cdigen_queries(nvidia_smi: Path, tmp_path: Path) -> None:
    for option, line, shown in HEALTH:
        machine = Machine(gpus=(gpu(0, results=(line,)),))
        done = run_nvidia_smi(nvidia_smi, tmp_path, machine, f"--query-{option}", "--format=csv,noheader")
        assert done.stdout.strip().endswith(shown), (option, done.stdout)


def test_nvidia_smi_reads_the_statistics_that_cdigen_queries(nvidia_smi: Path, tmp_path: Path) -> None:
    machine = Machine(gpus=(gpu(0, results=tuple(dict.fromkeys(row[1] for row in VALUES))),))
    for field, _, shown in VALUES:
        done = run_nvidia_smi(nvidia_smi, tmp_path, machine, f"--query-gpu={field}", "--format=csv,noheader")
        assert (field, done.stdout.strip()) == (field, shown)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nvmlInitWithFlags error 18", "Driver/library version mismatch"),
        ("nvmlInitWithFlags error 9", "couldn't communicate with the NVIDIA driver"),
        ("nvmlDeviceGetHandleByIndex_v2 error 15", "GPU is lost"),
    ],
)
def test_nvidia_smi_reports_the_faults_of_the_stand_in(
    nvidia_smi: Path, tmp_path: Path, fault: str, words: str
) -> None:
    done = run_nvidia_smi(nvidia_smi, tmp_path, Machine(gpus=(gpu(0),), faults=(fault,)), "-L")
    assert done.returncode == int(fault.rpartition(" ")[2])
    assert words in done.stdout


@pytest.fixture
def real_library(driver_tree: Path) -> Iterator[Path]:
    """Yield the path of a copy of the driver's library, in a folder from which cdigen may load libraries."""
    (library,) = driver_tree.glob("usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.*.*")
    with trusted_folder() as folder:
        copy = folder / library.name
        copy.write_bytes(library.read_bytes())
        yield copy


def test_the_drivers_own_library_reports_that_no_driver_is_loaded(real_library: Path) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        cannot_run("an NVIDIA driver is loaded here")
    (finding,) = query(str(real_library)).findings
    assert finding.rule == "nvml-failed"
    assert "NVML_ERROR_DRIVER_NOT_LOADED" in finding.message
