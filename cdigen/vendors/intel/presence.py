"""Find out quickly whether a host has any of Intel's devices.

Asked on every host at every start, so short. Sources: Documentation/gpu/{i915,xe} and accel/ of the kernel.
"""

from __future__ import annotations

from cdigen.host.procfs import number_behind, read_text
from cdigen.host.sysfs import bound
from cdigen.model.errors import HostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

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

# Where devices are listed by what they are, whatever bus they are on -> the class of those of Intel.
CLASS_LISTS = (("/sys/class/drm", "card", GPU), ("/sys/class/accel", "accel", NPU))


def has_devices(host: Root, *, vfio: bool) -> bool:
    """Return whether there may be anything to offer, after a few reads of /sys; VFIO counts its drivers, too.

    A device that no driver has offers nothing.
    """
    drivers = (*DRIVERS, *(VFIO_DRIVERS if vfio else ()))
    if any(bound(host, driver) for driver in drivers):
        return True
    return any(
        number(host, f"{path}/{name}/device/vendor") == INTEL
        for path, prefix, _ in CLASS_LISTS
        for name in host.names(path)
        if number_behind(prefix, name) is not None
    )


def no_device() -> HostError:
    """Return the error that this host has no device of Intel's that a driver has."""
    return HostError(
        f"none of Intel's drivers ({', '.join(DRIVERS)}) has a device",
        hint="see 'lspci -k -d 8086:' and 'dmesg'; a kernel too old for a GPU takes it with "
        "'xe.force_probe=' and PCI's number of it on its command line",
        kind="driver-not-loaded",
    )


def number(host: Root, path: str) -> int | None:
    """Return the hexadecimal number in the file PATH of /sys; None where there is none."""
    try:
        return int(read_text(host, path).strip(), 16)
    except (OSError, ValueError):
        return None
