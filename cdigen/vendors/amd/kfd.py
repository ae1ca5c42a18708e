"""Read the topology of KFD, the compute part of amdgpu.

The topology contains the render nodes that can compute, and their GPUs. Each folder below ``nodes`` is a CPU,
a GPU or a partition of a GPU. Each line of the file ``properties`` has a name and a number (the kernel's
drivers/gpu/drm/amd/amdkfd/kfd_topology.c, node_show). ``location_id`` contains the bus and the device of the
GPU on the PCI bus, and the number of the partition instead of the function.
"""

from __future__ import annotations

from cdigen.host.procfs import mib, read_text
from cdigen.host.root import reason, shown
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.findings import FindingCollector, Severity

KFD = "/sys/class/kfd/kfd"
NODES = f"{KFD}/topology/nodes"
_KEYS = frozenset(("simd_count", "drm_render_minor", "location_id", "domain", "unique_id"))
# The kernel permits 64 partition devices (amdgpu_xcp_drv.c). The topology also contains the host's CPUs.
MAX_NODES = 4096
# The maximum number of findings for nodes with the same problem. For further nodes, there is one finding.
MAX_REPORTED = 8
UNUSABLE = "kfd-node-unusable"
_HINT = "see 'dmesg | grep -e kfd -e amdgpu'; reload the module amdgpu or reboot"

# The domain, bus and device of a PCI address, without the function.
Slot = tuple[int, int, int]


@frozen
class KfdNode:
    """A node of the topology that can compute.

    ``slot`` is the slot of the GPU. ``location`` is the ``location_id``. A value that KFD does not report is
    None. ``unique_id`` is 0 if the GPU has no unique_id.
    """

    name: str
    slot: Slot | None
    location: int | None
    unique_id: int


@frozen
class Topology:
    """The topology of KFD.

    ``nodes`` maps the number of a render node to a node that can compute. ``unread`` is the number of nodes
    without readable properties.
    """

    nodes: dict[int, KfdNode]
    unread: int = 0


def read_topology(host: Root, collector: FindingCollector) -> Topology:
    """Return the nodes that can compute; add a finding for each broken node.

    If two nodes have the same render node, the result contains the last node in the order of the names. AMD's
    tool does the same (container-toolkit 1.3.0, internal/amdgpu).
    """
    return _Reader(host, collector).read()


class _Reader:
    """Reads the topology once, and limits the number of findings per problem to MAX_REPORTED."""

    def __init__(self, host: Root, collector: FindingCollector) -> None:
        self._host = host
        self._collector = collector
        self._counts: dict[tuple[Severity, str], int] = {}
        self._unread = 0
        # The render nodes of GPUs without a PCI domain in KFD. Old kernels do not report the domain.
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
                self._report(
                    "warning",
                    "kfd-node-repeated",
                    f"{NODES}/{shown(name)}",
                    f"KFD's nodes {shown(found[render].name)} and {shown(name)} both have the render node "
                    f"renderD{render}; cdigen uses the second node",
                )
            found[render] = properties
            self._compare_place(properties, locations)
        self._report_rest(len(names))
        return Topology(nodes=found, unread=self._unread)

    def _node(self, name: str) -> tuple[int, KfdNode] | None:
        """Return the render node's number and the KFD node NAME, or None if this node cannot compute."""
        path = f"{NODES}/{name}/properties"
        try:
            values = parse_properties(read_text(self._host, path))
            problem = "" if values.keys() & _KEYS else "contains no properties"
        except OSError as error:
            # The cgroup of a container may hide a GPU's properties. A reset of the GPU removes the folder.
            values, problem = {}, f"cannot be read: {reason(error)}"
        if problem:
            self._unread += 1
            self._report("error", UNUSABLE, shown(path), f"{shown(path)} {problem}")
            return None
        render = values.get("drm_render_minor", 0)
        if render <= 0:
            if values.get("simd_count", 0):
                text = (
                    f"KFD's node {shown(name)} computes, but has no render node: its GPU gets no CDI device"
                )
                self._report("error", UNUSABLE, shown(path), text)
            return None
        location, domain = values.get("location_id"), values.get("domain")
        slot = None
        if location is None:
            text = (
                f"KFD's node {shown(name)} (renderD{render}) has no location_id: AMD's tools do not number "
                "its GPU, so cdigen numbers the GPU last; if the node is a partition, it gets no CDI device"
            )
            self._report("error", UNUSABLE, shown(path), text)
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
            self._report(
                "warning",
                "kfd-location-repeated",
                f"{NODES}/{shown(node.name)}/properties",
                f"KFD's nodes {shown(other)} and {shown(node.name)} have the same location_id "
                f"{node.location}: cdigen treats their GPUs as partitions of one GPU, as AMD's tools do",
            )

    def _report(self, severity: Severity, rule: str, path: str, text: str) -> None:
        count = self._counts[severity, rule] = self._counts.get((severity, rule), 0) + 1
        if count <= MAX_REPORTED:
            self._collector.add(severity, rule, path, text, _HINT)

    def _report_rest(self, count: int) -> None:
        for (severity, rule), number in self._counts.items():
            if number > MAX_REPORTED:
                text = f"{number - MAX_REPORTED} more of KFD's nodes have the same problem"
                self._collector.add(severity, rule, NODES, text, _HINT)
        if self._without_domain:
            renders = ", ".join(f"renderD{render}" for render in self._without_domain[:MAX_REPORTED])
            more = len(self._without_domain) - MAX_REPORTED
            text = (
                f"KFD has no PCI domain for {renders}{f' and {more} more' if more > 0 else ''}: AMD's "
                "tools do not number their GPUs, so cdigen numbers these GPUs last"
            )
            hint = "use a newer kernel: its KFD has the property 'domain'"
            self._collector.add("warning", "kfd-without-domain", NODES, text, hint)
        if count > MAX_NODES:
            text = f"KFD lists {count} nodes; cdigen reads only the first {MAX_NODES}"
            self._collector.add("warning", "kfd-nodes-unread", NODES, text, _HINT)


def memory_mib(host: Root, node: KfdNode) -> int | None:
    """Return the memory size of NODE in MiB, or None if KFD does not report the size."""
    try:
        text = read_text(host, f"{NODES}/{node.name}/mem_banks/0/properties")
    except OSError:
        return None
    return mib(str(parse_properties(text).get("size_in_bytes", "")))


def bus_and_device(location: int) -> tuple[int, int]:
    """Return the bus and the device in the ``location_id`` LOCATION."""
    return (location >> 8) & 0xFF, (location >> 3) & 0x1F


def parse_properties(text: str) -> dict[str, int]:
    """Return the properties in TEXT. Lines that are not a name and a number are ignored."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        key, value, *_ = (*line.split(), "", "")
        if value.isascii() and value.isdigit() and len(value) <= 20:
            values.setdefault(key, int(value))
    return values
