"""What keeps programs from Intel's devices, and what tells that a host has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.driver_files import put
from support.hosts.intel import discover, places
from support.hosts.intel_tree import (
    FLEX_170,
    RELEASE,
    Device,
    b60,
    flex_170,
    gpu,
    laptop,
    lay,
    make_node,
    npu,
)

from cdigen.vendors.intel.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.findings import Finding

real_nodes = pytest.mark.usefixtures("real_nodes")
FIRMWARE = (
    "i915/dg2_guc_70.bin",
    "i915/dg2_huc_gsc.bin.zst",
    "xe/bmg_guc_70.bin.xz",
    "xe/bmg_huc.bin",
    "intel/vpu/vpu_40xx_v1.bin",
)


def diagnostics(root: Path) -> tuple[Finding, ...]:
    return VENDOR.diagnostics(places(root), discover(root))


def install_firmware(root: Path, folder: str = "lib/firmware", *, without: str = "none") -> None:
    for path in FIRMWARE:
        if without not in path:
            put(root / folder / path)


@pytest.mark.parametrize("folder", ["lib/firmware", "lib/firmware/updates", f"lib/firmware/{RELEASE}"])
def test_a_host_with_firmware_and_groups_has_nothing_to_report(root: Path, folder: str) -> None:
    lay(root, *laptop(), gpu(3, "0000:03:00.0", FLEX_170, "i915"))
    install_firmware(root, folder)
    assert diagnostics(root) == ()


def test_firmware_is_also_where_the_kernel_was_told_to_look(root: Path) -> None:
    lay(root, *flex_170(0))
    install_firmware(root, "opt/firmware")
    put(root / "sys/module/firmware_class/parameters/path", b"/opt/firmware\n")
    assert diagnostics(root) == ()


@pytest.mark.parametrize(("without", "word"), [("_guc", "GuC"), ("_huc", "HuC")])
def test_missing_firmware_is_told_with_what_does_not_work_then(root: Path, without: str, word: str) -> None:
    lay(root, *flex_170(0))
    install_firmware(root, without=without)
    (finding,) = diagnostics(root)
    assert (finding.rule, finding.severity) == ("firmware-missing", "warning")
    assert f"no {word} firmware for i915" in finding.message
    assert finding.hint


def test_a_driver_that_has_a_device_has_found_the_firmware_that_it_cannot_do_without(root: Path) -> None:
    lay(root, *laptop())
    assert [finding.message.split()[1] for finding in diagnostics(root)] == ["HuC"]


def test_an_npu_that_its_driver_does_not_take_may_lack_firmware(tmp_path: Path) -> None:
    device = Device(address=npu().address, device_id=npu().device_id, pci_class="0x120000")
    lay(tmp_path, device, nodes=False)
    (tmp_path / "sys/module/intel_vpu").mkdir(parents=True)
    found = VENDOR.diagnostics(places(tmp_path), None)
    assert [finding.rule for finding in found] == ["device-not-bound", "firmware-missing"]


@pytest.mark.parametrize(
    ("gid", "mode", "is_told"), [(0, 0o660, True), (993, 0o600, True), (0, 0o666, False)]
)
def test_nodes_that_only_root_can_open_are_told(root: Path, gid: int, mode: int, *, is_told: bool) -> None:
    lay(root, *b60(1))
    install_firmware(root)
    make_node(root / "dev/dri/renderD129", 226, 129, gid=gid, mode=mode)
    found = diagnostics(root)
    assert [finding.rule for finding in found] == (["render-group"] if is_told else [])
    # By-path has another path of the same node.
    assert [finding.message.count("/dev/dri/renderD129") for finding in found] == [1] * is_told


def test_a_host_without_intel_has_nothing_to_report(tmp_path: Path) -> None:
    assert VENDOR.diagnostics(places(tmp_path), None) == ()


def test_the_daemon_watches_nodes_drivers_and_numbers_of_virtual_functions(tmp_path: Path) -> None:
    lay(tmp_path, *flex_170(2), nodes=False)
    watched = VENDOR.watches(places(tmp_path))
    assert {"pci", "drm", "accel", "habanalabs"} <= set(watched.subsystems)
    assert f"{tmp_path}/dev/dri/by-path/*" in watched.files
    assert f"{tmp_path}/dev/accel/*" in watched.files
    drivers = f"{tmp_path}/sys/bus/pci/drivers"
    assert {f"{drivers}/xe", f"{drivers}/i915/0000:4d:00.0/sriov_numvfs"} <= set(watched.polled)
    assert not any("vfio" in path for path in (*watched.files, *watched.polled, *watched.subsystems))


def test_the_daemon_watches_vfio_by_choice(tmp_path: Path) -> None:
    watched = VENDOR.watches(places(tmp_path, vfio=True))
    assert f"{tmp_path}/dev/vfio/*" in watched.files
    assert f"{tmp_path}/sys/bus/pci/drivers/xe-vfio-pci" in watched.polled
    assert "vfio" in watched.subsystems
