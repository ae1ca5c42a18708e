"""Read the topology of KFD, the compute side of amdgpu: which render node computes, on which GPU.

Each folder below ``nodes`` is a CPU, a GPU, or a partition of one; ``properties`` has a name and a number in
each line (the kernel's drivers/gpu/drm/amd/amdkfd/kfd_topology.c, node_show). ``location_id`` is the GPU's
place on the PCI bus: bus, device and function; in the function's place is the number of the partition.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import mib, read_text
from cdigen.host.root import reason, shown
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.findings import FindingCollector, Severity

KFD = "/sys/class/kfd/kfd"
NODES = f"{KFD}/topology/nodes"
# The kernel allows 64 partition devices (amdgpu_xcp_drv.c); a host has some CPUs besides.
MAX_NODES = 4096
# So many are told of nodes with the same trouble, before they are counted only.
MAX_TOLD = 8
UNUSABLE = "kfd-node-unusable"
_KEYS = frozenset(("simd_count", "drm_render_minor", "location_id", "domain", "unique_id"))
_BANK = re.compile(r"^size_in_bytes ([0-9]+)$", re.MULTILINE)
_HINT = "see 'dmesg | grep -e kfd -e amdgpu'; reload the module amdgpu or reboot"

# A place on the PCI bus without the function: domain, bus, device.
Slot = tuple[int, int, int]


@frozen
class KfdNode:
    """A node of the topology that computes: the GPU's slot, None where KFD does not tell it.

    ``unique_id`` is 0 where the GPU has none.
    """

    name: str
    slot: Slot | None
    location: int | None
    unique_id: int


@frozen
class Topology:
    """The nodes that compute, by the numbers of their render nodes; ``unread``: how many told nothing."""

    nodes: dict[int, KfdNode]
    unread: int = 0


def read_topology(host: Root, collector: FindingCollector) -> Topology:
    """Return the nodes that compute; one that is broken is a finding.

    Of two with one number the last by the order of their names counts, as for AMD's tool
    (container-toolkit 1.3.0, internal/amdgpu).
    """
    return _Reader(host, collector).read()


class _Reader:
    """Reads the topology once; of many nodes with the same trouble it tells the first few, and how many."""

    def __init__(self, host: Root, collector: FindingCollector) -> None:
        self._host = host
        self._collector = collector
        self._told: dict[tuple[Severity, str], int] = {}
        self._unread = 0
        # Render nodes of GPUs whose domain an old kernel does not tell.
        self._without_domain: list[int] = []

    def read(self) -> Topology:
        found: dict[int, KfdNode] = {}
        locations: dict[tuple[int, int], str] = {}
        names = self._host.names(NODES)
        for name in names[:MAX_NODES]:
            node = self._node(name)
            if node is None:
                continue
            render, properties = node
            if render in found:
                self._say(
                    "warning",
                    "kfd-node-repeated",
                    f"{NODES}/{shown(name)}",
                    f"KFD's nodes {shown(found[render].name)} and {shown(name)} both have the render node "
                    f"renderD{render}; the latter counts",
                )
            found[render] = properties
            self._compare_place(properties, locations)
        self._say_the_rest(len(names))
        return Topology(nodes=found, unread=self._unread)

    def _node(self, name: str) -> tuple[int, KfdNode] | None:
        """Return the render node's number and the properties of the node NAME; None: it does not compute."""
        path = f"{NODES}/{name}/properties"
        try:
            values = parse_properties(read_text(self._host, path))
            problem = "" if values else "holds no properties"
        except OSError as error:
            # The cgroup of a container may keep a GPU's properties from it; a reset takes the folder away.
            values, problem = {}, f"cannot be read: {reason(error)}"
        if problem:
            self._unread += 1
            self._say("error", UNUSABLE, shown(path), f"{shown(path)} {problem}")
            return None
        render = values.get("drm_render_minor", 0)
        if render <= 0:
            if values.get("simd_count", 0):
                text = f"KFD's node {shown(name)} computes, but has the render node 0: it gets no device"
                self._say("error", UNUSABLE, shown(path), text)
            return None
        location, domain = values.get("location_id"), values.get("domain")
        slot = None
        if location is None:
            text = (
                f"KFD's node {shown(name)} (renderD{render}) has no location_id: AMD's tools do not count "
                "its GPU, which comes after the others here; a partition gets no device"
            )
            self._say("error", UNUSABLE, shown(path), text)
        elif domain is None:
            self._without_domain.append(render)
        else:
            slot = (domain, *bus_and_device(location))
        return render, KfdNode(name=name, slot=slot, location=location, unique_id=values.get("unique_id", 0))

    def _compare_place(self, node: KfdNode, locations: dict[tuple[int, int], str]) -> None:
        if node.slot is None or node.location is None:
            return
        other = locations.setdefault((node.slot[0], node.location), node.name)
        if other != node.name:
            self._say(
                "warning",
                "kfd-location-repeated",
                f"{NODES}/{shown(node.name)}/properties",
                f"KFD's nodes {shown(other)} and {shown(node.name)} have one location_id, {node.location}: "
                "their GPUs are counted as one's partitions, as AMD's tools do",
            )

    def _say(self, severity: Severity, rule: str, path: str, text: str) -> None:
        count = self._told[severity, rule] = self._told.get((severity, rule), 0) + 1
        if count <= MAX_TOLD:
            self._collector.add(severity, rule, path, text, _HINT)

    def _say_the_rest(self, count: int) -> None:
        for (severity, rule), told in self._told.items():
            if told > MAX_TOLD:
                text = f"{told - MAX_TOLD} more of KFD's nodes are like these"
                self._collector.add(severity, rule, NODES, text, _HINT)
        if self._without_domain:
            renders = ", ".join(f"renderD{render}" for render in self._without_domain[:MAX_TOLD])
            more = len(self._without_domain) - MAX_TOLD
            text = (
                f"KFD does not tell the domains of {renders}{f' and {more} more' if more > 0 else ''}: AMD's "
                "tools do not count their GPUs, which come after the others here"
            )
            hint = "this kernel is old: KFD of newer ones has the property 'domain'"
            self._collector.add("warning", "kfd-without-domain", NODES, text, hint)
        if count > MAX_NODES:
            text = f"KFD shows {count} nodes, of which the first {MAX_NODES} were read"
            self._collector.add("warning", "kfd-nodes-unread", NODES, text, _HINT)


def memory_mib(host: Root, node: KfdNode) -> int | None:
    """Return the memory of NODE in MiB, None where KFD does not tell."""
    try:
        text = read_text(host, f"{NODES}/{node.name}/mem_banks/0/properties")
    except OSError:
        return None
    found = _BANK.search(text)
    return mib(found[1]) if found else None


def bus_and_device(location: int) -> tuple[int, int]:
    """Return the bus and the device of a ``location_id``."""
    return (location >> 8) & 0xFF, (location >> 3) & 0x1F


def parse_properties(text: str) -> dict[str, int]:
    """Return the properties in TEXT that matter here; lines that are none are passed over."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        key, value, *_ = (*line.split(), "", "")
        if key in _KEYS and value.isascii() and value.isdigit() and len(value) <= 20:
            values.setdefault(key, int(value))
    return values
