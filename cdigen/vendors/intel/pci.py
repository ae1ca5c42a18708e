"""List the PCI functions of Intel's GPUs, NPUs and Gaudis, and their SR-IOV virtual functions.

``read_functions`` is the main function. It reads the lists of the functions that are bound to Intel's
drivers. It finds all other functions of Intel by PCI vendor and class.

With SR-IOV, the folder of a physical function has an entry ``virtfn<N>`` for each virtual function. The
folder of a virtual function has the entry ``physfn`` (the kernel's
Documentation/ABI/testing/sysfs-bus-pci). Drivers and containers use a virtual function in the same way as
any other GPU. The physical function is also a GPU, with the resources that are not assigned to virtual
functions.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import number_behind, read_text
from cdigen.host.root import reason, shown
from cdigen.host.sysfs import PCI_DEVICES, PCI_DRIVERS, pci_address, pci_key
from cdigen.value import frozen
from cdigen.vendors.intel.presence import CLASS_LISTS, CLASSES, DRIVERS, GPU, INTEL, WORDS, number
from cdigen.vendors.kernel.pci.names import pci_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import FindingCollector

_DEVICE_ID = re.compile("0x[0-9a-f]{4}")

# PCI device number -> model. The numbers are from the kernel's include/drm/intel/pciids.h (GPUs),
# drivers/accel/ivpu/ivpu_drv.h (NPUs) and drivers/accel/habanalabs/common/habanalabs_drv.c (Gaudi). The names
# are from Intel's list "Hardware" at dgpu-docs.intel.com.
_FLEX, _ARC, _ARC_PRO, _MAX = "Data Center GPU Flex", "Arc", "Arc Pro", "Data Center GPU Max"
MODELS = {
    "0x0b69": f"{_MAX} 1550",
    "0x0bd0": f"{_MAX} 1550",
    "0x0bd5": f"{_MAX} 1550",
    "0x0bd6": f"{_MAX} 1450",
    "0x0bd9": f"{_MAX} 1100",
    "0x0bda": f"{_MAX} 1100",
    "0x0bdb": f"{_MAX} 1100",
    "0x4905": "Iris Xe MAX",
    "0x56a0": f"{_ARC} A770",
    "0x56a1": f"{_ARC} A750",
    "0x56a2": f"{_ARC} A580",
    "0x56a5": f"{_ARC} A380",
    "0x56a6": f"{_ARC} A310",
    "0x56b0": f"{_ARC_PRO} A30M",
    "0x56b1": f"{_ARC_PRO} A40/A50",
    "0x56b2": f"{_ARC_PRO} A60M",
    "0x56b3": f"{_ARC_PRO} A60",
    "0x56c0": f"{_FLEX} 170",
    "0x56c1": f"{_FLEX} 140",
    "0xe20b": f"{_ARC} B580",
    "0xe20c": f"{_ARC} B570",
    "0xe211": f"{_ARC_PRO} B60",
    "0xe212": f"{_ARC_PRO} B50",
    "0xe222": f"{_ARC_PRO} B65",
    "0xe223": f"{_ARC_PRO} B70",
    "0x1000": "Gaudi",
    "0x1001": "Gaudi",
    "0x1010": "Gaudi",
    "0x1011": "Gaudi",
    "0x1020": "Gaudi2",
    "0x1030": "Gaudi3",
    "0x1060": "Gaudi3",
    "0x1061": "Gaudi3",
    "0x1062": "Gaudi3",
    "0x1063": "Gaudi3",
    "0x7d1d": "NPU (Meteor Lake)",
    "0xad1d": "NPU (Arrow Lake)",
    "0x643e": "NPU (Lunar Lake)",
    "0xb03e": "NPU (Panther Lake)",
    "0xfd3e": "NPU (Wildcat Lake)",
    "0xd71d": "NPU (Nova Lake)",
}


@frozen
class PciFunction:
    """A PCI function of an Intel device.

    ``folder`` is the folder in /sys. ``entries`` are the names in this folder. ``address`` is empty if /sys
    has no address. ``driver`` is empty if the function has no driver. ``device_id`` (``0x56c0``) is empty if
    it cannot be read. ``listed_name`` is the name in the host's pci.ids of a device that is not in MODELS, or
    empty.
    """

    address: str
    folder: str
    driver: str
    device_class: str
    device_id: str
    entries: frozenset[str]
    listed_name: str = ""

    @property
    def word(self) -> str:
        """The device in messages, such as ``GPU 0000:03:00.0``."""
        return f"{WORDS[self.device_class]} {self.address or shown(self.folder)}"


def read_functions(host: Root, collector: FindingCollector) -> tuple[PciFunction, ...]:
    """Return the functions of all Intel GPUs, NPUs and Gaudis in /sys, sorted by address.

    The function adds a finding for a device that disappears during the read, or that is listed twice.
    """
    reader = _Reader(host, collector)
    reader.read_bound()
    reader.read_others()
    reader.read_lists()
    return tuple(sorted(reader.found, key=_order))


def link_name(host: Root, path: str) -> str:
    """Return the last name in the target of the link PATH, or "" if PATH is not a link.

    The target need not exist.
    """
    try:
        return host.resolve_new(path).rpartition("/")[2]
    except OSError:
        return ""


def _order(function: PciFunction) -> tuple[bool, tuple[int, ...], str]:
    return not function.address, pci_key(function.address) or (), function.folder


class _Reader:
    """Reads the functions of one host."""

    def __init__(self, host: Root, collector: FindingCollector) -> None:
        self._host = host
        self._collector = collector
        self._addresses: dict[str, str] = {}
        self.found: list[PciFunction] = []

    def read_bound(self) -> None:
        """Read the functions that are bound to Intel's drivers."""
        for driver, device_class in DRIVERS.items():
            for name in self._host.names(f"{PCI_DRIVERS}/{driver}"):
                if pci_address(name):
                    folders = (f"{PCI_DEVICES}/{name}", f"{PCI_DRIVERS}/{driver}/{name}")
                    self._add(name, folders, driver, device_class)

    def read_others(self) -> None:
        """Read Intel's functions that have no driver, or a driver of another vendor."""
        for name in self._host.names(PCI_DEVICES):
            address = pci_address(name)
            if not address or address in self._addresses:
                continue
            folder = f"{PCI_DEVICES}/{name}"
            device_class = self._class_of(folder)
            if device_class:
                driver = self._driver(folder)
                self._add(name, (folder,), driver, device_class)

    def read_lists(self) -> None:
        """Read the devices that are only in the classes of /sys, because they have no valid PCI address."""
        known = {entry for function in self.found for entry in _minors(self._host, function)}
        for path, prefix, device_class in CLASS_LISTS:
            for name in self._host.names(path):
                folder = f"{path}/{name}/device"
                if name in known or number_behind(prefix, name) is None:
                    continue
                if number(self._host, f"{folder}/vendor") != INTEL:
                    continue
                driver = self._driver(folder)
                if not driver or DRIVERS.get(driver) == device_class:
                    address = pci_address(link_name(self._host, folder)) or ""
                    self._add(address, (folder,), driver, device_class)

    def _driver(self, folder: str) -> str:
        return (
            shown(link_name(self._host, f"{folder}/driver")) if "driver" in self._host.names(folder) else ""
        )

    def _class_of(self, folder: str) -> str:
        # The class is read first. On Intel CPUs, most functions are Intel's, but few have a class in CLASSES.
        pci_class = number(self._host, f"{folder}/class")
        if pci_class is None:
            return ""
        base, sub = pci_class >> 16, pci_class >> 8 & 0xFF
        fitting = [row for row in CLASSES if row[1] == base and row[2] in {None, sub}]
        vendor = number(self._host, f"{folder}/vendor") if fitting else None
        return next((row[3] for row in fitting if row[0] == vendor), "")

    def _add(self, name: str, folders: Iterable[str], driver: str, device_class: str) -> None:
        address = pci_address(name) or ""
        folder = next((each for each in folders if self._host.exists(each)), "")
        known = self._addresses.get(address) if address else None
        if known is not None:
            message = (
                f"{address} is listed twice, as {known} and by {driver or 'no driver'}; "
                "cdigen uses the first entry"
            )
            self._collector.add("warning", "device-repeated", address, message, "see 'lspci -k'")
            return
        if not folder:
            self._collector.add(
                "warning",
                "device-vanished",
                address,
                f"{WORDS[device_class]} {address} of {driver or 'no driver'} gets no CDI device: "
                "it is listed, but its folder in /sys does not exist",
                "see 'dmesg': the device was removed during the read, or its driver has failed",
            )
            return
        if address:
            self._addresses[address] = f"{WORDS[device_class]} of {driver or 'no driver'}"
        device_id = self._device_id(folder, address)
        self.found.append(
            PciFunction(
                address=address,
                folder=folder,
                driver=driver,
                device_class=device_class,
                device_id=device_id,
                entries=frozenset(self._host.names(folder)),
                listed_name="" if device_id in MODELS else pci_name(self._host, INTEL, device_id),
            )
        )

    def _device_id(self, folder: str, address: str) -> str:
        """Return the PCI device number in the format of sysfs, or "" if it cannot be read.

        In this case, the function adds a finding if ADDRESS is not empty.
        """
        path = f"{folder}/device"
        try:
            text = read_text(self._host, path).strip().lower()
            problem = f"contains {text[:20]!r}, which is not a PCI device number"
        except OSError as error:
            text, problem = "", f"cannot be read: {reason(error)}"
        if _DEVICE_ID.fullmatch(text):
            return text
        if address:
            message = f"{path} {problem}; {address} has no CDI name with its PCI address"
            self._collector.add("warning", "device-id-unreadable", path, message, "see 'lspci -nn'")
        return ""


def _minors(host: Root, function: PciFunction) -> list[str]:
    folder = "drm" if function.device_class == GPU else "accel"
    return host.names(f"{function.folder}/{folder}") if folder in function.entries else []


@frozen
class VirtualFunction:
    """A virtual function.

    ``parent`` is the address of its physical function. ``number`` is None if /sys does not have the number.
    """

    parent: str
    number: int | None


def virtual_functions(
    host: Root, functions: Iterable[PciFunction], collector: FindingCollector
) -> Mapping[str, VirtualFunction]:
    """Return the virtual functions in FUNCTIONS, by address; add a finding for each broken link."""
    found: dict[str, VirtualFunction] = {}
    every = tuple(functions)
    for physical in every:
        for name in physical.entries:
            ordinal = number_behind("virtfn", name)
            if ordinal is not None:
                address = pci_address(link_name(host, f"{physical.folder}/{name}"))
                if address:
                    found[address] = VirtualFunction(parent=physical.address, number=ordinal)
    for function in every:
        if "physfn" not in function.entries or function.address in found:
            continue
        path = f"{function.folder}/physfn"
        parent = pci_address(link_name(host, path))
        if parent:
            found[function.address] = VirtualFunction(parent=parent, number=None)
            continue
        message = (
            f"{path} is not a link to a PCI device; {function.word} is not treated as a virtual function"
        )
        collector.add("warning", "sysfs-link-broken", path, message, "see 'lspci -vv' and 'dmesg'")
    return found
