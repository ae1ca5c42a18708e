"""The stand-in is taken for NVIDIA's library by those who know it best: NVIDIA's own nvidia-smi.

Debian's real program is loaded with it, unchanged (tests/e2e/provision). That it prints what the machine's
description says proves names, signatures and structures of the functions that both call.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from standin import Machine, gpu, install, instances, trusted_folder, uuid

from cdigen.vendors.nvidia.nvml.ask import ask

pytestmark = pytest.mark.e2e


@pytest.fixture
def nvidia_smi(driver_tree: Path) -> Path:
    return driver_tree / "usr/lib/nvidia/current/nvidia-smi"


def told(
    nvidia_smi: Path, folder: Path, machine: Machine, *arguments: str
) -> subprocess.CompletedProcess[str]:
    environment = {"LD_LIBRARY_PATH": str(install(folder, machine).parent)}
    return subprocess.run(
        [nvidia_smi, *arguments], check=False, env=environment, capture_output=True, text=True, timeout=20
    )


def test_nvidia_smi_lists_gpus_and_mig_devices(nvidia_smi: Path, tmp_path: Path) -> None:
    migs = instances(16, "1g.10gb", None, "1c.3g.40gb")
    machine = Machine(gpus=(gpu(0), gpu(1, mig=True, instances=migs), gpu(2, name="NVIDIA A2", mig=False)))
    done = told(nvidia_smi, tmp_path, machine, "-L")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {uuid(0)})",
        f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {uuid(1)})",
        f"  MIG 1g.10gb     Device  0: (UUID: {uuid(16, 'MIG')})",
        f"  MIG 1c.3g.40gb  Device  1: (UUID: {uuid(18, 'MIG')})",
        f"GPU 2: NVIDIA A2 (UUID: {uuid(2)})",
    ]


def test_nvidia_smi_reads_the_fields_that_cdigen_asks_for(nvidia_smi: Path, tmp_path: Path) -> None:
    fields = "index,name,uuid,driver_version,mig.mode.current,compute_cap"
    machine = Machine(gpus=(gpu(0), gpu(1, mig=True, capability="10.3")))
    done = told(nvidia_smi, tmp_path, machine, f"--query-gpu={fields}", "--format=csv,noheader")
    assert done.stdout.splitlines() == [
        f"0, NVIDIA H100 80GB HBM3, {uuid(0)}, 550.163.01, [N/A], 9.0",
        f"1, NVIDIA H100 80GB HBM3, {uuid(1)}, 550.163.01, Enabled, 10.3",
    ]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nvmlInitWithFlags error 18", "Driver/library version mismatch"),
        ("nvmlInitWithFlags error 9", "couldn't communicate with the NVIDIA driver"),
        ("nvmlDeviceGetHandleByIndex_v2 error 15", "GPU is lost"),
    ],
)
def test_nvidia_smi_understands_the_faults(nvidia_smi: Path, tmp_path: Path, fault: str, words: str) -> None:
    done = told(nvidia_smi, tmp_path, Machine(gpus=(gpu(0),), faults=(fault,)), "-L")
    assert done.returncode == int(fault.rpartition(" ")[2])
    assert words in done.stdout


@pytest.fixture
def real_library(driver_tree: Path) -> Iterator[Path]:
    """Copy the driver's own library to where cdigen may load it."""
    (library,) = driver_tree.glob("usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.*.*")
    with trusted_folder() as folder:
        copy = folder / library.name
        copy.write_bytes(library.read_bytes())
        yield copy


def test_the_drivers_own_library_says_that_no_driver_is_loaded(real_library: Path) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("an NVIDIA driver is loaded here")
    (finding,) = ask(str(real_library)).findings
    assert finding.rule == "nvml-failed"
    assert "NVML_ERROR_DRIVER_NOT_LOADED" in finding.message
