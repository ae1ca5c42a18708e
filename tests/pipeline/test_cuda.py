"""The CUDA that a driver serves is asked once, without opening a GPU, and true only of that driver."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nvml.standin import Machine, gpu, install, trusted_folder

from cdigen.host.root import Root
from cdigen.model.inventory import Driver, Inventory
from cdigen.pipeline.cuda import RETRY_S, CudaVersions
from cdigen.value import replace
from cdigen.vendors.base import DiscoveryContext
from cdigen.vendors.nvidia.cuda import served, version

ASKED = ["nvmlInitWithFlags", "nvmlSystemGetCudaDriverVersion"]
OF_550 = Inventory(
    vendor="nvidia",
    driver=Driver(version="550.163.01", flavour="open", architecture="x86_64"),
    accelerators=(),
    nodes=(),
    files=(),
    sought=(),
    findings=(),
)
OF_580 = replace(OF_550, driver=replace(OF_550.driver, version="580.95.05"))


@pytest.fixture
def folder() -> Iterator[Path]:
    with trusted_folder() as place:
        yield place


class Asked:
    """What is told of inventories by an NVML, and what that was asked for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_s = 0.0
        self.versions = CudaVersions(lambda: self.now_s)
        self.library = ""

    def play(self, cuda: int, *faults: str) -> None:
        machine = Machine(cuda=cuda, gpus=(gpu(0),), faults=("* trace", *faults))
        self.library = str(install(self.folder, machine))

    def of(self, inventory: Inventory) -> tuple[str | None, list[str]]:
        root = Root("/")
        context = DiscoveryContext(host=root, driver=root, dev=root, nvml=self.library)
        found = self.versions.refreshed({"nvidia": inventory}, lambda: context)["nvidia"]
        calls = self.folder / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return found.driver.cuda, [line for line in lines if line != "load"]


def test_it_is_asked_once_for_each_driver_and_no_gpu_is_opened(folder: Path) -> None:
    asked = Asked(folder)
    asked.play(12040)
    assert asked.of(OF_550) == ("12.4", ASKED)
    assert asked.of(OF_550) == ("12.4", [])
    asked.now_s += 2 * RETRY_S
    assert asked.of(OF_550) == ("12.4", [])
    asked.play(13010)
    assert asked.versions.known({"nvidia": OF_580})["nvidia"].driver.cuda is None
    assert asked.of(OF_580) == ("13.1", ASKED)


def test_a_driver_that_does_not_tell_is_asked_again_after_a_while(folder: Path) -> None:
    asked = Asked(folder)
    asked.play(12040, "nvmlSystemGetCudaDriverVersion error 999")
    assert asked.of(OF_550) == (None, ASKED)
    asked.play(12040)
    assert asked.of(OF_550) == (None, [])
    asked.now_s += RETRY_S
    assert asked.of(OF_550) == ("12.4", ASKED)


@pytest.mark.parametrize(
    "fault",
    ["nvmlSystemGetCudaDriverVersion error 3", "nvmlSystemGetCudaDriverVersion crash", "load rubbish"],
)
def test_nvml_that_fails_leaves_it_unknown(folder: Path, fault: str) -> None:
    asked = Asked(folder)
    asked.play(12040, fault)
    told, _ = asked.of(OF_550)
    assert told == ("12.4" if "rubbish" in fault else None)


def test_a_host_without_the_vendor_asks_nobody() -> None:
    other = replace(OF_550, vendor="amd")
    assert CudaVersions().refreshed({"amd": other}, lambda: pytest.fail("asked")) == {"amd": other}


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (12040, "12.4"),
        (13000, "13.0"),
        (11080, "11.8"),
        (9020, "9.2"),
        (None, None),
        (0, None),
        (999, None),
        (1_000_000, None),
    ],
)
def test_nvmls_numbers_are_versions(number: int | None, text: str | None) -> None:
    assert version(number) == text


def test_the_branch_tells_only_where_the_driver_does_not() -> None:
    assert served(OF_550) == "12.4"
    assert served(replace(OF_550, driver=replace(OF_550.driver, cuda="12.8"))) == "12.8"
    assert served(replace(OF_550, mode="wsl")) == ""
