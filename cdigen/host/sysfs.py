"""List PCI devices from /sys, and read PCI addresses.

Source of names and formats: the kernel's Documentation/ABI/testing/sysfs-bus-pci.
"""

from __future__ import annotations

from cdigen.host.procfs import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

PCI_DEVICES = "/sys/bus/pci/devices"
PCI_DRIVERS = "/sys/bus/pci/drivers"
# VGA, 3D and other display controllers, and processing accelerators such as AMD's Instinct (PCI Code and ID
# Assignment, classes 03 and 12).
PROCESSING_ACCELERATOR = 0x1200
# The class of AMD's NPUs (the same document, class 11 80).
SIGNAL_PROCESSOR = 0x1180
ACCELERATORS = (0x0300, 0x0302, 0x0380, PROCESSING_ACCELERATOR)
_HEX = frozenset("0123456789abcdef")


def pci_key(address: str) -> tuple[int, int, int, int] | None:
    """Return (domain, bus, device, function) of the PCI ADDRESS, or None if it is not valid.

    The domain has four to eight hexadecimal digits (virtual machines have domains above 0xffff).
    """
    domain, _, rest = address.partition(":")
    bus, _, rest = rest.partition(":")
    device, _, function = rest.partition(".")
    lengths = (4 <= len(domain) <= 8, len(bus) == 2, len(device) == 2, len(function) == 1)
    if not all(lengths) or not _HEX.issuperset(domain + bus + device + function):
        return None
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)


def pci_address(text: str) -> str | None:
    """Return the PCI address TEXT in the spelling of sysfs (lower case, short domain), or None."""
    key = pci_key(text.lower())
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*key) if key else None


def pci_devices(root: Root, *, vendor: int, classes: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    """Return the PCI functions of VENDOR (``0x10de``) as pairs of address and bound driver.

    The pairs are sorted by address. The driver is "" if no driver is bound. CLASSES are class and sub-class
    in one number (``0x0302``). The result omits unreadable entries, because the /sys entry of a removed
    device disappears.
    """
    found = []
    for address in root.names(PCI_DEVICES):
        folder = f"{PCI_DEVICES}/{address}"
        if pci_key(address) is None or _number(root, f"{folder}/vendor") != vendor:
            continue
        if class_of(root, folder) not in classes:
            continue
        try:
            driver = root.resolve(f"{folder}/driver").rpartition("/")[2]
        except OSError:
            driver = ""
        found.append((pci_address(address) or address, driver))
    return tuple(sorted(found, key=lambda device: pci_key(device[0]) or ()))


def bound(root: Root, driver: str) -> list[str]:
    """Return the names of the folders of the PCI functions bound to DRIVER, sorted by address."""
    names = root.names(f"{PCI_DRIVERS}/{driver}")
    return sorted(filter(pci_key, names), key=lambda name: pci_key(name) or ())


def has_guest(root: Root, address: str) -> bool:
    """Return whether a VFIO driver (vfio-pci) for virtual machines is bound to the PCI device ADDRESS."""
    try:
        driver = root.resolve(f"{PCI_DEVICES}/{address}/driver")
    except OSError:
        return False
    return "vfio" in driver.rpartition("/")[2]


def class_of(root: Root, folder: str) -> int:
    """Return class and sub-class (``0x0302``) of the PCI function at FOLDER, or 0 if unreadable."""
    return (_number(root, f"{folder}/class") or 0) >> 8


def _number(root: Root, path: str) -> int | None:
    try:
        return int(read_text(root, path).strip(), 16)
    except (OSError, ValueError):
        return None
