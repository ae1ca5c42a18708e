"""Check quickly whether a host has any of Intel's devices.

cdigen runs this check on every host at each start. Therefore, the module is short. The kernel's
Documentation/gpu/{i915,xe} and accel/ describe the drivers.
"""

from __future__ import annotations

from cdigen.host.procfs import number_behind, read_text
from cdigen.host.sysfs import ACCELERATORS, PCI_DRIVERS, bound, pci_devices
from cdigen.model.errors import HostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

GPU, NPU, GAUDI, MEI = "gpu", "npu", "gaudi", "gpu-mei"

# Driver -> class of its devices. The first driver with a device is the driver of the inventory.
DRIVERS = {"i915": GPU, "xe": GPU, "intel_vpu": NPU, "habanalabs": GAUDI}
# Drivers that pass a device to a virtual machine. xe-vfio-pci also migrates the state of virtual functions.
VFIO_DRIVERS = ("vfio-pci", "xe-vfio-pci")

CDI_VENDOR = "intel.com"
# The role of the nodes through which VFIO passes a device to a virtual machine.
VFIO_ROLE = "vfio"
# The role of the nodes for access to a GPU's firmware.
MEI_ROLE = "mei"

INTEL, HABANA = 0x8086, 0x1DA3
# (vendor, PCI base class, PCI sub-class or None for all, class of the device). In PCI Code and ID Assignment,
# 03 is display, and 12 00 is "processing accelerators".
CLASSES = ((INTEL, 0x03, None, GPU), (INTEL, 0x12, 0x00, NPU), (HABANA, 0x12, 0x00, GAUDI))

WORDS = {GPU: "GPU", NPU: "NPU", GAUDI: "Gaudi"}

# The namings for profiles that set no naming.
NAMINGS = ("index", "pci", "card")

# The hint for devices without a driver.
NOT_BOUND = (
    "see 'lspci -k -d 8086:' and 'dmesg'; an old kernel needs the parameter "
    "'xe.force_probe=' with the PCI device number of a newer GPU"
)

# (list of devices on any bus, prefix of the names, class of Intel's devices in the list).
CLASS_LISTS = (("/sys/class/drm", "card", GPU), ("/sys/class/accel", "accel", NPU))


def has_devices(host: Root, *, vfio: bool) -> bool:
    """Return whether HOST may have a device that cdigen can offer. The function reads few files of /sys.

    Such a device has a driver. If VFIO is true, the VFIO drivers are included.
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


def no_device(host: Root) -> HostError:
    """Return a HostError that reports that no Intel device on HOST has a driver.

    If HOST has a device without a driver, and a driver for such devices is loaded, the kind of the error is
    ``no-usable-device``. Else the kind is ``driver-not-loaded``.
    """
    if unused := _unused(host):
        return HostError(
            f"no Intel device has a driver, although a driver is loaded for {', '.join(unused)}",
            hint=NOT_BOUND,
            kind="no-usable-device",
        )
    return HostError(
        f"no device has a driver of Intel ({', '.join(DRIVERS)})",
        hint=NOT_BOUND,
        kind="driver-not-loaded",
    )


def _unused(host: Root) -> list[str]:
    """Return the addresses of devices that have no driver, although a driver for them is loaded.

    Only the first function of a device is in the result. i915 never binds to the second function of an old
    integrated GPU, and other devices have only one function.
    """
    served = {device for driver, device in DRIVERS.items() if host.exists(f"{PCI_DRIVERS}/{driver}")}
    return [
        address
        for vendor, base, _, device in CLASSES
        if device in served
        for address, driver in pci_devices(
            host, vendor=vendor, classes=tuple(each for each in ACCELERATORS if each >> 8 == base)
        )
        if not driver and address.endswith(".0")
    ]


def number(host: Root, path: str) -> int | None:
    """Return the hexadecimal number in the file PATH of /sys, or None if it cannot be read."""
    try:
        return int(read_text(host, path).strip(), 16)
    except (OSError, ValueError):
        return None
