"""Devices as nvidia-docker 1.0 knew them: ``Device``, ``listed``."""

from __future__ import annotations

from cdigen.topology.levels import relation
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdigen.daemon.figures import VendorFigures
    from cdigen.model.figures import DeviceFigures
    from cdigen.model.inventory import Accelerator
    from cdigen.topology.levels import Relation
    from cdigen.topology.matrix import Device as Shown

# 1.0's numbers of the ways between two devices, by the matrix's words; 0 is N/A, and 6 one board.
LINKS = {"SYS": 1, "NODE": 2, "PHB": 3, "PXB": 4, "PIX": 5}
# By compute capability: 1.0's names, and those of NVIDIA's later architectures.
_FAMILIES = {
    "1": "Tesla",
    "2": "Fermi",
    "3": "Kepler",
    "5": "Maxwell",
    "6": "Pascal",
    "7": "Volta",
    "7.5": "Turing",
    "8": "Ampere",
    "8.9": "Ada",
    "9": "Hopper",
    "10": "Blackwell",
    "11": "Blackwell",
    "12": "Blackwell",
}
# MB/s of a lane: 1.0's numbers to generation 4, then 32 GT/s by 128/130, and 64 GT/s by 242/256.
_LANE_MB_S = {1: 250, 2: 500, 3: 985, 4: 1969, 5: 3938, 6: 7563}
_MIB, _MEGA = 1 << 20, 1_000_000


@frozen
class Device:
    """A device: its ``number``, the node by which it is reached, and to which others it has a way of its own.

    ``uuid`` is its PCI address where it has none. ``peers`` are pairs of a bus id and a number of LINKS.
    """

    number: int
    vendor: str
    uuid: str
    path: str
    bus_id: str
    accelerator: Accelerator
    figures: DeviceFigures | None = None
    peers: tuple[tuple[str, int], ...] = ()

    @property
    def compute_capability(self) -> str | None:
        """NVIDIA's number of the architecture (``9.0``)."""
        return self.figures.compute_capability if self.figures else None

    @property
    def family(self) -> str | None:
        """The name of the architecture."""
        arch = self.compute_capability or ""
        return _FAMILIES.get(arch) or _FAMILIES.get(arch.partition(".")[0])

    @property
    def lane_mb_s(self) -> int | None:
        """What the device's PCIe link carries at most in one direction, in MB/s."""
        if self.figures is None:
            return None
        generation, width = self.figures.pcie_generation_max, self.figures.pcie_width_max
        if generation is None or width is None or generation not in _LANE_MB_S:
            return None
        return _LANE_MB_S[generation] * width

    @property
    def memory_mib(self) -> int | None:
        """Its memory."""
        told = mib(self.figures.memory_total) if self.figures else None
        return self.accelerator.memory_mib if told is None else told

    @property
    def memory_mb_s(self) -> int | None:
        """What its memory carries at most, in MB/s: two transfers in a cycle, as 1.0 reckoned."""
        if self.figures is None:
            return None
        clock, width = self.figures.memory_clock_max, self.figures.memory_bus_width
        return None if clock is None or width is None else 2 * clock * (width // 8)


def listed(shown: Sequence[Shown], figures: Iterable[VendorFigures] = ()) -> tuple[Device, ...]:
    """Return the devices SHOWN (``matrix.devices_of``), numbered in their order, with their FIGURES.

    One that is left out keeps its number.
    """
    told = {each.address: each for vendor in figures for each in vendor.devices if not each.instance}
    return tuple(
        Device(
            number=number,
            vendor=one.vendor,
            uuid=one.accelerator.uuid or one.accelerator.address,
            path=_path(one.accelerator),
            bus_id=_bus_id(one.accelerator),
            accelerator=one.accelerator,
            figures=told.get(one.accelerator.address),
            peers=tuple(_peers(one, shown)),
        )
        for number, one in enumerate(shown)
    )


def mib(count: int | None) -> int | None:
    """Return so many bytes in MiB."""
    return None if count is None else count // _MIB


def mega(count: int | None) -> int | None:
    """Return so many bytes in MB."""
    return None if count is None else count // _MEGA


def whole(number: float | None) -> int | None:
    """Return NUMBER without its fraction."""
    return None if number is None else int(number)


def _path(gpu: Accelerator) -> str:
    """Return the node that is GPU's alone: NVIDIA's, else that for rendering."""
    wanted = [node for role in ("gpu", "render", "accel") for node in gpu.nodes if node.role == role]
    return next((node.path for node in (*wanted, *gpu.nodes)), "")


def _bus_id(gpu: Accelerator) -> str:
    """Return GPU's address as NVML spells it (``0000:1B:00.0``)."""
    return gpu.address.upper()


def _peers(one: Shown, shown: Sequence[Shown]) -> list[tuple[str, int]]:
    found = []
    for other in shown:
        if other is not one and other.vendor == one.vendor:
            joined = relation(one.accelerator, other.accelerator)
            if _has_way(joined):
                found.append((_bus_id(other.accelerator), LINKS[joined.path]))
    return found


def _has_way(joined: Relation) -> bool:
    """Return whether two devices so joined may read each other's memory, as far as that is seen from outside.

    1.0 asked CUDA. Links do it, and so does PCIe below one host bridge; IOMMUs may forbid it.
    """
    return joined.path in LINKS and (bool(joined.technology) or joined.path in {"PHB", "PXB", "PIX"})
