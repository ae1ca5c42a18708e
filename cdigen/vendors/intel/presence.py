"""Tell quickly whether a host has any of Intel's devices; asked on every host at every start."""

from __future__ import annotations

from cdigen.host.procfs import number_behind, read_text
from cdigen.host.sysfs import pci_key
from cdigen.model.errors import HostError
from cdigen.vendors.intel.tables import DRIVERS, GPU, INTEL, NPU, VFIO_DRIVERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

PCI_DRIVERS = "/sys/bus/pci/drivers"
# Where devices are listed by what they are, whatever bus they are on -> the class of those of Intel.
CLASS_LISTS = (("/sys/class/drm", "card", GPU), ("/sys/class/accel", "accel", NPU))


def has_devices(host: Root, *, vfio: bool) -> bool:
    """Return whether there may be anything to offer, after a few reads of /sys; VFIO counts its drivers, too.

    A device that no driver has offers nothing.
    """
    drivers = (*DRIVERS, *(VFIO_DRIVERS if vfio else ()))
    if any(pci_key(name) for driver in drivers for name in host.names(f"{PCI_DRIVERS}/{driver}")):
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
