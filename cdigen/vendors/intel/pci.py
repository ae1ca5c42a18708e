"""List Intel's PCI functions: GPUs, NPUs and Gaudis, and which of them are SR-IOV virtual functions.

``read_functions`` is the central name. A function that is bound to one of Intel's drivers is listed by that
driver, which proves that it is Intel's; any other is taken by its vendor and class.

SR-IOV: a physical function has ``virtfn<N>`` for each virtual one, and that has ``physfn`` (the kernel's
Documentation/ABI/testing/sysfs-bus-pci). To its driver, and so to containers, a virtual function is a GPU
like any other; the physical one stays a GPU, too, with the resources that its driver kept.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import number_behind, read_text
from cdigen.host.root import reason, shown
from cdigen.host.sysfs import PCI_DEVICES, PCI_DRIVERS, pci_address, pci_key
from cdigen.value import frozen
from cdigen.vendors.intel.presence import CLASS_LISTS, CLASSES, DRIVERS, GPU, INTEL, WORDS, number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import FindingCollector

_DEVICE_ID = re.compile("0x[0-9a-f]{4}")


@frozen
class PciFunction:
    """A device of Intel's: its folder in /sys, its driver (or empty), its class.

    ``address`` is empty where /sys does not tell one, ``device_id`` (``0x56c0``) where it cannot be read.
    ``entries`` are the names in its folder.
    """

    address: str
    folder: str
    driver: str
    device_class: str
    device_id: str
    entries: frozenset[str]

    @property
    def word(self) -> str:
        """What it is, as messages name it: ``GPU 0000:03:00.0``."""
        return f"{WORDS[self.device_class]} {self.address or shown(self.folder)}"


def read_functions(host: Root, collector: FindingCollector) -> tuple[PciFunction, ...]:
    """Read every GPU, NPU and Gaudi of Intel's that /sys lists, in the order of their addresses.

    A device that vanishes while it is read, or is listed twice, is a finding.
    """
    reader = _Reader(host, collector)
    reader.read_bound()
    reader.read_others()
    reader.read_lists()
    return tuple(sorted(reader.found, key=_order))


def link_name(host: Root, path: str) -> str:
    """Return the last part of where the link PATH leads, whether that exists or not; empty if it is none."""
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
        """Read Intel's functions that are bound to no driver, or to another's."""
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
        """Read the devices that only the classes of /sys list: on no bus, or without a valid address."""
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
        # Most functions of a machine with Intel's processor are Intel's, and few have such a class.
        told = number(self._host, f"{folder}/class")
        if told is None:
            return ""
        base, sub = told >> 16, told >> 8 & 0xFF
        fitting = [row for row in CLASSES if row[1] == base and row[2] in {None, sub}]
        vendor = number(self._host, f"{folder}/vendor") if fitting else None
        return next((row[3] for row in fitting if row[0] == vendor), "")

    def _add(self, name: str, folders: Iterable[str], driver: str, device_class: str) -> None:
        address = pci_address(name) or ""
        folder = next((each for each in folders if self._host.exists(each)), "")
        known = self._addresses.get(address) if address else None
        if known is not None:
            message = (
                f"{address} is listed twice, as {known} and by {driver or 'no driver'}; the first counts"
            )
            self._collector.add("warning", "device-repeated", address, message, "see 'lspci -k'")
            return
        if not folder:
            self._collector.add(
                "warning",
                "device-vanished",
                address,
                f"{WORDS[device_class]} {address} of {driver or 'no driver'} is listed, but its folder in "
                "/sys leads nowhere; it gets no device",
                "it was removed while it was read, or its driver is in a bad state: see 'dmesg'",
            )
            return
        if address:
            self._addresses[address] = f"{WORDS[device_class]} of {driver or 'no driver'}"
        self.found.append(
            PciFunction(
                address=address,
                folder=folder,
                driver=driver,
                device_class=device_class,
                device_id=self._device_id(folder, address),
                entries=frozenset(self._host.names(folder)),
            )
        )

    def _device_id(self, folder: str, address: str) -> str:
        """Return PCI's number of the device as sysfs spells it, or empty, which is a finding."""
        path = f"{folder}/device"
        try:
            text = read_text(self._host, path).strip().lower()
            problem = f"holds {text[:20]!r}, no number"
        except OSError as error:
            text, problem = "", f"cannot be read: {reason(error)}"
        if _DEVICE_ID.fullmatch(text):
            return text
        if address:
            message = f"{path} {problem}; {address} is not offered by its PCI address"
            self._collector.add("warning", "device-id-unreadable", path, message, "see 'lspci -nn'")
        return ""


def _minors(host: Root, function: PciFunction) -> list[str]:
    folder = "drm" if function.device_class == GPU else "accel"
    return host.names(f"{function.folder}/{folder}") if folder in function.entries else []


@frozen
class VirtualFunction:
    """A virtual function: the address of its physical one, and its number, None where /sys does not tell."""

    parent: str
    number: int | None


def virtual_functions(
    host: Root, functions: Iterable[PciFunction], collector: FindingCollector
) -> Mapping[str, VirtualFunction]:
    """Return which of FUNCTIONS are virtual ones, by address; a link that leads nowhere is a finding."""
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
            f"{path} leads to no PCI device; {function.word} is served as if it were no virtual function"
        )
        collector.add("warning", "sysfs-link-broken", path, message, "see 'lspci -vv' and 'dmesg'")
    return found
