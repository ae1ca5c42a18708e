"""GPUs without their own memory have the memory of the host, for labels, memory units and conditions."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.hosts import driver_files
from support.hosts.nvidia import discover
from support.hosts.nvidia_kernel import example_gpus, write, write_kernel_side
from support.kubelet.advertised_resources import counts, offered
from support.kubelet.labels import labels

from cdigen.config import ResourceRow, SharedMemory
from cdigen.model.inventory import Inventory

pytestmark = pytest.mark.usefixtures("real_nodes")

# The memory of a DGX Spark (Project-HAMi/HAMi, pull request 2087).
MEMINFO = "MemTotal:       125506464 kB\nMemFree:         9213760 kB\nHugetlb:               0 kB\n"
MIB = 122_564


def spark(root: Path, meminfo: str = MEMINFO, model: str = "NVIDIA GB10") -> dict[str, Inventory]:
    (gpu,) = example_gpus(1)
    version = driver_files.debian_13(root).libraries["libcuda.so.1"].partition(".so.")[2]
    write_kernel_side(root, (replace(gpu, model=model),), driver_version=version)
    if meminfo:
        write(root / "proc/meminfo", meminfo)
    return {"nvidia": discover(root)}


def test_a_gb10_has_the_memory_of_the_host(tmp_path: Path) -> None:
    host = spark(tmp_path)
    assert host["nvidia"].accelerators[0].memory_mib == MIB
    assert labels(host)["nvidia.com/gpu.memory"] == str(MIB)
    shared = offered(host, shared_memory=SharedMemory(unit="GiB"))
    assert (counts(shared), shared.findings) == ({"aliyun.com/gpu-mem": 119}, ())


@pytest.mark.parametrize(("minimum", "name"), [(120, "nvidia.com/large"), (121, "nvidia.com/gpu")])
def test_a_minimum_is_compared_with_the_memory_of_the_host(tmp_path: Path, minimum: int, name: str) -> None:
    row = ResourceRow(name="nvidia.com/large", min_memory_gb=minimum)
    assert counts(offered(spark(tmp_path), resources=(row,))) == {name: 1}


@pytest.mark.parametrize("model", ["NVIDIA GB100", "NVIDIA GB200", "NVIDIA H100 80GB HBM3", ""])
def test_a_gpu_with_its_own_memory_does_not_get_the_memory_of_the_host(tmp_path: Path, model: str) -> None:
    assert spark(tmp_path, model=model)["nvidia"].accelerators[0].memory_mib is None


@pytest.mark.parametrize(
    "meminfo", ["", "MemTotal: many kB\n", "MemTotal:  0 kB\n", "MemTotal:  125506464 MB\n", "\x00"]
)
def test_without_a_total_the_memory_is_unknown(tmp_path: Path, meminfo: str) -> None:
    host = spark(tmp_path, meminfo)
    assert host["nvidia"].accelerators[0].memory_mib is None
    (finding,) = offered(host, shared_memory=SharedMemory(unit="GiB")).findings
    assert finding.rule == "shared-memory-unknown"
