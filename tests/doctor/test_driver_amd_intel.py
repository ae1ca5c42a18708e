"""What the doctor says of hosts with AMD's and Intel's devices."""

from __future__ import annotations

import os
import shutil
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
    """Return a host with an MI300X that is split into eight, and podman."""
    return BrokenHost(tmp_path / "host").make("podman", lay=lay_amd)


@pytest.fixture
def laptop(tmp_path: Path) -> BrokenHost:
    """Return a host with Intel's GPU and NPU, and podman."""
    return BrokenHost(tmp_path / "host").make("podman", lay=lay_laptop)


@pytest.mark.parametrize(
    ("lay", "told"),
    [
        (lay_amd, "of amd: 1 GPU, 8 partitions"),
        (lay_laptop, "of intel: 1 GPU and 1 NPU"),
        (lay_gaudis, "of intel: 2 Gaudis"),
    ],
)
def test_a_host_that_is_well_is_said_to_be_and_its_devices_are_counted_by_what_they_are(
    tmp_path: Path, lay: Callable[[Path], object], told: str
) -> None:
    host = BrokenHost(tmp_path / "host").make("podman", lay=lay)
    rows = host.doctor(wrong=False)
    assert [row["detail"] for row in rows if row["check"] == "gpus"] == [told]
    # Images bring the libraries of these makers.
    assert not {"driver-version", "driver-files"} & {row["check"] for row in rows}


def test_a_kernels_own_driver_is_said_to_be_that(laptop: BrokenHost) -> None:
    detail = laptop.result("driver-loaded")["detail"]
    assert detail == f"the driver of intel is loaded: the one of the kernel {intel_tree.RELEASE}"


def test_every_maker_of_a_mixed_host_is_told(tmp_path: Path) -> None:
    def lay(root: Path) -> None:
        amd_tree.write(root, amd_tree.mi210(2))
        intel_tree.lay(root, intel_tree.npu())
        install_firmware(root)

    host = BrokenHost(tmp_path / "host").make("podman", lay=lay)
    rows = host.doctor(wrong=False)
    told = [row["detail"] for row in rows if row["check"] == "gpus"]
    assert told == ["of amd: 2 GPUs", "of intel: 1 NPU"]


def test_render_nodes_that_only_root_can_open_are_a_pitfall(amd: BrokenHost) -> None:
    for node in amd.path("dev/dri").glob("renderD*"):
        os.chown(node, 0, 0)
    row = next(row for row in amd.doctor(wrong=True) if row["check"] == "driver-diagnostic")
    assert (row["severity"], row["ok"]) == ("warning", False)
    assert "only root can open /dev/dri/renderD128" in row["detail"]
    assert amd.told(row) == "udevadm trigger"


def test_a_kfd_that_only_root_can_open_is_a_pitfall(amd: BrokenHost) -> None:
    amd.path("dev/kfd").chmod(0o600)
    row = next(row for row in amd.doctor(wrong=True) if row["check"] == "driver-diagnostic")
    assert "only root can open /dev/kfd (mode 0600)" in row["detail"]


def test_missing_firmware_is_a_pitfall_and_names_what_does_not_work(laptop: BrokenHost) -> None:
    laptop.path("lib/firmware/xe/lnl_huc.bin").unlink()
    laptop.path("lib/firmware/i915/tgl_huc.bin").unlink()
    row = laptop.diagnosis()
    assert (row["check"], row["severity"]) == ("driver-diagnostic", "warning")
    assert "no HuC firmware for xe" in row["detail"]


def test_a_gpu_that_amdgpu_has_not_taken_for_want_of_firmware_is_a_pitfall(amd: BrokenHost) -> None:
    put(amd.root / "sys/bus/pci/devices/0000:03:00.0/vendor", b"0x1002\n")
    put(amd.root / "sys/bus/pci/devices/0000:03:00.0/class", b"0x030000\n")
    row = amd.diagnosis()
    assert row["check"] == "driver-diagnostic"
    assert "no firmware for it in /lib/firmware/amdgpu" in row["detail"]


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
def test_a_missing_node_is_made_with_the_kernels_numbers_and_udevs_group(
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
    assert "is 226:200, and must be 226:129" in row["detail"]


def test_a_user_has_to_be_in_the_group_of_the_render_nodes(laptop: BrokenHost) -> None:
    laptop.put("etc/passwd", ALICE)
    row = laptop.result("node-access", "--user", "alice")
    assert not row["ok"]
    assert laptop.told(row) == "usermod --append --groups video,render alice"


def test_a_node_that_no_group_opens_is_no_matter_of_nvidias_module(amd: BrokenHost) -> None:
    amd.put("etc/passwd", ALICE)
    for node in (*amd.path("dev/dri").iterdir(), amd.path("dev/kfd")):
        node.chmod(0o600)
    assert "NVreg" not in amd.result("node-access", "--user", "alice")["detail"]


def test_a_desktops_gpu_that_kfd_does_not_know_is_a_warning(tmp_path: Path) -> None:
    host = BrokenHost(tmp_path / "host").make(
        "podman", lay=lambda root: amd_tree.write(root, (amd_tree.radeon(),))
    )
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("gpus", "warning")
    assert "can be used for graphics only" in row["detail"]


def test_a_module_that_is_not_loaded_is_told_where_the_vendor_was_asked_for(amd: BrokenHost) -> None:
    shutil.rmtree(amd.root / "sys/module/amdgpu")
    amd.put("etc/cdigen/config.yaml", "vendors: [amd]\n")
    row = amd.diagnosis()
    assert (row["check"], amd.told(row)) == ("driver-loaded", "modprobe amdgpu")
