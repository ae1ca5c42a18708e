"""Tell how near two devices are to each other: ``relation``.

Levels and their words are those of 'nvidia-smi topo -m'. Two devices' folders in /sys decide: what lies below
the last folder that both are in are the bridges between them. What cannot be read counts as far.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, Protocol

    from cdigen.model.inventory import Accelerator, Link, Technology

    Path = Literal["X", "PIX", "PXB", "PHB", "NODE", "SYS"]

    class Placed(Protocol):
        """What has a place on the PCI bus: an ``Accelerator``, a network card."""

        @property
        def address(self) -> str:
            """Its PCI address, empty where it has none."""

        @property
        def pci_path(self) -> tuple[str, ...]:
            """The folders above its own, from the root complex down."""

        @property
        def numa_node(self) -> int | None:
            """Its NUMA node, None where it is not known."""


# How near a path is; NVIDIA's go-gpuallocator gives these numbers (gpuallocator/besteffort_policy.go).
_NEARNESS: dict[Path, int] = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50, "X": 60}
# Of a link beside the path: any link is nearer than every path, and each further one adds as much.
_LINK = 100
# Of devices that links join by way of others, as the GPUs of a hive that are not neighbours.
_WITHOUT_LINK = 60
# What ``Link.peer`` is where a link leads to a switch.
SWITCH = ""
# What a cell of the matrix says of each technology; Intel's xpu-smi says XL.
LINKS = {"nvlink": "NV", "xgmi": "XGMI", "xelink": "XL"}


@frozen
class Relation:
    """How two devices are joined: the ``path`` on the PCI bus, and ``count`` links of a ``technology``.

    ``technology`` is empty without links; a ``count`` of 0 beside one says that the links lead by way of
    others, or that nobody knows how many they are.
    """

    path: Path
    technology: str = ""
    count: int = 0

    @property
    def cell(self) -> str:
        """What the matrix says of it: ``NV12``, ``PIX``."""
        if not self.technology:
            return self.path
        return f"{LINKS[self.technology]}{self.count or ''}"

    @property
    def nearness(self) -> int:
        """A number that is greater the nearer the two are: 10 (SYS) to 60 (X), and 100 more for each link."""
        links = (self.count * _LINK or _WITHOUT_LINK) if self.technology else 0
        return _NEARNESS[self.path] + links


def relation(one: Accelerator, other: Accelerator) -> Relation:
    """Return how ONE and OTHER are joined; alike in both directions.

    Where the two tell different numbers of links between them, the greater is right: a link has two ends, and
    of one that could not be asked none is known.
    """
    road = path(one, other)
    if road == "X":
        return Relation(path=road)
    there, back = _to(one, other.address or "-"), _to(other, one.address or "-")
    technology = _first({link.technology for link in (*there, *back)})
    if technology:
        count = max(_count(there, technology), _count(back, technology))
        return Relation(path=road, technology=technology, count=count)
    if one.island and one.island == other.island:
        there, back = _to(one, SWITCH), _to(other, SWITCH)
        technology = _first({link.technology for link in there} & {link.technology for link in back})
        if technology:
            count = min(_count(there, technology), _count(back, technology))
            return Relation(path=road, technology=technology, count=count)
    return Relation(path=road)


def path(one: Placed, other: Placed) -> Path:
    """Return how ONE and OTHER are joined on the PCI bus.

    X: they are one device. PIX: at most one bridge is between them, PXB: several; PHB: they meet in a host
    bridge; NODE: in none, but in one NUMA node; SYS: in neither, or it cannot be known.
    """
    if one == other or (one.address and one.address == other.address):
        return "X"
    shared = _shared(one.pci_path, other.pci_path)
    if not shared:
        is_near = one.numa_node is not None and one.numa_node == other.numa_node
        return "NODE" if is_near else "SYS"
    if one.pci_path[shared - 1].startswith("pci"):
        return "PHB"
    # A switch is one bridge, and two folders: the port above is shared, those below it are not.
    return "PIX" if max(len(one.pci_path), len(other.pci_path)) - shared <= 1 else "PXB"


def islands(devices: tuple[Accelerator, ...]) -> tuple[tuple[int, ...], ...]:
    """Return which of DEVICES links join, as their places in it: each is in one island, maybe alone."""
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


def _first(technologies: set[Technology]) -> str:
    """Return the one of TECHNOLOGIES; of several, which no two devices have, the first of the table."""
    return next((technology for technology in LINKS if technology in technologies), "")


def _count(links: tuple[Link, ...], technology: str) -> int:
    return sum(link.count for link in links if link.technology == technology)


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many folders from the root down both have."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
