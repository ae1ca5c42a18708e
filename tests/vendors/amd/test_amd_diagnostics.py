"""The diagnostics of AMD's devices, and the files and uevents that the daemon watches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree
from support.hosts.amd import discover, places
from support.hosts.amd_tree import mi210, mi300x, radeon
from support.hosts.driver_files import put

from cdigen.vendors.amd.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory

pytestmark = pytest.mark.usefixtures("real_nodes")


def found(root: Path, inventory: Inventory | None) -> list[tuple[str, str]]:
    findings: tuple[Finding, ...] = VENDOR.diagnostics(places(root), inventory)
    return [(finding.severity, finding.rule) for finding in findings]


def unbound(root: Path, bdf: str = "0000:03:00.0") -> None:
    """Write the files of a GPU that is on the PCI bus and has no driver."""
    put(root / "sys/bus/pci/devices" / bdf / "vendor", b"0x1002\n")
    put(root / "sys/bus/pci/devices" / bdf / "class", b"0x030000\n")


def test_a_healthy_host_has_no_finding(tmp_path: Path) -> None:
    assert found(tmp_path, discover(tmp_path, *mi300x(2, count=1))) == []


def test_nodes_that_only_root_can_open_are_reported(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(1))
    for node in ("dev/dri/renderD128", "dev/kfd"):
        (tmp_path / node).chmod(0o600)
    findings = VENDOR.diagnostics(places(tmp_path), discover(tmp_path))
    assert [finding.rule for finding in findings] == ["render-group", "kfd-mode"]
    assert "only root can open /dev/dri/renderD128" in findings[0].message
    assert "only root can open /dev/kfd (mode 0600)" in findings[1].message


def test_a_kfd_node_that_only_root_can_open_is_reported(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(1))
    (tmp_path / "dev/kfd").chmod(0o600)
    assert found(tmp_path, discover(tmp_path)) == [("warning", "kfd-mode")]


def test_a_gpu_is_reported_if_the_module_amdgpu_is_not_loaded(tmp_path: Path) -> None:
    unbound(tmp_path)
    assert found(tmp_path, None) == [("warning", "gpu-not-bound")]
    (finding,) = VENDOR.diagnostics(places(tmp_path), None)
    assert "0000:03:00.0 is on the PCI bus, but the module amdgpu is not loaded" in finding.message
    assert finding.hint == "run 'modprobe amdgpu'"
    put(tmp_path / "etc/modprobe.d/vm.conf", b"# VMs\nblacklist amdgpu\n")
    (finding,) = VENDOR.diagnostics(places(tmp_path), None)
    assert finding.hint == "remove amdgpu from /etc/modprobe.d/vm.conf:2"


@pytest.mark.parametrize("parameters", [b"root=/dev/vda1 nomodeset quiet\n", b"quiet\tnomodeset\nro\n"])
def test_the_kernel_parameter_nomodeset_is_reported(tmp_path: Path, parameters: bytes) -> None:
    unbound(tmp_path)
    put(tmp_path / "proc/cmdline", parameters)
    (finding,) = VENDOR.diagnostics(places(tmp_path), None)
    assert "nomodeset" in finding.message


def test_missing_firmware_is_reported_if_amdgpu_is_not_bound_to_a_gpu(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *mi210(1))
    unbound(tmp_path)
    assert found(tmp_path, inventory) == [("warning", "firmware-missing")]
    put(tmp_path / "lib/firmware/amdgpu/navi31_mec.bin.zst")
    assert found(tmp_path, inventory) == [("warning", "gpu-not-bound")]


def test_a_gpu_with_a_vfio_driver_is_only_an_info_finding(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *mi210(1))
    unbound(tmp_path)
    (tmp_path / "sys/bus/pci/drivers/vfio-pci").mkdir()
    (tmp_path / "sys/bus/pci/devices/0000:03:00.0/driver").symlink_to("../../drivers/vfio-pci")
    assert found(tmp_path, inventory) == [("info", "gpu-not-bound")]


def test_nodes_partitions_and_kfd_are_watched(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(2, count=1))
    watches = VENDOR.watches(places(tmp_path))
    assert set(watches.files) == {f"{tmp_path}/dev/{name}" for name in ("kfd", "dri/*", "accel/*")}
    driver = f"{tmp_path}/sys/bus/pci/drivers/amdgpu"
    assert set(watches.polled) == {
        f"{tmp_path}/sys/class/kfd",
        f"{tmp_path}/sys/bus/pci/drivers/amdxdna",
        f"{tmp_path}/sys/class/kfd/kfd/topology/generation_id",
        driver,
        f"{driver}/0000:05:00.0/current_compute_partition",
        f"{driver}/0000:05:00.0/current_memory_partition",
    }
    assert {"pci", "module", "drm", "accel", "kfd", "platform"} == set(watches.subsystems)


def test_a_host_without_amdgpu_is_watched_for_amdgpu(tmp_path: Path) -> None:
    watches = VENDOR.watches(places(tmp_path))
    assert f"{tmp_path}/sys/bus/pci/drivers/amdgpu" in watches.polled
    assert "module" in watches.subsystems


def test_a_gpu_without_a_card_node_has_no_finding(tmp_path: Path) -> None:
    assert found(tmp_path, discover(tmp_path, replace(radeon(), card=None))) == []
