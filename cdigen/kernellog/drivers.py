"""``BEGINNINGS``: the program forwards the lines of the kernel log that begin with one of these texts.

The program checks only the beginning of a record. Many lines of the kernel contain text from users (file
names, mount options with line feeds), but begin with text of the kernel. There is one exception: some lines
begin with the name of a process (``NVRM: Xid (PCI:[812]: segfault at``, fault.c). The name of a process has
at most 15 characters. Therefore the reader of the lines must check more than 15 characters of each line.
"""

from __future__ import annotations

# (beginning, driver). A line about a device begins with the names of the driver and the device: "xe
# 0000:03:00.0: ".
DRIVERS = (
    ("NVRM: ", "nvidia: Xid, lost GPUs, failed initialisation (NVIDIA, XID Errors)"),
    ("nvidia", "nvidia, nvidia-modeset, nvidia-uvm, nvidia-nvlink; SXid of NVSwitches (nvidia-nvswitch0)"),
    ("nvswitch", "NVSwitches, by their names in Fabric Manager's guide"),
    ("amdgpu", "amdgpu: resets, RAS, devices lost (amdgpu_device.c, amdgpu_ras.c)"),
    ("kfd ", "amdkfd, the compute side of amdgpu (kfd_device.c)"),
    ("[drm", "DRM; before Linux 6.x also lines of amdgpu and i915 from DRM's macros (drm_print.h)"),
    ("amdxdna ", "AMD's NPU"),
    ("i915 ", "i915: hangs, resets, a GPU that is wedged (intel_reset.c)"),
    ("xe ", "xe: hangs, resets, a GPU that is wedged (xe_device.c)"),
    ("intel_vpu ", "Intel's NPU (ivpu_pm.c)"),
    ("habanalabs", "Gaudi (drivers/accel/habanalabs)"),
    ("accel ", "devices of the accel subsystem, by the name of their node"),
    ("pcieport ", "PCIe ports: AER and DPC name the device (aer.c, dpc.c)"),
    ("pci ", "PCIe devices without a driver: AER and DPC"),
    ("vfio-pci ", "PCIe devices that are passed through to guests: AER and DPC"),
    ("nouveau ", "nouveau, the kernel's own driver of NVIDIA's GPUs"),
)
BEGINNINGS = tuple(beginning.encode() for beginning, _ in DRIVERS)
_OPTION = "--driver="


def beginnings(arguments: list[str]) -> tuple[bytes, ...]:
    """Return BEGINNINGS, and the beginnings of lines about the devices of the drivers in ARGUMENTS."""
    added = (word.removeprefix(_OPTION) for word in arguments if word.startswith(_OPTION))
    return (*BEGINNINGS, *(f"{name} ".encode() for name in added if name))
