"""The diagnostics of Intel's devices, and the files and uevents that the daemon watches."""

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
def test_a_host_with_firmware_and_groups_has_no_finding(root: Path, folder: str) -> None:
    lay(root, *laptop(), gpu(3, "0000:03:00.0", FLEX_170, "i915"))
    install_firmware(root, folder)
    assert diagnostics(root) == ()


def test_firmware_is_also_searched_in_the_folder_of_the_kernel_parameter(root: Path) -> None:
    lay(root, *flex_170(0))
    install_firmware(root, "opt/firmware")
    put(root / "sys/module/firmware_class/parameters/path", b"/opt/firmware\n")
    assert diagnostics(root) == ()


@pytest.mark.parametrize(("without", "word"), [("_guc", "GuC"), ("_huc", "HuC")])
def test_missing_firmware_is_reported_with_its_consequence(root: Path, without: str, word: str) -> None:
    lay(root, *flex_170(0))
    install_firmware(root, without=without)
    (finding,) = diagnostics(root)
    assert (finding.rule, finding.severity) == ("firmware-missing", "warning")
    assert f"no {word} firmware for i915" in finding.message
    assert finding.hint


def test_missing_firmware_is_not_reported_if_a_driver_that_requires_it_has_a_device(root: Path) -> None:
    lay(root, *laptop())
    assert [finding.message.split()[1] for finding in diagnostics(root)] == ["HuC"]


def test_missing_firmware_is_reported_if_the_driver_of_an_npu_has_no_device(tmp_path: Path) -> None:
    device = Device(address=npu().address, device_id=npu().device_id, pci_class="0x120000")
    lay(tmp_path, device, nodes=False)
    (tmp_path / "sys/module/intel_vpu").mkdir(parents=True)
    found = VENDOR.diagnostics(places(tmp_path), None)
    assert [finding.rule for finding in found] == ["device-not-bound", "firmware-missing"]


@pytest.mark.parametrize(
    ("gid", "mode", "is_reported"), [(0, 0o660, True), (993, 0o600, True), (0, 0o666, False)]
)
def test_nodes_that_only_root_can_open_are_reported(
    root: Path, gid: int, mode: int, *, is_reported: bool
) -> None:
    lay(root, *b60(1))
    install_firmware(root)
    make_node(root / "dev/dri/renderD129", 226, 129, gid=gid, mode=mode)
    found = diagnostics(root)
    assert [finding.rule for finding in found] == (["render-group"] if is_reported else [])
    # The folder by-path has another path of the same node.
    assert [finding.message.count("/dev/dri/renderD129") for finding in found] == [1] * is_reported


def test_a_host_without_intels_devices_has_no_finding(tmp_path: Path) -> None:
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


def test_with_the_option_vfio_the_daemon_also_watches_vfio(tmp_path: Path) -> None:
    watched = VENDOR.watches(places(tmp_path, vfio=True))
    assert f"{tmp_path}/dev/vfio/*" in watched.files
    assert f"{tmp_path}/sys/bus/pci/drivers/xe-vfio-pci" in watched.polled
    assert "vfio" in watched.subsystems
