"""Read where PCI devices are: the bridges above them, their NUMA nodes and the processors next to these.

Source of names and forms: the kernel's Documentation/ABI/testing/sysfs-bus-pci.
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
# As the kernel prints a bitmap's ranges (lib/bitmap.c): 0-15,64-79.
_CPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*", re.ASCII)


def placed(host: Root, accelerators: Iterable[Accelerator]) -> tuple[Accelerator, ...]:
    """Return ACCELERATORS with their places, unless they have them; what is on no PCI bus gets none."""
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
    """Reads the places of devices by their PCI addresses; the processors of each NUMA node only once."""

    def __init__(self, host: Root) -> None:
        self._host = host
        self._cpus: dict[int | None, str] = {}

    def path(self, address: str) -> tuple[str, ...]:
        """Return the folders of /sys/devices above a device's own, from the root complex down."""
        try:
            folders = self._host.directory(f"{PCI_DEVICES}/{address}").split("/")[:-1]
        except OSError:
            return ()
        roots = (place for place, name in enumerate(folders) if _ROOT_COMPLEX.fullmatch(name))
        root = next(roots, None)
        return () if root is None else tuple(folders[root:])

    def numa_node(self, address: str) -> int | None:
        """Return a device's NUMA node, None where the kernel does not know it and says -1."""
        return number_behind("", read_line(self._host, f"{PCI_DEVICES}/{address}/numa_node"))

    def cpus(self, address: str, node: int | None) -> str:
        """Return the processors next to a device at the NUMA NODE; empty where they are not known."""
        # To the kernel they are those of the node, or all where it knows none (drivers/pci/pci-sysfs.c).
        known = self._cpus.get(node, "")
        if not known:
            text = read_line(self._host, f"{PCI_DEVICES}/{address}/local_cpulist")
            known = self._cpus[node] = text if _CPUS.fullmatch(text) else ""
        return known
