"""Read the cards, render nodes and accelerator nodes of DRM devices of any vendor.

The /sys folder of a PCI or platform device contains the folder ``drm`` with the GPU's cards (``card0``) and
render nodes (``renderD128``). Accelerators that are not GPUs have the folder ``accel`` with accelerator nodes
(``accel0``) instead. The file ``dev`` of a card or node contains the device numbers. The kernel's
Documentation/gpu/drm-uapi.rst and accel/introduction.rst describe these files.

``NodeScan`` is the state that a vendor's readers share: file trees, findings and node owners.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import number_behind, read_line, read_text
from cdigen.model.findings import Finding, FindingCollector
from cdigen.value import frozen, replace
from cdigen.vendors.kernel.nodes import DeviceNumbers, NodeCreationPolicy, NodeReader, is_root_only

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator, HostNode
    from cdigen.vendors.context import DiscoveryContext

# Subsystem -> (prefix of the names, role of the nodes, capabilities that need the nodes). A card drives
# displays and sets modes. For compute and off-screen rendering, the render node is sufficient (drm-uapi.rst,
# "Render nodes").
_NODE_ROLES = {
    "drm": (("card", "card", ("graphics", "display")), ("renderD", "render", ())),
    "accel": (("accel", "accel", ()),),
}
_FOLDERS = {"drm": "/dev/dri", "accel": "/dev/accel"}
BY_PATH = "/dev/dri/by-path"
# The format of the names in udev's 60-drm.rules.
_UDEV_NAME = re.compile(r"(?:pci|platform)-[0-9A-Za-z:._-]{1,80}-(card|render)")
# systemd's udev rules and devtmpfs set different modes. Both modes permit access by root and by the group.
NODE_CREATION = NodeCreationPolicy(mode=0o660)
# The next step for a node that only root can open.
GROUP_HINT = "run 'udevadm trigger': udev sets group render and mode 0660 or 0666 (50-udev-default.rules)"
# Role of a node -> group in systemd's 50-udev-default.rules. All other nodes have the group root.
_GROUPS = {"card": "video", "render": "render", "accel": "render", "control": "render"}


@frozen
class DrmMinor:
    """A DRM minor, which is one device node of a DRM device.

    ``name`` is the kernel's name (``renderD128``). ``number`` is the number in this name (128). ``role`` is
    ``card``, ``render`` or ``accel``. ``path`` is the path of the node. ``capabilities`` are the capabilities
    that need the node. ``numbers`` are the device numbers in /sys, or None if /sys has no numbers.
    """

    name: str
    role: str
    number: int
    path: str
    capabilities: tuple[str, ...]
    numbers: tuple[int, int] | None


def minors(root: Root, folder: str, subsystem: str = "drm") -> tuple[DrmMinor, ...]:
    """Return the DRM minors of the device with the /sys folder FOLDER; cards come before render nodes.

    SUBSYSTEM is ``drm`` or ``accel``. If the folder does not exist, the result is empty, because the kernel
    removes the folder together with the device.
    """
    below = f"{folder}/{subsystem}"
    found = [listed for name in root.names(below) if (listed := read_minor(root, below, name, subsystem))]
    return tuple(sorted(found, key=lambda minor: (minor.role, minor.number)))


def read_minor(root: Root, folder: str, name: str, subsystem: str) -> DrmMinor | None:
    """Return the minor NAME in the folder FOLDER of SUBSYSTEM, or None if NAME is not a minor."""
    for prefix, role, capabilities in _NODE_ROLES[subsystem]:
        number = number_behind(prefix, name)
        if number is not None:
            return DrmMinor(
                name=name,
                role=role,
                number=number,
                path=f"{_FOLDERS[subsystem]}/{name}",
                capabilities=capabilities,
                numbers=device_numbers(root, f"{folder}/{name}/dev"),
            )
    return None


def with_groups(host: Root, nodes: Iterable[HostNode]) -> tuple[HostNode, ...]:
    """Return NODES with the groups that udev sets. NODES are nodes that cdigen can create.

    Cards have the group ``video``. Render nodes, accelerators and KFD have the group ``render``.
    """
    groups = _groups(host)
    return tuple(replace(node, gid=groups.get(_GROUPS.get(node.role, ""), 0)) for node in nodes)


def _groups(host: Root) -> dict[str, int]:
    try:
        lines = read_text(host, "/etc/group", limit=1 << 20).splitlines()
    except OSError:
        return {}
    fields = (line.split(":") for line in lines)
    return {row[0]: int(row[2]) for row in fields if len(row) > 2 and row[2].isascii() and row[2].isdigit()}


def root_only_nodes(nodes: Iterable[HostNode]) -> Iterator[Finding]:
    """Yield a finding if only root can open some of the compute nodes in NODES."""
    closed = [node for node in nodes if node.role in {"render", "accel"} and is_root_only(node)]
    # A container can have the same host node at several paths, because of /dev/dri/by-path.
    paths = list(dict.fromkeys(node.host_path for node in closed))
    if paths:
        more = " and more" if len(paths) > 4 else ""
        yield Finding(
            severity="warning",
            rule="render-group",
            path=paths[0],
            message=f"only root can open {', '.join(paths[:4])}{more}: no group of users has access",
            hint=GROUP_HINT,
        )


def device_numbers(root: Root, path: str) -> tuple[int, int] | None:
    """Return the device numbers in the ``dev`` file PATH of /sys, or None if the file has no numbers."""
    major, _, minor = read_line(root, path).partition(":")
    numbers = number_behind("", major), number_behind("", minor)
    return None if numbers[0] is None or numbers[1] is None else (numbers[0], numbers[1])


def node_numbers(numbers: tuple[int, int] | None, *, make: bool = True) -> DeviceNumbers | None:
    """Return NUMBERS as the expected numbers of a node. If MAKE is false, cdigen must not create the node."""
    return (
        DeviceNumbers(major=numbers[0], minor=numbers[1], make_with=numbers[0] if make else None)
        if numbers
        else None
    )


def read_node(reader: NodeReader, minor: DrmMinor, owner: str = "") -> tuple[HostNode | None, str]:
    """Return (node, "") for MINOR, or (None, problem) if its node cannot be used.

    OWNER is the folder of a device. With OWNER, it is a problem if another device has the same node.
    """
    if owner and (problem := reader.claim(minor.path, owner)):
        return None, problem
    return reader.read(
        minor.path, role=minor.role, capabilities=minor.capabilities, numbers=node_numbers(minor.numbers)
    )


def udev_names(dev: Root) -> dict[str, tuple[str, ...]]:
    """Return a mapping from the path of a node on the host to its paths in /dev/dri/by-path."""
    names: dict[str, tuple[str, ...]] = {}
    for name in dev.names(BY_PATH):
        if _UDEV_NAME.fullmatch(name) is None:
            continue
        path = f"{BY_PATH}/{name}"
        try:
            real = dev.host_path(dev.resolve(path))
        except OSError:
            # The entry is a link to a removed node. udev removes the entry soon.
            continue
        names[real] = (*names.get(real, ()), path)
    return names


def with_udev_names(node: HostNode, names: dict[str, tuple[str, ...]]) -> tuple[HostNode, ...]:
    """Return NODE, and a copy of NODE for each of its paths in NAMES.

    A path in NAMES ends in ``-card`` or ``-render``. Only paths that end in the role of NODE are used.
    """
    fitting = (path for path in names.get(node.host_path, ()) if path.endswith(f"-{node.role}"))
    return (node, *(replace(node, path=path) for path in fitting))


class NodeScan:
    """The state that the readers of one host's devices share. Each node belongs to only one device."""

    def __init__(self, context: DiscoveryContext) -> None:
        self.host = context.host
        self.dev = context.dev
        self.collector = FindingCollector()
        self.nodes = NodeReader(context.dev, NODE_CREATION)

    def minor(self, folder: str, minor: DrmMinor) -> tuple[HostNode | None, str]:
        """Return (node, "") for MINOR, or (None, problem) if its node cannot be used.

        FOLDER is the /sys folder of the device. If the file ``dev`` of MINOR exists and has no numbers, the
        function adds a finding.
        """
        listed = f"{folder}/{'accel' if minor.role == 'accel' else 'drm'}/{minor.name}"
        if minor.numbers is None and "dev" in self.host.names(listed):
            self.collector.add(
                "warning",
                "node-numbers-unknown",
                f"{listed}/dev",
                f"{listed}/dev contains no device numbers; cdigen cannot check the numbers of {minor.path}",
                f"see 'cat {listed}/dev'",
            )
        return read_node(self.nodes, minor, folder)

    def node(self, folder: str, path: str, role: str, listed: str) -> tuple[HostNode | None, str]:
        """Return (node, "") for the node at PATH, or (None, problem) if it cannot be used.

        FOLDER is the /sys folder of the device. LISTED is the folder in /sys whose file ``dev`` has the
        numbers of the node.
        """
        if problem := self.nodes.claim(path, folder):
            return None, problem
        numbers = node_numbers(device_numbers(self.host, f"{listed}/dev"))
        return self.nodes.read(path, role=role, numbers=numbers)

    def accelerator(
        self, device: Accelerator, folder: str, minor: DrmMinor | None, *, word: str, driver: str
    ) -> Accelerator:
        """Return DEVICE with the node of MINOR, or DEVICE as unusable and without a node.

        FOLDER is the /sys folder of DEVICE. If the node is missing or unusable, the function adds a finding.
        WORD (``NPU``) is the type of DEVICE in the message of the finding.
        """
        node, problem = None, "the driver lists no device node"
        if minor is not None:
            node, problem = self.minor(folder, minor)
        if minor is not None and node is not None:
            return replace(device, minor=minor.number, nodes=(node,), usable=True)
        self.collector.add(
            "error",
            "accel-node-missing" if minor else "accel-without-node",
            self.dev.host_path(minor.path) if minor else device.address or folder,
            f"{word} {device.index} ({device.address or folder}) gets no CDI device: {problem}",
            self.nodes.remedy() if minor else f"see 'dmesg | grep {driver}'",
        )
        return replace(device, minor=minor.number if minor else None, problem=problem)
