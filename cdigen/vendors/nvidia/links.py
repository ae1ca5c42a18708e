"""Ask NVML how GPUs are linked, and how much memory they have: ``ask``; no file of the kernel has it."""

from __future__ import annotations

from cdigen.model.inventory import Link
from cdigen.model.known_links import GpuLinks
from cdigen.value import replace
from cdigen.vendors.kernel.modules import load_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.model.inventory import Inventory, Technology
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.nvidia.nvml.links import NvmlLinks

NVLINK: Technology = "nvlink"
# Of how many GPUs there is something to ask: one has no links, but memory.
LEAST = 1
_MIB = 20


def load(context: DiscoveryContext) -> str:
    """Return what is another after each loading of the driver."""
    return load_of(context.host, "nvidia")


def ask(context: DiscoveryContext, inventory: Inventory) -> tuple[tuple[GpuLinks, ...], bool] | None:
    """Return links and memory of INVENTORY's GPUs, and whether that is all; None: they cannot be asked now.

    That is so while a GPU sleeps, which asking would wake, where NVML may not be asked at all, and where it
    has just not answered within its deadline.
    """
    # What is below is for the few runs that ask.
    from cdigen.vendors.kernel.pci_health import sleeps  # noqa: PLC0415
    from cdigen.vendors.nvidia.nvml.library import library_of  # noqa: PLC0415

    addresses = tuple(gpu.address for gpu in inventory.accelerators if gpu.usable)
    library, _ = library_of(context, inventory)
    has_hung = any(finding.rule == "nvml-timeout" for finding in inventory.findings)
    if not library or has_hung or any(sleeps(context.host, address) for address in addresses):
        return None
    from cdigen.vendors.nvidia.nvml.ask import ask as ask_nvml  # noqa: PLC0415 - most runs ask no NVML

    parts = ("memory",) if len(addresses) == 1 else ("links", "memory")
    report = ask_nvml(library, what=parts, addresses=addresses).report
    if report is None:
        return (), False
    told = {gpu.address: gpu.links for gpu in report.gpus if gpu.address and gpu.links}
    sizes = {gpu.address: gpu.memory for gpu in report.gpus if gpu.address and gpu.memory}
    linked = {each.address: each for each in gpu_links(told)}
    found = tuple(
        replace(
            linked.get(address) or GpuLinks(address=address, links=(), island=""),
            memory_mib=(memory.total or 0) >> _MIB or None,
        )
        for address, memory in sizes.items()
    )
    # Before the fabric manager has started, links are down, or lead to switches that join nobody.
    is_whole = all(
        each.error is None and not each.down and not each.is_joining and (each.reached or not each.switched)
        for each in told.values()
    )
    is_sized = len(sizes) == len(addresses) and all(memory.error is None for memory in sizes.values())
    return found, is_whole and is_sized


def gpu_links(told: Mapping[str, NvmlLinks]) -> tuple[GpuLinks, ...]:
    """Return the links of the GPUs that NVML TOLD of, by their addresses. Pure."""
    joined = {
        address: {other for other in told if other in each.reached or address in told[other].reached}
        for address, each in told.items()
        if each.switched
    }
    names = _islands(joined, told)
    return tuple(
        GpuLinks(
            address=address,
            links=(
                *(Link(peer=peer, technology=NVLINK, count=count) for peer, count in each.peers.items()),
                *((Link(peer="", technology=NVLINK, count=each.switched),) if address in names else ()),
            ),
            island=names.get(address, ""),
        )
        for address, each in told.items()
    )


def _islands(joined: Mapping[str, Iterable[str]], told: Mapping[str, NvmlLinks]) -> dict[str, str]:
    """Return the island of each GPU that switches have JOINED with another.

    It is named after the fabric, which is the same on other machines of the cluster, or after its first GPU.
    """
    names: dict[str, str] = {}
    for start in sorted(joined):
        pending = [other for other in joined[start] if other in joined] if start not in names else []
        if pending:
            name = f"{NVLINK}-{told[start].fabric or start}"
            # One name for two islands would join them.
            names[start] = f"{NVLINK}-{start}" if name in names.values() else name
        while pending:
            address = pending.pop()
            if address not in names:
                names[address] = names[start]
                pending += [other for other in joined[address] if other in joined]
    return names
