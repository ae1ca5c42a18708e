"""Read how GPUs are linked by XGMI, from the topology of KFD: ``ask``.

Each node has a folder ``io_links`` with a link to each node that it reaches by itself; type 11 is XGMI
(drivers/gpu/drm/amd/amdkfd/kfd_crat.h). Links between the members of a hive that are no neighbours
are listed as well, with a weight of 15 for each hop (kfd_crat.c, KFD_CRAT_XGMI_WEIGHT). Bandwidths are those
of one link and of all (amdgpu_xgmi_get_bandwidth); older kernels tell none. What ``p2p_links`` lists goes by
PCI.

A split GPU has a node for each partition, with links of its own to every partition of the others: those of
its first node count.
"""

from __future__ import annotations

from cdigen.host.procfs import number_behind, read_text
from cdigen.host.sysfs import pci_key
from cdigen.model.inventory import Link
from cdigen.model.known_links import GpuLinks
from cdigen.vendors.amd.kfd import MAX_NODES, NODES, bus_and_device
from cdigen.vendors.kernel.modules import load_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory, Technology
    from cdigen.vendors.amd.kfd import Slot
    from cdigen.vendors.base import DiscoveryContext

XGMI: Technology = "xgmi"
# Of how many GPUs there is something to ask: sysfs has their memory.
LEAST = 2
_TYPE, _ONE_HOP = 11, 15
# No two GPUs have so many links; a number beyond is none.
_MOST = 64


def load(context: DiscoveryContext) -> str:
    """Return what is another after each loading of the driver."""
    return load_of(context.host, "amdgpu")


def ask(context: DiscoveryContext, inventory: Inventory) -> tuple[tuple[GpuLinks, ...], bool]:
    """Return the links of INVENTORY's GPUs, and whether those are all: nothing failed to be read."""
    addresses = {
        key[:3]: gpu.address for gpu in inventory.accelerators if (key := pci_key(gpu.address.lower()))
    }
    reader = _Reader(context.host, addresses)
    return tuple(reader.gpu(slot) for slot in reader.first if slot in addresses), reader.is_whole


class _Reader:
    """Reads the nodes of KFD once; ``first`` is the first node of each GPU."""

    def __init__(self, host: Root, addresses: dict[Slot, str]) -> None:
        self._host = host
        self._addresses = addresses
        self._slots: dict[int, Slot] = {}
        self._hives: dict[int, int] = {}
        self.first: dict[Slot, int] = {}
        self.is_whole = True
        names = host.names(NODES)[:MAX_NODES]
        for node in sorted(number for name in names if (number := number_behind("", name)) is not None):
            self._add(node)

    def _add(self, node: int) -> None:
        values = self._values(f"{NODES}/{node}/properties")
        if values.get("drm_render_minor") and "location_id" in values:
            slot = (values.get("domain", 0), *bus_and_device(values["location_id"]))
            self._slots[node] = slot
            self._hives[node] = values.get("hive_id", 0)
            self.first.setdefault(slot, node)

    def gpu(self, slot: Slot) -> GpuLinks:
        """Return the links of the GPU in SLOT."""
        node = self.first[slot]
        hive, counts = self._hives[node], self._counts(node)
        return GpuLinks(
            address=self._addresses[slot],
            links=tuple(
                Link(peer=self._addresses[peer], technology=XGMI, count=count)
                for peer, count in counts.items()
                if peer in self._addresses
            ),
            island=f"{XGMI}-{hive:x}" if hive and counts else "",
        )

    def _counts(self, node: int) -> dict[Slot, int]:
        """Return how many links join NODE with each other GPU, 0 where they lead by way of others."""
        found: dict[Slot, int] = {}
        folder = f"{NODES}/{node}/io_links"
        for name in self._host.names(folder):
            values = self._values(f"{folder}/{name}/properties")
            peer = self._slots.get(values.get("node_to", -1))
            if peer is not None and peer != self._slots[node] and values.get("type") == _TYPE:
                found[peer] = max(found.get(peer, 0), _count(values))
        return found

    def _values(self, path: str) -> dict[str, int]:
        """Return the numbers in a file of properties; none where it cannot be read."""
        try:
            text = read_text(self._host, path)
        except OSError:
            self.is_whole = False
            return {}
        pairs = (line.split() for line in text.splitlines())
        return {
            words[0]: int(words[1])
            for words in pairs
            if len(words) == 2 and words[1].isascii() and words[1].isdigit() and len(words[1]) <= 20
        }


def _count(values: dict[str, int]) -> int:
    if values.get("weight", 0) > _ONE_HOP:
        return 0
    one, every = values.get("min_bandwidth", 0), values.get("max_bandwidth", 0)
    return every // one if 0 < one <= every <= one * _MOST else 1
