"""Read DRM devices of any vendor: the cards, render nodes and accelerator nodes of a device.

A device's folder in /sys, of PCI or of the platform, has them in ``drm/`` (``card0``, ``renderD128``) and, of
accelerators that are not GPUs, in ``accel/`` (``accel0``); each one's ``dev`` holds its node's numbers
(Documentation/gpu/drm-uapi.rst and accel/introduction.rst of the kernel).
"""

from __future__ import annotations

from cdigen.host.procfs import number_behind, read_line, read_text
from cdigen.model.findings import Finding
from cdigen.value import frozen, replace
from cdigen.vendors.kernel.nodes import DeviceNumbers, NodeCreationPolicy, NodeReader, is_root_only

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import HostNode

# How the names of each begin; what it is for; whom it serves. A card shows pictures and sets modes, and
# whoever computes or renders off screen needs its render node alone (drm-uapi.rst, "Render nodes").
_FORMS = {
    "drm": (("card", "card", ("graphics", "display")), ("renderD", "render", ())),
    "accel": (("accel", "accel", ()),),
}
_FOLDERS = {"drm": "/dev/dri", "accel": "/dev/accel"}
# systemd's udev rules and devtmpfs differ; nobody but root and the node's group is what both have in common.
NODE_CREATION = NodeCreationPolicy(mode=0o660)
# What to do about a node that should be there.
UDEV_HINT = (
    "is udev running? 'udevadm trigger' makes missing nodes, and so does 'create_nodes: true' in the "
    "configuration"
)
# The same of one that only root can open.
GROUP_HINT = (
    "'udevadm trigger' has udev give it to the group render, mode 0660 or 0666 (50-udev-default.rules)"
)
# systemd's 50-udev-default.rules: the group of nodes by their role; all others are root's.
_GROUPS = {"card": "video", "render": "render", "accel": "render", "control": "render"}


@frozen
class DrmMinor:
    """One of a device's nodes as the kernel names it: ``name`` (``renderD128``), ``number`` (128).

    ``role`` is ``card``, ``render`` or ``accel``, ``path`` where the node lies, ``numbers`` those that the
    kernel gives it, None where it does not tell them.
    """

    name: str
    role: str
    number: int
    path: str
    capabilities: tuple[str, ...]
    numbers: tuple[int, int] | None


def minors(root: Root, folder: str, subsystem: str = "drm") -> tuple[DrmMinor, ...]:
    """Return the DRM minors of the device whose folder in /sys is FOLDER: cards, then render nodes.

    SUBSYSTEM is ``drm`` or ``accel``. Nothing where the folder is gone: /sys of a device vanishes with it.
    """
    below = f"{folder}/{subsystem}"
    found = [listed for name in root.names(below) if (listed := read_minor(root, below, name, subsystem))]
    return tuple(sorted(found, key=lambda minor: (minor.role, minor.number)))


def read_minor(root: Root, folder: str, name: str, subsystem: str) -> DrmMinor | None:
    """Return the minor of SUBSYSTEM that FOLDER lists as NAME, None where it is something else."""
    for prefix, role, capabilities in _FORMS[subsystem]:
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
    """Return NODES that are to be made with the groups that udev would give them.

    Cards to ``video``, render nodes, accelerators and KFD to ``render``.
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
    """Say which nodes that programs compute with only root can open: no group opens them to others."""
    closed = [node for node in nodes if node.role in {"render", "accel"} and is_root_only(node)]
    # A container sees one node of the host under several paths: those of by-path.
    paths = list(dict.fromkeys(node.host_path for node in closed))
    if paths:
        more = " and more" if len(paths) > 4 else ""
        yield Finding(
            severity="warning",
            rule="render-group",
            path=paths[0],
            message=f"only root can open {', '.join(paths[:4])}{more}, whatever groups a user is in",
            hint=GROUP_HINT,
        )


def device_numbers(root: Root, path: str) -> tuple[int, int] | None:
    """Return the numbers in the ``dev`` file PATH of /sys; None where the kernel does not tell them."""
    major, _, minor = read_line(root, path).partition(":")
    told = number_behind("", major), number_behind("", minor)
    return None if told[0] is None or told[1] is None else (told[0], told[1])


def node_numbers(told: tuple[int, int] | None, *, make: bool = True) -> DeviceNumbers | None:
    """Return what a node with the numbers TOLD has to be; MAKE says whether it may be made."""
    return DeviceNumbers(major=told[0], minor=told[1], make_with=told[0] if make else None) if told else None


def read_node(reader: NodeReader, minor: DrmMinor, owner: str = "") -> tuple[HostNode | None, str]:
    """Return the node of MINOR and no problem, or None and what is wrong with it.

    With OWNER, the folder of a device, no other device is given the node.
    """
    if owner and (problem := reader.claim(minor.path, owner)):
        return None, problem
    return reader.read(
        minor.path, role=minor.role, capabilities=minor.capabilities, numbers=node_numbers(minor.numbers)
    )
