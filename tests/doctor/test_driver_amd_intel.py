"""The doctor's results for hosts with devices of AMD and Intel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.doctor.broken_host import ALICE, BrokenHost
from support.hosts import amd_tree, intel_tree
from support.hosts.driver_files import put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")
FIRMWARE = (
    "i915/adlp_guc_70.bin",
    "i915/tgl_huc.bin",
    "xe/lnl_guc_70.bin",
    "xe/lnl_huc.bin",
    "intel/vpu/vpu_40xx.bin",
)


def install_firmware(root: Path) -> None:
    for name in FIRMWARE:
        put(root / "lib/firmware" / name)


def lay_amd(root: Path) -> None:
    amd_tree.write(root, amd_tree.mi300x(8, count=1))


def lay_laptop(root: Path) -> None:
    intel_tree.lay(root, *intel_tree.laptop())
    install_firmware(root)


def lay_gaudis(root: Path) -> None:
    intel_tree.lay(root, *intel_tree.gaudi_3(2))


@pytest.fixture
def amd(tmp_path: Path) -> BrokenHost:
    """Return a host with an MI300X in eight partitions, and podman."""
    return BrokenHost(tmp_path / "host").make("podman", lay=lay_amd)


@pytest.fixture
def laptop(tmp_path: Path) -> BrokenHost:
    """Return a host with Intel's GPU and NPU, and podman."""
    return BrokenHost(tmp_path / "host").make("podman", lay=lay_laptop)


@pytest.mark.parametrize(
    ("lay", "detail"),
    [
        (lay_amd, "amd: 1 GPU, 8 partitions"),
        (lay_laptop, "intel: 1 GPU and 1 NPU"),
        (lay_gaudis, "intel: 2 Gaudis"),
    ],
)
def test_the_result_for_a_host_counts_the_devices_of_each_class(
    tmp_path: Path, lay: Callable[[Path], object], detail: str
) -> None:
    host = BrokenHost(tmp_path / "host").make("podman", lay=lay)
    rows = host.doctor(wrong=False)
    assert [row["detail"] for row in rows if row["check"] == "gpus"] == [detail]
    # Images contain the libraries of these vendors, so the doctor checks no libraries of the host.
    assert not {"driver-version", "driver-files"} & {row["check"] for row in rows}


def test_an_in_tree_driver_has_the_version_of_the_kernel(laptop: BrokenHost) -> None:
    detail = laptop.result("driver-loaded")["detail"]
    assert detail == f"the driver of intel is loaded: in-tree, kernel {intel_tree.RELEASE}"


def test_a_mixed_host_has_a_result_for_each_vendor(tmp_path: Path) -> None:
    def lay(root: Path) -> None:
        amd_tree.write(root, amd_tree.mi210(2))
        intel_tree.lay(root, intel_tree.npu())
        install_firmware(root)

    host = BrokenHost(tmp_path / "host").make("podman", lay=lay)
    rows = host.doctor(wrong=False)
    details = [row["detail"] for row in rows if row["check"] == "gpus"]
    assert details == ["amd: 2 GPUs", "intel: 1 NPU"]


def test_render_nodes_that_only_root_can_open_are_a_warning(amd: BrokenHost) -> None:
    for node in amd.path("dev/dri").glob("renderD*"):
        os.chown(node, 0, 0)
    row = next(row for row in amd.doctor(wrong=True) if row["check"] == "driver-diagnostic")
    assert (row["severity"], row["ok"]) == ("warning", False)
    assert "only root can open /dev/dri/renderD128" in row["detail"]
    assert amd.remedy_on_host(row) == "udevadm trigger"


def test_a_kfd_that_only_root_can_open_is_a_warning(amd: BrokenHost) -> None:
    amd.path("dev/kfd").chmod(0o600)
    row = next(row for row in amd.doctor(wrong=True) if row["check"] == "driver-diagnostic")
    assert "only root can open /dev/kfd (mode 0600)" in row["detail"]


def test_missing_firmware_is_a_warning(laptop: BrokenHost) -> None:
    laptop.path("lib/firmware/xe/lnl_huc.bin").unlink()
    laptop.path("lib/firmware/i915/tgl_huc.bin").unlink()
    row = laptop.diagnosis()
    assert (row["check"], row["severity"]) == ("driver-diagnostic", "warning")
    assert "no HuC firmware for xe" in row["detail"]


def test_a_gpu_without_amdgpu_because_of_missing_firmware_is_a_warning(amd: BrokenHost) -> None:
    put(amd.root / "sys/bus/pci/devices/0000:03:00.0/vendor", b"0x1002\n")
    put(amd.root / "sys/bus/pci/devices/0000:03:00.0/class", b"0x030000\n")
    row = amd.diagnosis()
    assert row["check"] == "driver-diagnostic"
    assert "/lib/firmware/amdgpu has no firmware for it" in row["detail"]


@pytest.mark.parametrize(
    ("lay", "node", "numbers", "group"),
    [
        (lay_amd, "dev/dri/renderD129", (226, 129), amd_tree.RENDER_GID),
        (lay_amd, "dev/kfd", (235, 0), amd_tree.RENDER_GID),
        (lay_laptop, "dev/dri/renderD128", (226, 128), intel_tree.RENDER),
        (lay_laptop, "dev/accel/accel0", (261, 0), intel_tree.RENDER),
        (lay_gaudis, "dev/accel/accel1", (261, 1), intel_tree.RENDER),
    ],
)
def test_the_remedy_creates_a_missing_node_with_the_kernels_numbers_and_udevs_group(
    tmp_path: Path, lay: Callable[[Path], object], node: str, numbers: tuple[int, int], group: int
) -> None:
    host = BrokenHost(tmp_path / "host").make("podman", lay=lay)
    file = host.path(node)
    file.unlink()
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("node-missing", "error")
    host.fixed(row)
    status = file.stat()
    assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == numbers
    assert (status.st_mode & 0o777, status.st_gid) == (0o660, group)


def test_a_missing_card_is_a_warning(laptop: BrokenHost) -> None:
    laptop.path("dev/dri/card0").unlink()
    row = next(row for row in laptop.doctor(wrong=True) if row["check"] == "node-missing")
    assert row["severity"] == "warning"


def test_a_render_node_of_another_device_is_an_error(amd: BrokenHost) -> None:
    node = amd.path("dev/dri/renderD129")
    node.unlink()
    os.mknod(node, 0o20660, os.makedev(226, 200))
    row = amd.diagnosis()
    assert (row["check"], row["severity"]) == ("node-wrong", "error")
    assert ": 226:200, must be 226:129" in row["detail"]


def test_a_user_must_be_in_the_group_of_the_render_nodes(laptop: BrokenHost) -> None:
    laptop.put("etc/passwd", ALICE)
    row = laptop.result("node-access", "--user", "alice")
    assert not row["ok"]
    assert laptop.remedy_on_host(row) == "usermod --append --groups video,render alice"


def test_the_remedy_of_a_closed_amd_node_is_not_nvidias_module_option(amd: BrokenHost) -> None:
    amd.put("etc/passwd", ALICE)
    for node in (*amd.path("dev/dri").iterdir(), amd.path("dev/kfd")):
        node.chmod(0o600)
    assert "NVreg" not in amd.result("node-access", "--user", "alice")["detail"]


def test_a_desktop_gpu_without_kfd_is_a_warning(tmp_path: Path) -> None:
    host = BrokenHost(tmp_path / "host").make(
        "podman", lay=lambda root: amd_tree.write(root, (amd_tree.radeon(),))
    )
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("gpus", "warning")
    assert "can be used for graphics only" in row["detail"]
