"""Query NVML for the links between GPUs and for memory sizes (``LINKS``).

The kernel has no files with these values.
"""

from __future__ import annotations

from cdigen.model.inventory import Link
from cdigen.model.saved import GpuLinks
from cdigen.value import replace
from cdigen.vendors.base import VendorLinks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.nvidia.nvml.document import NvmlLinks

NVLINK = "nvlink"
_MIB = 20


def read_links(context: DiscoveryContext, inventory: Inventory) -> tuple[tuple[GpuLinks, ...], bool] | None:
    """Return the links and the memory sizes of INVENTORY's GPUs, and whether all values are complete.

    The result is None if NVML is not queried. The function does not query NVML if a GPU is suspended, because
    the query resumes the GPU. It also does not query NVML if the context does not permit it, or if NVML
    exceeded its deadline during the discovery of INVENTORY.
    """
    # These imports are needed only for a query.
    from cdigen.vendors.kernel.pci.health import is_suspended  # noqa: PLC0415
    from cdigen.vendors.nvidia.nvml.readiness import library_of  # noqa: PLC0415

    addresses = tuple(gpu.address for gpu in inventory.accelerators if gpu.usable)
    library, _ = library_of(context, inventory)
    has_hung = any(finding.rule == "nvml-timeout" for finding in inventory.findings)
    if not library or has_hung or any(is_suspended(context.host, address) for address in addresses):
        return None
    from cdigen.vendors.nvidia.nvml.query import query  # noqa: PLC0415 - most runs query no NVML

    parts = ("memory",) if len(addresses) == 1 else ("links", "memory")
    report = query(library, what=parts, addresses=addresses).report
    if report is None:
        return (), False
    links_by_gpu = {gpu.address: gpu.links for gpu in report.gpus if gpu.address and gpu.links}
    sizes = {gpu.address: gpu.memory for gpu in report.gpus if gpu.address and gpu.memory}
    linked = {each.address: each for each in gpu_links(links_by_gpu)}
    found = tuple(
        replace(
            linked.get(address) or GpuLinks(address=address, links=(), island=""),
            memory_mib=(memory.total or 0) >> _MIB or None,
        )
        for address, memory in sizes.items()
    )
    # Before the fabric manager has started, links are down, or the switches do not connect the GPUs.
    is_whole = all(
        each.error is None and not each.down and not each.is_joining and (each.reached or not each.switched)
        for each in links_by_gpu.values()
    )
    is_sized = len(sizes) == len(addresses) and all(memory.error is None for memory in sizes.values())
    return found, is_whole and is_sized


def gpu_links(links_by_gpu: Mapping[str, NvmlLinks]) -> tuple[GpuLinks, ...]:
    """Return the links of the GPUs in LINKS_BY_GPU, which maps GPU addresses to NVML's links."""
    joined = {
        address: {
            other for other in links_by_gpu if other in each.reached or address in links_by_gpu[other].reached
        }
        for address, each in links_by_gpu.items()
        if each.switched
    }
    names = _islands(joined, links_by_gpu)
    return tuple(
        GpuLinks(
            address=address,
            links=(
                *(Link(peer=peer, technology=NVLINK, count=count) for peer, count in each.peers.items()),
                *((Link(peer="", technology=NVLINK, count=each.switched),) if address in names else ()),
            ),
            island=names.get(address, ""),
        )
        for address, each in links_by_gpu.items()
    )


def _islands(joined: Mapping[str, Iterable[str]], links_by_gpu: Mapping[str, NvmlLinks]) -> dict[str, str]:
    """For each GPU in JOINED that reaches another GPU through switches, return the name of its island.

    The name of an island contains the name of the fabric, which is the same on all machines of the cluster.
    If the fabric has no name, the island's name contains the address of the island's first GPU.
    """
    names: dict[str, str] = {}
    for start in sorted(joined):
        pending = [other for other in joined[start] if other in joined] if start not in names else []
        if pending:
            name = f"{NVLINK}-{links_by_gpu[start].fabric or start}"
            # Two islands must not have the same name.
            names[start] = f"{NVLINK}-{start}" if name in names.values() else name
        while pending:
            address = pending.pop()
            if address not in names:
                names[address] = names[start]
                pending += [other for other in joined[address] if other in joined]
    return names


# A single GPU has no links, but a memory size.
LINKS = VendorLinks(min_gpus=1, read=read_links)
