"""The daemon reads the links of GPUs once, after it writes the specs, and keeps them in the inventory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon.cycles import CycleRunner
from support.daemon.host import Host
from support.hosts.nvidia_kernel import example_gpus
from support.nvml.standin import Gpu, Machine, install, trusted_folder

pytestmark = pytest.mark.usefixtures("real_nodes")

UP = tuple(
    f"{function} {link} {value} 0"
    for link in range(4)
    for function, value in (
        ("nvmlDeviceGetNvLinkState", 1),
        ("nvmlDeviceGetNvLinkRemoteDeviceType", 2),
        ("nvmlDeviceGetNvLinkRemotePciInfo_v2", 0xF0),
    )
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with trusted_folder() as trusted:
        yield trusted


def library(folder: Path, *faults: str) -> str:
    """Install an NVML in which both GPUs have four links to a switch; return its path."""
    gpus = tuple(
        Gpu(
            address=gpu.bdf,
            uuid=gpu.uuid,
            minor=number,
            results=(*UP, f"nvmlDeviceGetP2PStatus {1 - number} 0 0"),
        )
        for number, gpu in enumerate(example_gpus(2))
    )
    return str(install(folder, Machine(gpus=gpus, faults=(*faults, "* trace"))))


def test_the_inventory_has_the_links_and_no_later_cycle_reads_them(host: Host, folder: Path) -> None:
    host.boot()
    cycles = CycleRunner(host, "--nvml", library(folder))
    for _ in range(2):
        done = cycles.run_cycle()
        assert done.report.error == ""
        assert [[link.count for link in gpu.links] for gpu in done.inventories["nvidia"].accelerators] == [
            [4],
            [4],
        ]
    calls = folder / "calls"
    assert calls.exists()
    calls.unlink()
    assert cycles.run_cycle().report.result == "unchanged"
    assert (
        CycleRunner(host, "--nvml", library(folder)).run_cycle().inventories["nvidia"].accelerators[0].links
        != ()
    )
    # A restarted daemon queries only the CUDA version.
    assert not [call for call in calls.read_text().splitlines() if "Device" in call or "attach" in call]


def test_specs_are_written_if_nvml_fails(host: Host, folder: Path) -> None:
    done = CycleRunner(host, "--nvml", library(folder, "nvmlInitWithFlags error 999")).run_cycle()
    assert (done.report.error, done.report.result) == ("", "changed")
    assert host.devices() == {"0", "1", "all"}
