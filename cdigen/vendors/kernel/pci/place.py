"""Read the places of PCI devices: the bridges above each device, its NUMA node and the CPUs of the node.

The names and formats of the files are from the kernel's Documentation/ABI/testing/sysfs-bus-pci.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import number_behind, read_line
from cdigen.host.sysfs import PCI_DEVICES, pci_key
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator

_ROOT_COMPLEX = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
# The kernel prints a list of CPUs in this format (lib/bitmap.c), such as 0-15,64-79.
_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*", re.ASCII)


def placed(host: Root, accelerators: Iterable[Accelerator]) -> tuple[Accelerator, ...]:
    """Return ACCELERATORS with the place of each PCI device; keep places that are set already."""
    reader = PlaceReader(host)
    return tuple(
        _placed(reader, each) if pci_key(each.address) and not each.pci_path else each
        for each in accelerators
    )


def _placed(reader: PlaceReader, accelerator: Accelerator) -> Accelerator:
    address = accelerator.address
    node = reader.numa_node(address)
    return replace(
        accelerator, pci_path=reader.path(address), numa_node=node, cpus=reader.cpus(address, node)
    )


class PlaceReader:
    """Reads the places of devices by PCI address. It reads the CPUs of each NUMA node only once."""

    def __init__(self, host: Root) -> None:
        self._host = host
        self._cpus: dict[int | None, str] = {}

    def path(self, address: str) -> tuple[str, ...]:
        """Return the names of the folders above the device's folder in /sys/devices.

        The first name is the root complex. The result is empty if the device is not below a root complex.
        """
        try:
            folders = self._host.directory(f"{PCI_DEVICES}/{address}").split("/")[:-1]
        except OSError:
            return ()
        roots = (place for place, name in enumerate(folders) if _ROOT_COMPLEX.fullmatch(name))
        root = next(roots, None)
        return () if root is None else tuple(folders[root:])

    def numa_node(self, address: str) -> int | None:
        """Return the NUMA node of the device at ADDRESS, or None if the kernel reports -1 (unknown)."""
        return number_behind("", read_line(self._host, f"{PCI_DEVICES}/{address}/numa_node"))

    def cpus(self, address: str, node: int | None) -> str:
        """Return the CPUs of the NUMA node NODE, which is the node of the device at ADDRESS.

        The result has the kernel's format, such as 0-15,64-79. It is empty if the CPUs are not known.
        """
        # If the node is unknown, the kernel lists all CPUs (drivers/pci/pci-sysfs.c).
        known = self._cpus.get(node, "")
        if not known:
            text = read_line(self._host, f"{PCI_DEVICES}/{address}/local_cpulist")
            known = self._cpus[node] = text if _CPUS.fullmatch(text) else ""
        return known
