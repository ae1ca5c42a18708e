"""Facts about Intel's accelerators: drivers, PCI numbers, roles of nodes, namings.

Imported at every start, so short. Sources: Documentation/gpu/{i915,xe} and accel/ of the kernel.
"""

from __future__ import annotations

GPU, NPU, GAUDI, MEI = "gpu", "npu", "gaudi", "gpu-mei"

# Driver -> the class of the devices that it serves. The first that serves one is the inventory's.
DRIVERS = {"i915": GPU, "xe": GPU, "intel_vpu": NPU, "habanalabs": GAUDI}
# Drivers that hand a device to a virtual machine; xe's own carries the state of VFs that migrate.
VFIO_DRIVERS = ("vfio-pci", "xe-vfio-pci")

CDI_VENDOR = "intel.com"
# The role of the nodes by which VFIO gives a device away.
VFIO_ROLE = "vfio"
# That of the nodes by which a GPU's firmware is reached.
MEI_ROLE = "mei"

INTEL, HABANA = 0x8086, 0x1DA3
# (vendor, base class, sub-class or None for all) -> what such a device is (PCI Code and ID Assignment: 03 is
# display, 12 00 "processing accelerators").
CLASSES = ((INTEL, 0x03, None, GPU), (INTEL, 0x12, 0x00, NPU), (HABANA, 0x12, 0x00, GAUDI))

WORDS = {GPU: "GPU", NPU: "NPU", GAUDI: "Gaudi"}

# The namings of a profile that names none.
NAMINGS = ("index", "pci", "card")
