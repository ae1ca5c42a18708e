"""The names of devices that are not in cdigen's tables come from the host's amdgpu.ids and pci.ids."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd, amd_tree, intel_tree
from support.hosts.driver_files import put
from support.hosts.intel import discover

from cdigen.host.root import Root
from cdigen.vendors.kernel.pci.names import amdgpu_name, pci_name

if TYPE_CHECKING:
    from pathlib import Path

# The lines have the format of libdrm 2.4.125 and pci.ids 2025.08.
AMDGPU = (
    b"# List of AMDGPU IDs\n\n1.0.0\n7550,\tC0,\tAMD Radeon RX 9070 XT\n7550,\tC3,\tAMD Radeon RX 9070\n"
    b"1586,\tC1,\tAMD Radeon 8060S Graphics\n"
)
PCI = (
    b"# List of PCI ID's\n0e11  Compaq Computer Corporation\n\tb080  Wrong vendor\n"
    b"1002  Advanced Micro Devices, Inc. [AMD/ATI]\n\t7551  Navi 48 [Radeon AI PRO R9700]\n"
    b"\t\t1002 0e2b  Another board\n1022  Advanced Micro Devices, Inc. [AMD]\n\t17f3  Medusa NPU\n"
    b"8086  Intel Corporation\n\tb080  Panther Lake [Arc B390]\n\ta780  Raptor Lake-S GT1\n"
    b"C 03  Display controller\n\t7550  not a device\n"
)


@pytest.fixture
def host(tmp_path: Path) -> Root:
    put(tmp_path / "usr/share/libdrm/amdgpu.ids", AMDGPU)
    put(tmp_path / "usr/share/hwdata/pci.ids", PCI)
    return Root(str(tmp_path))


@pytest.mark.parametrize(
    ("device", "revision", "name"),
    [
        ("0x7550", "0xc0", "AMD Radeon RX 9070 XT"),
        ("0x7550", "0xc3", "AMD Radeon RX 9070"),
        ("0x1586", "0xc1", "AMD Radeon 8060S Graphics"),
        ("0x7550", "0xff", ""),
        ("", "", ""),
    ],
)
def test_a_name_in_amdgpu_ids_depends_on_device_and_revision(
    host: Root, device: str, revision: str, name: str
) -> None:
    assert amdgpu_name(host, device, revision) == name


@pytest.mark.parametrize(
    ("vendor", "device", "name"),
    [
        (0x8086, "0xb080", "Arc B390"),
        (0x8086, "0xa780", "Raptor Lake-S GT1"),
        (0x1002, "0x7551", "Radeon AI PRO R9700"),
        (0x1002, "0x7550", ""),
        (0x8086, "0x7551", ""),
        (0x8086, "", ""),
        (0x10DE, "0xb080", ""),
    ],
)
def test_a_name_in_pci_ids_depends_on_vendor_and_device(
    host: Root, vendor: int, device: str, name: str
) -> None:
    assert pci_name(host, vendor, device) == name


def test_a_host_without_lists_has_no_names(tmp_path: Path) -> None:
    root = Root(str(tmp_path))
    assert (amdgpu_name(root, "0x7550", "0xc0"), pci_name(root, 0x8086, "0xb080")) == ("", "")


@pytest.mark.parametrize("line", [b"7550,\tC0,\tbell \x07\n", b"7550,\tC0\n", b"\xff\xfe"])
def test_a_name_that_is_not_printable_is_ignored(tmp_path: Path, line: bytes) -> None:
    put(tmp_path / "usr/share/libdrm/amdgpu.ids", line)
    assert amdgpu_name(Root(str(tmp_path)), "0x7550", "0xc0") == ""


@pytest.mark.usefixtures("real_nodes")
def test_new_amd_and_intel_devices_have_the_names_of_the_host(host: Root, tmp_path: Path) -> None:
    amd_tree.write(tmp_path, (replace(amd_tree.radeon(), device_id=0x7551),))
    put(tmp_path / "sys/devices/pci0000:00/0000:03:00.0/revision", b"0xc0\n")
    amd_tree.write_npu(tmp_path, device_id=0x17F3)
    assert [each.model for each in amd.discover(tmp_path).accelerators] == [
        "AMD Radeon AI PRO R9700",
        "AMD Medusa NPU",
    ]
    put(tmp_path / "sys/devices/pci0000:00/0000:03:00.0/device", b"0x7550\n")
    assert amd.discover(tmp_path).accelerators[0].model == "AMD Radeon RX 9070 XT"
    shown = intel_tree.Device(address="0000:00:02.0", device_id="0xb080", driver="xe", card=3, render=131)
    assert discover(tmp_path, shown).accelerators[0].model == "Arc B390"
    assert pci_name(host, 0x8086, "0xb080") == "Arc B390"
