"""Hosts that are not ready: the errors that end discovery, and the findings that do not end discovery."""

import shutil
from errno import EACCES
from pathlib import Path

import pytest
from support.hosts import driver_files
from support.hosts.driver_files import V535, V550, link
from support.hosts.nvidia import boot, discover, install, make_instead, places, refusal, rules
from support.hosts.nvidia_kernel import example_gpus

from cdigen.host.root import Root
from cdigen.model.errors import HostError
from cdigen.value import replace
from cdigen.vendors.nvidia import kernel_module
from cdigen.vendors.nvidia.devices import gpus
from cdigen.vendors.nvidia.devices.nodes import NvidiaNodeReader
from cdigen.vendors.nvidia.vendor import VENDOR

pytestmark = pytest.mark.usefixtures("real_nodes")

VERSION = "proc/driver/nvidia/version"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a host with Ubuntu's driver and a GPU."""
    install(tmp_path, driver_files.ubuntu)
    return tmp_path


def test_the_hint_for_a_host_without_the_kernel_module_is_modprobe(tmp_path: Path) -> None:
    driver_files.ubuntu(tmp_path)
    error = refusal(tmp_path)
    assert error.kind == "driver-not-loaded"
    assert "modprobe nvidia" in error.hint


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        bytes(range(256)),
        b"NVRM version: NVIDIA UNIX x86_64 Kernel Module\n",
        b"NVRM version: NVIDIA UNIX x86_64 Kernel Module  five.fifty\n",
        b"GCC version:  gcc version 14.2.0\n",
        b"NVRM version: 550.163.01\n" + b"x" * (1 << 20),
    ],
    ids=["empty", "newline", "binary", "no version", "words", "GCC only", "huge"],
)
def test_an_invalid_version_file_is_the_error_driver_not_loaded(host: Path, content: bytes) -> None:
    (host / VERSION).write_bytes(content)
    assert refusal(host).kind == "driver-not-loaded"


@pytest.mark.parametrize("kind", ["folder", "FIFO", "looping link"])
def test_a_version_file_that_is_no_regular_file_is_the_error_driver_not_loaded(host: Path, kind: str) -> None:
    make_instead(host / VERSION, kind)
    error = refusal(host)
    assert error.kind == "driver-not-loaded"
    assert "as root" not in error.hint


def test_a_driver_without_gpus_is_the_error_no_gpu(tmp_path: Path) -> None:
    driver_files.ubuntu(tmp_path)
    boot(tmp_path, 0)
    assert refusal(tmp_path).kind == "no-gpu"


def test_a_host_whose_gpus_are_all_excluded_is_the_error_no_gpu(tmp_path: Path) -> None:
    driver_files.ubuntu(tmp_path)
    (gpu,) = boot(tmp_path, 1)
    information = tmp_path / f"proc/driver/nvidia/gpus/{gpu.bdf}/information"
    information.write_text(information.read_text().replace("No", "Yes"))
    error = refusal(tmp_path)
    assert (error.kind, gpu.bdf in error.message, "lists no GPU" in error.message) == ("no-gpu", True, False)


def test_the_hint_for_a_driver_without_nodes_is_create_nodes(host: Path) -> None:
    shutil.rmtree(host / "dev")
    error = refusal(host)
    assert error.kind == "no-nodes"
    assert error.hint == f"cdigen create-nodes --root {host}"


def test_gpus_without_their_nodes_are_the_error_no_nodes(tmp_path: Path) -> None:
    install(tmp_path, driver_files.ubuntu, gpus=2)
    for node in (tmp_path / "dev").glob("nvidia[0-9]"):
        node.unlink()
    assert refusal(tmp_path).kind == "no-nodes"


def test_without_the_control_node_no_gpu_can_be_used(host: Path) -> None:
    (host / "dev/nvidiactl").unlink()
    error = refusal(host)
    assert error.kind == "no-nodes"
    assert "/dev/nvidiactl does not exist" in error.message


@pytest.mark.parametrize(
    ("name", "severity"), [("nvidia-uvm", "error"), ("nvidia-uvm-tools", "info"), ("nvidia-modeset", "info")]
)
def test_the_severity_of_a_missing_control_node_depends_on_the_node(
    host: Path, name: str, severity: str
) -> None:
    (host / "dev" / name).unlink()
    inventory = discover(host)
    assert rules(inventory) == {"control-node-missing": severity}
    assert len(inventory.nodes) == 3


def test_control_nodes_have_the_numbers_of_the_kernel(tmp_path: Path) -> None:
    boot(tmp_path)
    nodes = gpus.NvidiaGpuReader(places(tmp_path), NvidiaNodeReader(places(tmp_path))).read_control_nodes()
    assert {node.path: (node.major, node.minor) for node in nodes} == {
        "/dev/nvidiactl": (195, 255),
        "/dev/nvidia-uvm": (510, 0),
        "/dev/nvidia-uvm-tools": (510, 1),
        "/dev/nvidia-modeset": (195, 254),
    }


def test_missing_libraries_are_the_error_driver_not_found(tmp_path: Path) -> None:
    boot(tmp_path)
    error = refusal(tmp_path)
    assert error.kind == "driver-not-found"
    assert V550 in error.message


def test_a_driver_without_the_libraries_that_programs_load_is_not_found(host: Path) -> None:
    for name in ("libcuda", "libnvidia-ml", "libGLX_nvidia", "libEGL_nvidia"):
        for file in host.glob(f"usr/lib/x86_64-linux-gnu/{name}.so*"):
            file.unlink()
    assert list(host.glob("usr/lib/x86_64-linux-gnu/libnvidia-*.so.*"))
    assert refusal(host).kind == "driver-not-found"


def test_libraries_of_another_version_are_the_error_version_mismatch(tmp_path: Path) -> None:
    driver_files.ubuntu(tmp_path, V535)
    boot(tmp_path)
    error = refusal(tmp_path)
    assert error.kind == "version-mismatch"
    assert V550 in error.message
    assert V535 in error.message
    assert "reboot" in error.hint


def test_the_running_version_of_two_installed_drivers_is_used(tmp_path: Path) -> None:
    driver_files.ubuntu(tmp_path, V535)
    laid = install(tmp_path, driver_files.ubuntu)
    inventory = discover(tmp_path)
    found = {name: file.host_path for file in inventory.files for name in file.names}
    assert found == laid.libraries
    assert rules(inventory) == {"other-driver-version": "info"}


def test_the_running_version_is_used_even_if_links_lead_to_another_version(tmp_path: Path) -> None:
    laid = driver_files.ubuntu(tmp_path)
    driver_files.ubuntu(tmp_path, V535)
    boot(tmp_path)
    found = {name: file.host_path for file in discover(tmp_path).files for name in file.names}
    assert found.items() <= laid.libraries.items()
    assert {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libGLX_nvidia.so.0"} <= found.keys()


@pytest.mark.parametrize("stem", ["libcuda", "libnvidia-ml"])
def test_a_required_library_of_a_new_version_is_the_error_version_mismatch(host: Path, stem: str) -> None:
    folder = host / "usr/lib/x86_64-linux-gnu"
    (folder / f"{stem}.so.{V550}").rename(folder / f"{stem}.so.580.95.05")
    driver_files.link(folder / f"{stem}.so.1", f"{stem}.so.580.95.05")
    error = refusal(host)
    assert error.kind == "version-mismatch"
    assert "580.95.05" in error.message


def test_an_optional_library_of_a_new_version_is_only_a_finding(host: Path) -> None:
    folder = host / "usr/lib/x86_64-linux-gnu"
    (folder / f"libnvidia-glcore.so.{V550}").rename(folder / "libnvidia-glcore.so.580.95.05")
    inventory = discover(host)
    assert rules(inventory) == {
        "other-driver-version": "info",
        "library-incomplete": "warning",
        "capability-incomplete": "warning",
    }
    (searched,) = [thing for thing in inventory.searched if thing.name == "libnvidia-glcore"]
    assert searched.reason == "installed only as version 580.95.05"


def test_an_open_kernel_module_has_the_flavour_open(tmp_path: Path) -> None:
    boot(tmp_path)
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build  (x@y)  Tue\n"
    (tmp_path / VERSION).write_text(text)
    driver = kernel_module.read_driver(places(tmp_path).host)
    assert (driver.version, driver.flavour, driver.architecture) == ("580.95.05", "open", "aarch64")


def test_a_complete_host_has_no_finding(tmp_path: Path) -> None:
    install(tmp_path, driver_files.ubuntu, gpus=12)
    inventory = discover(tmp_path)
    assert [gpu.uuid for gpu in inventory.accelerators] == [gpu.uuid for gpu in example_gpus(12)]
    assert inventory.findings == ()


class ClosedRoot(Root):
    """A host with two folders that cannot be listed. Permissions would not prevent root from listing them."""

    def listdir(self, path: str) -> list[str]:
        if self.resolve(path) in {gpus.GPUS, "/usr/lib/x86_64-linux-gnu"}:
            raise PermissionError(EACCES, "Permission denied", path)
        return super().listdir(path)


@pytest.mark.parametrize("with_sys", [True, False])
def test_gpus_that_cannot_be_listed_are_not_reported_as_absent(host: Path, *, with_sys: bool) -> None:
    if not with_sys:
        shutil.rmtree(host / "sys")
    with pytest.raises(HostError, match=f"{gpus.GPUS} cannot be read: Permission denied") as caught:
        VENDOR.discover(replace(places(host), host=ClosedRoot(str(host))))
    assert caught.value.hint == "run as root"


def test_libraries_whose_folder_cannot_be_listed_are_not_reported_as_absent(host: Path) -> None:
    with pytest.raises(HostError, match="cannot be read: Permission denied") as caught:
        VENDOR.discover(replace(places(host), driver=ClosedRoot(str(host))))
    assert caught.value.hint == "run as root"


def test_a_library_folder_that_cannot_be_read_is_reported(host: Path) -> None:
    link(host / "usr/local/nvidia/lib64", "lib64")
    (finding,) = [each for each in discover(host).findings if each.rule == "library-unusable"]
    assert finding.severity == "warning"
    assert "/usr/local/nvidia/lib64" in finding.message
