"""The relation of two devices: ``relation``.

The levels and their names are the levels of 'nvidia-smi topo -m'. The level depends on the folders of the
devices in /sys. The folders below the last common folder are the bridges between the devices. An unknown path
has the farthest level (SYS).
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.model.inventory import Accelerator, Link
    from cdigen.vendors.kernel.pci.place import Nic

    Path = Literal["X", "PIX", "PXB", "PHB", "NODE", "SYS"]
    PciDevice = Accelerator | Nic

# The nearness of a path, with the numbers of NVIDIA's go-gpuallocator (gpuallocator/besteffort_policy.go).
_NEARNESS: dict[Path, int] = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50, "X": 60}
# Each link adds this number to the nearness of the path. A linked device is nearer than any device without a
# link.
_LINK = 100
# If the number of direct links is 0 or unknown, this number is added once. An example is two GPUs of an XGMI
# hive without a direct link.
_WITHOUT_LINK = 60
# ``Link.peer`` of a link to a switch.
SWITCH = ""
# The text of each known technology in a cell of the matrix. XL is also the text in Intel's xpu-smi. For other
# technologies, the text is the name in capitals.
LINKS = {"nvlink": "NV", "xgmi": "XGMI", "xelink": "XL"}


@frozen
class Relation:
    """The relation of two devices: the ``path`` on the PCI bus, and ``count`` links of a ``technology``.

    If there are no links, ``technology`` is "". Else a ``count`` of 0 means that the links lead through other
    devices, or that the number of links is unknown.
    """

    path: Path
    technology: str = ""
    count: int = 0

    @property
    def cell(self) -> str:
        """The text in the cell of the matrix: ``NV12``, ``PIX``."""
        if not self.technology:
            return self.path
        return f"{LINKS.get(self.technology, self.technology.upper())}{self.count or ''}"

    @property
    def nearness(self) -> int:
        """The nearness, higher for nearer devices: 10 (SYS) to 60 (X), plus 100 for each link."""
        links = (self.count * _LINK or _WITHOUT_LINK) if self.technology else 0
        return _NEARNESS[self.path] + links


def relation(one: Accelerator, other: Accelerator) -> Relation:
    """Return the relation of ONE and OTHER. The order of the two has no effect.

    If the two devices report different numbers of links between them, the higher number applies. Each link
    belongs to both devices, but a device that could not be queried reports no links.
    """
    pci_path = path(one, other)
    if pci_path == "X":
        return Relation(path=pci_path)
    there, back = _to(one, other.address or "-"), _to(other, one.address or "-")
    technology = _first({link.technology for link in (*there, *back)})
    if technology:
        count = max(_count(there, technology), _count(back, technology))
        return Relation(path=pci_path, technology=technology, count=count)
    if one.island and one.island == other.island:
        there, back = _to(one, SWITCH), _to(other, SWITCH)
        technology = _first({link.technology for link in there} & {link.technology for link in back})
        if technology:
            count = min(_count(there, technology), _count(back, technology))
            return Relation(path=pci_path, technology=technology, count=count)
    return Relation(path=pci_path)


def path(one: PciDevice, other: PciDevice) -> Path:
    """Return the path between ONE and OTHER on the PCI bus.

    - X: both are the same device.
    - PIX: at most one bridge is between them.
    - PXB: several bridges are between them.
    - PHB: they share only a host bridge.
    - NODE: they share only a NUMA node.
    - SYS: any other path, or an unknown path.
    """
    if one == other or (one.address and one.address == other.address):
        return "X"
    shared = shared_folders(one.pci_path, other.pci_path)
    if not shared:
        is_near = one.numa_node is not None and one.numa_node == other.numa_node
        return "NODE" if is_near else "SYS"
    if one.pci_path[shared - 1].startswith("pci"):
        return "PHB"
    # A switch has one folder for its upstream port, which both devices share, and one per downstream port.
    return "PIX" if max(len(one.pci_path), len(other.pci_path)) - shared <= 1 else "PXB"


def islands(devices: tuple[Accelerator, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the islands of linked DEVICES, as positions.

    Each device is in one island. A device without links is alone in its island.
    """
    found: list[list[int]] = []
    for place, device in enumerate(devices):
        joined = [
            island for island in found if any(relation(devices[each], device).technology for each in island)
        ]
        found = [island for island in found if island not in joined]
        found.append([*(each for island in joined for each in island), place])
    return tuple(sorted(tuple(sorted(island)) for island in found))


def _to(device: Accelerator, peer: str) -> tuple[Link, ...]:
    """Return the links of DEVICE that lead to PEER, an address or ``SWITCH``."""
    return tuple(link for link in device.links if link.peer == peer)


def _first(technologies: set[str]) -> str:
    """Return one of TECHNOLOGIES, those of ``LINKS`` first, or ""; in practice there is at most one."""
    return next((each for each in (*LINKS, *sorted(technologies)) if each in technologies), "")


def _count(links: tuple[Link, ...], technology: str) -> int:
    return sum(link.count for link in links if link.technology == technology)


def shared_folders(*paths: tuple[str, ...]) -> int:
    """Return the number of folders, from the root down, that all PATHS share."""
    count = 0
    for folders in zip(*paths, strict=False):
        if len(set(folders)) > 1:
            break
        count += 1
    return count
