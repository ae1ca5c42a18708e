"""cdigen queries a driver's CUDA version once, without opening a GPU, and uses it only for that driver."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nvml.standin import Machine, gpu, install, trusted_folder

from cdigen.host.root import Root
from cdigen.model.inventory import Driver, Inventory
from cdigen.pipeline.driver.cuda import RETRY_S, CudaVersions
from cdigen.value import replace
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.nvidia.driver_api import served, version

QUERIES = ["nvmlInitWithFlags", "nvmlSystemGetCudaDriverVersion"]
OF_550 = Inventory(
    vendor="nvidia",
    driver=Driver(version="550.163.01", flavour="open", architecture="x86_64"),
    accelerators=(),
    nodes=(),
    files=(),
    searched=(),
    findings=(),
)
OF_580 = replace(OF_550, driver=replace(OF_550.driver, version="580.95.05"))


@pytest.fixture
def folder() -> Iterator[Path]:
    with trusted_folder() as place:
        yield place


class Queried:
    """A double of NVML, and the CUDA version and calls of each refresh with this double."""

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
        found = self.versions.refreshed({"nvidia": inventory}, lambda: context)[0]["nvidia"]
        calls = self.folder / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return found.driver.cuda, [line for line in lines if line != "load"]


def test_the_cuda_version_is_queried_once_per_driver_without_opening_a_gpu(folder: Path) -> None:
    queried = Queried(folder)
    queried.play(12040)
    assert queried.of(OF_550) == ("12.4", QUERIES)
    assert queried.of(OF_550) == ("12.4", [])
    queried.now_s += 2 * RETRY_S
    assert queried.of(OF_550) == ("12.4", [])
    queried.play(13010)
    assert queried.versions.known({"nvidia": OF_580})["nvidia"].driver.cuda is None
    assert queried.of(OF_580) == ("13.1", QUERIES)


def test_a_driver_without_a_response_is_queried_again_later(folder: Path) -> None:
    queried = Queried(folder)
    queried.play(12040, "nvmlSystemGetCudaDriverVersion error 999")
    assert queried.of(OF_550) == (None, QUERIES)
    queried.play(12040)
    assert queried.of(OF_550) == (None, [])
    queried.now_s += RETRY_S
    assert queried.of(OF_550) == ("12.4", QUERIES)


@pytest.mark.parametrize(
    "fault",
    ["nvmlSystemGetCudaDriverVersion error 3", "nvmlSystemGetCudaDriverVersion crash", "load rubbish"],
)
def test_the_cuda_version_is_unknown_only_if_the_query_fails(folder: Path, fault: str) -> None:
    queried = Queried(folder)
    queried.play(12040, fault)
    report, _ = queried.of(OF_550)
    assert report == ("12.4" if "rubbish" in fault else None)


def test_a_host_without_nvidia_devices_is_not_queried() -> None:
    other = replace(OF_550, vendor="amd")
    assert CudaVersions().refreshed({"amd": other}, lambda: pytest.fail("queried")) == ({"amd": other}, ())


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
def test_numbers_of_nvml_are_converted_to_versions(number: int | None, text: str | None) -> None:
    assert version(number) == text


def test_the_driver_branch_determines_the_version_only_without_a_response() -> None:
    assert served(OF_550) == "12.4"
    assert served(replace(OF_550, driver=replace(OF_550.driver, cuda="12.8"))) == "12.8"
    assert served(replace(OF_550, mode="wsl")) == ""
