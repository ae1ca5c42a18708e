"""Read the XGMI links between GPUs from the topology of KFD (``LINKS``).

Each node has a folder ``io_links`` with its links to other nodes. XGMI links have the type 11
(drivers/gpu/drm/amd/amdkfd/kfd_crat.h). GPUs that are connected by XGMI are a hive. The folder also contains
links to GPUs of the hive that are not adjacent. The weight of a link is 15 per hop (kfd_crat.c,
KFD_CRAT_XGMI_WEIGHT). min_bandwidth is the bandwidth of one link, max_bandwidth the bandwidth of all links
(amdgpu_xgmi_get_bandwidth). Older kernels report no bandwidths. The reader does not use ``p2p_links``,
because these links use PCI.

A partitioned GPU has a node for each partition. Each of these nodes has links to every partition of the other
GPUs. The reader uses only the links of the GPU's first node.
"""

from __future__ import annotations

from cdigen.host.procfs import number_behind, read_text
from cdigen.host.sysfs import pci_key
from cdigen.model.inventory import Link
from cdigen.model.saved import GpuLinks
from cdigen.vendors.amd.kfd import MAX_NODES, NODES, bus_and_device, parse_properties
from cdigen.vendors.base import VendorLinks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.amd.kfd import Slot
    from cdigen.vendors.context import DiscoveryContext

XGMI = "xgmi"
_TYPE, _ONE_HOP = 11, 15
# The maximum number of links between two GPUs. A greater number is invalid.
_MOST = 64


def read_links(context: DiscoveryContext, inventory: Inventory) -> tuple[tuple[GpuLinks, ...], bool]:
    """Return the links of INVENTORY's GPUs, and whether they are complete.

    If a file cannot be read, the links are not complete.
    """
    addresses = {
        key[:3]: gpu.address for gpu in inventory.accelerators if (key := pci_key(gpu.address.lower()))
    }
    reader = _Reader(context.host, addresses)
    return tuple(reader.gpu(slot) for slot in reader.first if slot in addresses), reader.is_whole


class _Reader:
    """Reads the nodes of KFD once. ``first`` maps the slot of a GPU to the GPU's first node."""

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
        """Return the number of direct links from NODE to each other GPU.

        If NODE reaches a GPU only through other GPUs, the number is 0.
        """
        found: dict[Slot, int] = {}
        folder = f"{NODES}/{node}/io_links"
        for name in self._host.names(folder):
            values = self._values(f"{folder}/{name}/properties")
            peer = self._slots.get(values.get("node_to", -1))
            if peer is not None and peer != self._slots[node] and values.get("type") == _TYPE:
                found[peer] = max(found.get(peer, 0), _count(values))
        return found

    def _values(self, path: str) -> dict[str, int]:
        """Return the numbers in the properties file PATH, or an empty mapping if it cannot be read."""
        try:
            return parse_properties(read_text(self._host, path))
        except OSError:
            self.is_whole = False
            return {}


def _count(values: dict[str, int]) -> int:
    if values.get("weight", 0) > _ONE_HOP:
        return 0
    one, every = values.get("min_bandwidth", 0), values.get("max_bandwidth", 0)
    return every // one if 0 < one <= every <= one * _MOST else 1


# A single GPU has no links. Memory sizes need no query (sysfs).
LINKS = VendorLinks(min_gpus=2, read=read_links)
