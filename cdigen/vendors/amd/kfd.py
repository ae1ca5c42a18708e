"""The topology that KFD, the compute side of amdgpu, shows: which render node computes, on which GPU.

Each folder below ``nodes`` is a CPU, a GPU, or a partition of one; ``properties`` has a name and a number in
each line (the kernel's drivers/gpu/drm/amd/amdkfd/kfd_topology.c, node_show). ``location_id`` is the GPU's
place on the PCI bus: bus, device and function; in the function's place is the number of the partition.
"""

from __future__ import annotations

from cdigen.host.procfs import read_text
from cdigen.host.root import reason, shown
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.vendors.notes import Notes

KFD = "/sys/class/kfd/kfd"
NODES = f"{KFD}/topology/nodes"
# The kernel allows 64 partition devices (amdgpu_xcp_drv.c); a host has some CPUs besides.
MAX_NODES = 4096
_KEYS = frozenset(("simd_count", "drm_render_minor", "location_id", "domain", "unique_id"))
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


def read_topology(host: Root, notes: Notes) -> dict[int, KfdNode]:
    """Return the nodes that compute by the numbers of their render nodes; one that is broken is a finding.

    Of two with one number the last by the order of their names counts, as for AMD's tool
    (container-toolkit 1.3.0, internal/amdgpu).
    """
    found: dict[int, KfdNode] = {}
    locations: dict[tuple[int, int], str] = {}
    for name in host.names(NODES)[:MAX_NODES]:
        node = _read(host, name, notes)
        if node is None:
            continue
        render, properties = node
        if render in found:
            notes.say(
                "warning",
                "kfd-node-repeated",
                f"{NODES}/{name}",
                f"KFD's nodes {found[render].name} and {name} both have the render node renderD{render}; "
                "the latter counts",
                _HINT,
            )
        found[render] = properties
        _compare_place(properties, locations, notes)
    return found


def _read(host: Root, name: str, notes: Notes) -> tuple[int, KfdNode] | None:
    """Return the render node's number and the properties of the node NAME; None where it does not compute."""
    path = f"{NODES}/{name}/properties"
    try:
        values = parse_properties(read_text(host, path))
    except OSError as error:
        # The cgroup of a container may keep a GPU's properties from it, and a reset takes the folder away.
        notes.say(
            "error", "kfd-node-unusable", shown(path), f"{shown(path)} cannot be read: {reason(error)}", _HINT
        )
        return None
    if not values:
        notes.say("error", "kfd-node-unusable", shown(path), f"{shown(path)} holds no properties", _HINT)
        return None
    render = values.get("drm_render_minor", 0)
    if render <= 0:
        if values.get("simd_count", 0):
            text = f"KFD's node {shown(name)} computes, but has the render node 0: it gets no device"
            notes.say("error", "kfd-node-unusable", shown(path), text, _HINT)
        return None
    location, domain = values.get("location_id"), values.get("domain")
    slot = None
    if location is None or domain is None:
        lacking = "location_id" if location is None else "domain"
        notes.say(
            "error",
            "kfd-node-unusable",
            shown(path),
            f"KFD's node {shown(name)} (renderD{render}) has no {lacking}: AMD's tools do not count its GPU, "
            "which comes after the others here; a partition is left out",
            _HINT,
        )
    else:
        slot = (domain, (location >> 8) & 0xFF, (location >> 3) & 0x1F)
    node = KfdNode(name=name, slot=slot, location=location, unique_id=values.get("unique_id", 0))
    return render, node


def _compare_place(node: KfdNode, locations: dict[tuple[int, int], str], notes: Notes) -> None:
    if node.slot is None or node.location is None:
        return
    other = locations.setdefault((node.slot[0], node.location), node.name)
    if other != node.name:
        notes.say(
            "warning",
            "kfd-location-repeated",
            f"{NODES}/{node.name}/properties",
            f"KFD's nodes {other} and {node.name} have one location_id, {node.location}: their GPUs are "
            "counted as one's partitions, as AMD's tools do",
            _HINT,
        )


def parse_properties(text: str) -> dict[str, int]:
    """Return the properties in TEXT that matter here; lines that are none are passed over."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        key, value, *_ = (*line.split(), "", "")
        if key in _KEYS and value.isascii() and value.isdigit() and len(value) <= 20:
            values.setdefault(key, int(value))
    return values
