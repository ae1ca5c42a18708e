"""The daemon asks once how GPUs are linked, after the specs, and its inventory has it from then on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon.cycles import Looker
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
    with trusted_folder() as place:
        yield place


def library(folder: Path, *faults: str) -> str:
    """Put a library that tells four links to a switch between the two GPUs."""
    gpus = tuple(
        Gpu(
            address=gpu.bdf,
            uuid=gpu.uuid,
            minor=number,
            figures=(*UP, f"nvmlDeviceGetP2PStatus {1 - number} 0 0"),
        )
        for number, gpu in enumerate(example_gpus(2))
    )
    return str(install(folder, Machine(gpus=gpus, faults=(*faults, "* trace"))))


def test_the_inventory_has_the_links_and_no_later_cycle_asks(host: Host, folder: Path) -> None:
    host.boot()
    looker = Looker(host, "--nvml", library(folder))
    for _ in range(2):
        looked = looker.look()
        assert looked.report.error == ""
        assert [[link.count for link in gpu.links] for gpu in looked.inventories["nvidia"].accelerators] == [
            [4],
            [4],
        ]
    calls = folder / "calls"
    assert calls.exists()
    calls.unlink()
    assert looker.look().report.result == "unchanged"
    assert Looker(host, "--nvml", library(folder)).look().inventories["nvidia"].accelerators[0].links != ()
    # A daemon that starts asks for no more than the CUDA that is served.
    assert not [call for call in calls.read_text().splitlines() if "Device" in call or "attach" in call]


def test_specs_are_written_though_nvml_refuses(host: Host, folder: Path) -> None:
    looked = Looker(host, "--nvml", library(folder, "nvmlInitWithFlags error 999")).look()
    assert (looked.report.error, looked.report.result) == ("", "changed")
    assert host.devices() == {"0", "1", "all"}
