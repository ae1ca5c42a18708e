"""The remedy loads the kernel module of an unbound device. Without a device, it loads no module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.doctor.broken_host import BrokenHost
from support.hosts.driver_files import put

if TYPE_CHECKING:
    from pathlib import Path

# The kernel's table of modules by modalias.
ALIASES = """\
alias pci:v00001022d00001502sv*sd*bc*sc*i* amdxdna
alias pci:v00001002d*sv*sd*bc03sc00i00* amdgpu
alias pci:v00008086d000056A0sv*sd*bc03sc*i* xe
alias pci:v00008086d000056A0sv*sd*bc03sc*i* i915
alias pci:v00008086d0000E211sv*sd*bc03sc*i* xe
alias pci:v00008086d0000643Esv*sd*bc*sc*i* intel_vpu
alias pci:v00001DA3d00001060sv*sd*bc*sc*i* habanalabs
"""
UNBOUND = {
    "Instinct": ("amd", "v00001002d0000740Fsv00sd00bc03sc00i00", "amdgpu"),
    "NPU of AMD": ("amd", "v00001022d00001502sv00sd00bc11sc80i00", "amdxdna"),
    "Arc A770": ("intel", "v00008086d000056A0sv00sd00bc03sc00i00", "i915"),
    "Arc Pro B60": ("intel", "v00008086d0000E211sv00sd00bc03sc00i00", "xe"),
    "NPU": ("intel", "v00008086d0000643Esv00sd00bc12sc00i00", "intel_vpu"),
    "Gaudi 3": ("intel", "v00001DA3d00001060sv00sd00bc12sc00i00", "habanalabs"),
}


def lay_unbound(root: Path, modalias: str) -> None:
    """Create a PCI function with MODALIAS and without a driver, and the modules.alias file of a kernel."""
    device = root / "sys/bus/pci/devices/0000:03:00.0"
    put(root / "proc/sys/kernel/osrelease", b"6.17.0\n")
    put(root / "lib/modules/6.17.0/modules.alias", ALIASES.encode())
    put(device / "modalias", f"pci:{modalias}\n".encode())
    put(device / "vendor", f"0x{modalias[5:9].lower()}\n".encode())
    put(device / "class", f"0x{modalias[-8:-6]}{modalias[-4:-2]}00\n".encode())


@pytest.mark.parametrize("device", UNBOUND)
def test_the_remedy_loads_the_module_of_the_device(tmp_path: Path, device: str) -> None:
    vendor, modalias, module = UNBOUND[device]
    host = BrokenHost(tmp_path / "host").install_cdigen()
    lay_unbound(host.root, modalias)
    row = host.result("driver-loaded", "--vendor", vendor)
    assert host.remedy_on_host(row) == f"modprobe {module}"
    (host.root / "sys/module" / module).mkdir(parents=True)
    # The module is loaded now, but has not bound the device.
    assert not any(f"modprobe {module}" in row["detail"] for row in host.results("--vendor", vendor))


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "intel"])
@pytest.mark.parametrize("has_bus", [False, True])
def test_without_a_device_the_remedy_loads_no_module(tmp_path: Path, vendor: str, *, has_bus: bool) -> None:
    host = BrokenHost(tmp_path / "host").install_cdigen()
    (host.root / ("sys/bus/pci/devices" if has_bus else "sys")).mkdir(parents=True)
    row = host.result("driver-loaded", "--vendor", vendor)
    assert f"no GPU of {vendor} is on the PCI bus" in row["detail"]
    assert "modprobe" not in row["detail"] + row["remedy"]
