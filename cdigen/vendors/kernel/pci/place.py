"""Read the places of PCI devices: the bridges above each device, its NUMA node and the CPUs of the node.

``link_folder`` finds the PCIe link between a card and its slot. Some cards of AMD and Intel contain a PCIe
switch. The link between this switch and the GPU does not show the state of the link between the card and the
slot (drm/amd issue 1967). With Intel's Arc, the GPU's link shows wrong values: 2.5 GT/s and one lane (nvtop,
pull request 344).

``read_nics`` lists the RDMA network cards with their places. The names and formats of the files are from the
kernel's Documentation/ABI/testing/sysfs-bus-pci and stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import number_behind, read_line
from cdigen.host.root import shown
from cdigen.host.sysfs import PCI_DEVICES, pci_address, pci_key
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator

_NICS = "/sys/class/infiniband"
# A device that does not answer, or a function without a link, reports 63 or 255 lanes.
MOST_LANES = 32
# The PCI vendor numbers of AMD. amdgpu disables lanes of an idle GPU's link (A. Deucher, linux-pci,
# 3 February 2020).
_CHANGE_LANES = frozenset({"0x1002", "0x1022"})
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


@frozen
class Nic:
    """A network card.

    ``name`` is the kernel's name (``mlx5_0``). The other fields are the same as in ``Accelerator``.
    """

    name: str
    address: str
    pci_path: tuple[str, ...]
    numa_node: int | None


def read_nics(host: Root) -> tuple[Nic, ...]:
    """Return the RDMA network cards on the PCI bus of HOST, mlx5_2 before mlx5_10.

    Cards without a readable PCI address are left out.
    """
    reader = PlaceReader(host)
    return tuple(
        Nic(
            name=shown(name),
            address=address,
            pci_path=reader.path(address),
            numa_node=reader.numa_node(address),
        )
        for name in sorted(host.names(_NICS), key=_order)
        if (address := _address(host, name))
    )


def _address(host: Root, name: str) -> str:
    try:
        folder = host.directory(f"{_NICS}/{name}/device")
    except OSError:
        return ""
    return pci_address(folder.rpartition("/")[2]) or ""


def _order(name: str) -> list[tuple[str, int]]:
    return [(text, int(digits or "0")) for text, digits in re.findall(r"(\D*)(\d{0,9})", name)]


def changes_lanes(host: Root, folder: str) -> bool:
    """Return whether the driver disables lanes of the link while the device at FOLDER is idle."""
    return read_line(host, f"{folder}/vendor") in _CHANGE_LANES


def lanes(host: Root, folder: str, file: str = "current_link_width") -> int:
    """Return the number of lanes in FILE of the PCI function at FOLDER, or 0 if the number is invalid."""
    text = read_line(host, f"{folder}/{file}")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
    return number if number <= MOST_LANES else 0


def link_folder(host: Root, folder: str) -> str:
    """Return the folder of the PCI function at the card's end of the link between card and slot.

    FOLDER is the folder of the device. Usually, the function is the device itself. If functions of the same
    vendor are above the device and below the root port, the function is the topmost of them.
    """
    try:
        own = host.resolve(folder)
    except OSError:
        return folder
    above = own.rpartition("/")[0]
    vendor = read_line(host, f"{own}/vendor")
    # The folder above the root port is a root complex. A root complex has no PCI address.
    while vendor and _is_below_root_port(above) and read_line(host, f"{above}/vendor") == vendor:
        own, above = above, above.rpartition("/")[0]
    return own


def _is_below_root_port(folder: str) -> bool:
    parent, _, name = folder.rpartition("/")
    return pci_key(name) is not None and pci_key(parent.rpartition("/")[2]) is not None
