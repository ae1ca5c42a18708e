"""Devices in the form of nvidia-docker 1.0: ``NvidiaDockerDevice``, ``listed``."""

from __future__ import annotations

from cdigen.topology.levels import relation
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdigen.daemon.stats import VendorStats
    from cdigen.model.inventory import Accelerator
    from cdigen.model.stats import DeviceStats
    from cdigen.topology.levels import Relation
    from cdigen.topology.matrix import MatrixDevice as Shown

# The numbers of nvidia-docker 1.0 for the path between two devices, by the name of the path in the topology
# matrix. 0 means N/A, 6 means the same board.
LINKS = {"SYS": 1, "NODE": 2, "PHB": 3, "PXB": 4, "PIX": 5}
# Names of architectures by compute capability. Most names are from nvidia-docker 1.0. For architectures that
# nvidia-docker 1.0 does not have, the names are from NVIDIA.
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
# MB/s of a lane by PCIe generation. Generations 1 to 4 have the numbers of nvidia-docker 1.0. Generation 5 is
# 32 GT/s * 128/130. Generation 6 is 64 GT/s * 242/256.
_LANE_MB_S = {1: 250, 2: 500, 3: 985, 4: 1969, 5: 3938, 6: 7563}
_MIB, _MEGA = 1 << 20, 1_000_000


@frozen
class NvidiaDockerDevice:
    """A device: its node ``path``, its stats and its links to other devices.

    ``uuid`` is the PCI address if the device has no UUID. ``links`` are pairs of another device's bus id and
    a number in LINKS.
    """

    uuid: str
    path: str
    bus_id: str
    accelerator: Accelerator
    stats: DeviceStats | None = None
    links: tuple[tuple[str, int], ...] = ()

    @property
    def compute_capability(self) -> str | None:
        """NVIDIA's number of the architecture (``9.0``)."""
        return self.stats.compute_capability if self.stats else None

    @property
    def family(self) -> str | None:
        """The name of the architecture."""
        arch = self.compute_capability or ""
        return _FAMILIES.get(arch) or _FAMILIES.get(arch.partition(".")[0])

    @property
    def lane_mb_s(self) -> int | None:
        """The maximum bandwidth of the device's PCIe link in one direction, in MB/s."""
        if self.stats is None:
            return None
        generation, width = self.stats.pcie_generation_max, self.stats.pcie_width_max
        if generation is None or width is None or generation not in _LANE_MB_S:
            return None
        return _LANE_MB_S[generation] * width

    @property
    def memory_mib(self) -> int | None:
        """The memory of the device in MiB."""
        total = mib(self.stats.memory_total) if self.stats else None
        return self.accelerator.memory_mib if total is None else total

    @property
    def memory_mb_s(self) -> int | None:
        """The maximum memory bandwidth in MB/s, at two transfers per clock cycle as in nvidia-docker 1.0."""
        if self.stats is None:
            return None
        clock, width = self.stats.memory_clock_max, self.stats.memory_bus_width
        return None if clock is None or width is None else 2 * clock * (width // 8)


def listed(shown: Sequence[Shown], stats: Iterable[VendorStats] = ()) -> tuple[NvidiaDockerDevice, ...]:
    """Return the devices SHOWN (``matrix.devices_of``) with their STATS; the order defines their numbers.

    A device that is not in the spec has a number as well.
    """
    by_address = {each.address: each for vendor in stats for each in vendor.devices if not each.instance}
    return tuple(
        NvidiaDockerDevice(
            uuid=one.accelerator.uuid or one.accelerator.address,
            path=_path(one.accelerator),
            bus_id=_bus_id(one.accelerator),
            accelerator=one.accelerator,
            stats=by_address.get(one.accelerator.address),
            links=tuple(_links(one, shown)),
        )
        for one in shown
    )


def mib(count: int | None) -> int | None:
    """Return COUNT bytes in MiB."""
    return None if count is None else count // _MIB


def mega(count: int | None) -> int | None:
    """Return COUNT bytes in MB."""
    return None if count is None else count // _MEGA


def whole(number: float | None) -> int | None:
    """Return NUMBER without its fraction."""
    return None if number is None else int(number)


def _path(gpu: Accelerator) -> str:
    """Return the path of the first node of GPU in the order of roles gpu, render, accel, other; or ""."""
    preferred = [node for role in ("gpu", "render", "accel") for node in gpu.nodes if node.role == role]
    return next((node.path for node in (*preferred, *gpu.nodes)), "")


def _bus_id(gpu: Accelerator) -> str:
    """Return the address of GPU in NVML's notation (``0000:1B:00.0``)."""
    return gpu.address.upper()


def _links(one: Shown, shown: Sequence[Shown]) -> list[tuple[str, int]]:
    found = []
    for other in shown:
        if other is not one and other.vendor == one.vendor:
            link = relation(one.accelerator, other.accelerator)
            if _is_peer_to_peer(link):
                found.append((_bus_id(other.accelerator), LINKS[link.path]))
    return found


def _is_peer_to_peer(link: Relation) -> bool:
    """Return whether two devices with LINK can probably read each other's memory.

    nvidia-docker 1.0 queried CUDA; cdigen does not. Devices with a link such as NVLink can read each other's
    memory. Devices below one PCIe host bridge can also read each other's memory if no IOMMU prevents it.
    """
    return link.path in LINKS and (bool(link.technology) or link.path in {"PHB", "PXB", "PIX"})
