"""Whose lines of the kernel's log are passed on: ``BEGINNINGS``, which a line has to begin with.

Only the beginning of a record counts. Much of what the kernel writes contains text of users (names of
files, mount options with line feeds in them), but it begins with what its author wrote. Names of processes
are the exception: some lines begin with one (``NVRM: Xid (PCI:[812]: segfault at``, fault.c). It has 15
characters at most, so whoever reads the lines has to know more than that of each.
"""

from __future__ import annotations

# The beginning, and whose it is. A line about a device begins with its driver's name and its own: "xe
# 0000:03:00.0: ".
DRIVERS = (
    ("NVRM: ", "nvidia: Xid, and that a GPU is lost or was not initialised (NVIDIA, XID Errors)"),
    ("nvidia", "nvidia, nvidia-modeset, nvidia-uvm, nvidia-nvlink; SXid of NVSwitches (nvidia-nvswitch0)"),
    ("nvswitch", "NVSwitches, as Fabric Manager's guide names them"),
    ("amdgpu", "amdgpu: resets, RAS, devices lost (amdgpu_device.c, amdgpu_ras.c)"),
    ("kfd ", "amdkfd, the compute side of amdgpu (kfd_device.c)"),
    ("[drm", "DRM's own lines and macros before 6.x, of amdgpu and i915 too (drm_print.h)"),
    ("amdxdna ", "AMD's NPU"),
    ("i915 ", "i915: hangs, resets, a GPU that is wedged (intel_reset.c)"),
    ("xe ", "xe: hangs, resets, a GPU that is wedged (xe_device.c)"),
    ("intel_vpu ", "Intel's NPU (ivpu_pm.c)"),
    ("habanalabs", "Gaudi (drivers/accel/habanalabs)"),
    ("accel ", "devices of the accel subsystem, by the name of their node"),
    ("pcieport ", "PCIe ports: AER and DPC name the device (aer.c, dpc.c)"),
    ("pci ", "PCIe devices without a driver, likewise"),
    ("vfio-pci ", "PCIe devices that are given to guests, likewise"),
    ("nouveau ", "the other driver of NVIDIA's GPUs"),
)
BEGINNINGS = tuple(beginning.encode() for beginning, _ in DRIVERS)
