"""Read device nodes of any vendor, compared with the kernel's numbers, and put them into specs.

A node that does not exist, or in whose place there is something else, is remembered as it would have to
be made (``create_nodes``, ``cdigen doctor``).
"""

from __future__ import annotations

from cdigen.host import devnodes
from cdigen.host.root import is_plain, reason
from cdigen.model.cdi import ContainerEdits, DeviceNode
from cdigen.model.inventory import HostNode
from cdigen.model.profile import DEFAULT
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.host.root import Root
    from cdigen.model.profile import Profile

# To read and to write: a node is never executed, and what a host says of modes is not to be trusted with
# bits that mean more.
NODE_MODE = 0o666
# The permission bits to read and write of everyone and of a node's group.
WORLD, GROUP = 0o006, 0o060


# Majors that the kernel gives to whoever asks for any (fs/char_dev.c, find_dynamic_major).
_DYNAMIC = (range(234, 255), range(384, 512))
_DRM, _ACCEL, _VERBS = range(226, 227), range(261, 262), range(231, 232)
# What a node is -> the majors and minors that such a node can have: those of the kernel's
# Documentation/admin-guide/devices.txt. Render nodes count from 128, and from 192 on all of DRM's
# (drivers/gpu/drm/drm_drv.c). Older drivers of Gaudi make /dev/accel/accel0 with a major of their own.
_CARD = ("DRM card", (_DRM,), (range(128), range(192, 1 << 12)))
_RENDER = ("render node", (_DRM,), (range(128, 1 << 20),))
_ANY = ("such node", _DYNAMIC, (range(1 << 20),))
# Folder in a container, and name without its number -> what lies there.
_KNOWN_NODES = {
    ("/dev/dri", "card"): _CARD,
    ("/dev/dri", "renderD"): _RENDER,
    ("/dev/accel", "accel"): ("accelerator node", (_ACCEL, *_DYNAMIC), (range(1 << 20),)),
    ("/dev/infiniband", "uverbs"): ("node of verbs", (_VERBS, *_DYNAMIC), (range(1 << 20),)),
    ("/dev", "kfd"): _ANY,
    ("/dev", "mei"): _ANY,
    ("/dev/vfio", ""): _ANY,
}


@frozen
class DeviceNumbers:
    """What a node has to be: a major, None where the kernel does not tell it, and a minor.

    ``make_with`` is the major to make it with where it is missing, None where it is not to be made.
    """

    major: int | None
    minor: int
    make_with: int | None = None


@frozen
class NodeCreationPolicy:
    """How nodes are made that do not exist: mode, owner, group; ``allowed`` says whether at all."""

    mode: int = NODE_MODE
    uid: int = 0
    gid: int = 0
    allowed: bool = True


class NodeReader:
    """Reads the nodes of one host, below DEV, and gathers those that are missing.

    ``missing`` holds nodes that could be made: their numbers are known, and policy is allowed. ``wrong``
    holds, as they should be, those in whose place there is something else.
    """

    def __init__(self, dev: Root, policy: NodeCreationPolicy) -> None:
        self.missing: list[HostNode] = []
        self.wrong: list[HostNode] = []
        self._dev = dev
        self._policy = policy
        # path -> whose it is
        self._owners: dict[str, str] = {}

    def read(
        self,
        path: str,
        *,
        role: str,
        capabilities: tuple[str, ...] = (),
        numbers: DeviceNumbers | None = None,
        mode: int | None = None,
    ) -> tuple[HostNode | None, str]:
        """Return the node at PATH and no problem, or None and what is wrong with it.

        With NUMBERS a node of others is wrong: it would give a container another device. One that
        does not exist is noted as missing, with MODE instead of the usual one where it is given.
        """
        try:
            node = devnodes.read_node(self._dev, path, role=role, capabilities=capabilities)
        except devnodes.NotADevice as error:
            self._note(self.wrong, path, role, numbers, mode)
            return None, str(error)
        except (FileNotFoundError, NotADirectoryError):
            if self._policy.allowed:
                self._note(self.missing, path, role, numbers, mode)
            return None, f"{self._dev.host_path(path)} does not exist"
        except OSError as error:
            return None, f"{self._dev.host_path(path)} cannot be read: {reason(error)}"
        if not is_plain(node.host_path):
            return None, f"{path} leads to a path that a spec cannot hold"
        if problem := number_problem(node):
            self._note(self.wrong, path, role, numbers, mode)
            return None, problem
        if numbers is None or (node.minor == numbers.minor and node.major == (numbers.major or node.major)):
            return node, ""
        self._note(self.wrong, path, role, numbers, mode)
        told = (
            f"driver's minor is {numbers.minor}"
            if numbers.major is None
            else f"kernel's are {numbers.major}:{numbers.minor}"
        )
        return None, f"{node.host_path} has the numbers {node.major}:{node.minor}, but the {told}"

    def claim(self, path: str, owner: str) -> str:
        """Record that the node at PATH is the device OWNER's; return what is wrong with that, or nothing."""
        first = self._owners.setdefault(path, owner)
        return f"{path} is the node of another device, too ({first})" if first != owner else ""

    def _note(
        self, where: list[HostNode], path: str, role: str, numbers: DeviceNumbers | None, mode: int | None
    ) -> None:
        """Add to WHERE the node that should be at PATH, if it is known."""
        if numbers is None or numbers.make_with is None:
            return
        node = HostNode(
            path=path,
            host_path=self._dev.host_path(path),
            role=role,
            major=numbers.make_with,
            minor=numbers.minor,
            mode=(self._policy.mode if mode is None else mode) & NODE_MODE,
            uid=self._policy.uid,
            gid=self._policy.gid,
        )
        where.append(node)


def number_problem(node: HostNode) -> str:
    """Return why NODE cannot be what its path says, or nothing: 1:3 is the null device, not a card."""
    what, majors, minors = _known_node(node.path) or ("", (), ())
    if not what or (_is_in(node.major, majors) and _is_in(node.minor, minors)):
        return ""
    return f"{node.host_path} has the numbers {node.major}:{node.minor}, which no {what} has"


def _known_node(path: str) -> tuple[str, tuple[range, ...], tuple[range, ...]] | None:
    folder, _, name = path.rpartition("/")
    if folder.startswith("/dev/dri/by-path"):
        return _CARD if name.endswith("-card") else _RENDER if name.endswith("-render") else None
    return _KNOWN_NODES.get((folder, name.rstrip("0123456789")))


def _is_in(number: int, ranges: tuple[range, ...]) -> bool:
    return any(number in each for each in ranges)


def device_nodes(nodes: Iterable[HostNode], profile: Profile = DEFAULT) -> tuple[DeviceNode, ...]:
    """Return the nodes that PROFILE wants, as a spec has them.

    A node that not everybody may open carries its group.
    """
    return tuple(
        DeviceNode(
            path=node.path,
            host_path=node.host_path if node.host_path != node.path else None,
            file_mode=node.mode,
            gid=node.gid if node.gid and node.mode & WORLD != WORLD else None,
        )
        for node in nodes
        if profile.wants(node.capabilities)
    )


def is_root_only(node: HostNode) -> bool:
    """Return whether only root may open NODE, so that no group opens it to a container's user."""
    by_group = node.gid != 0 and node.mode & GROUP == GROUP
    return node.mode & WORLD != WORLD and not by_group


def gids(nodes: tuple[DeviceNode, ...]) -> tuple[int, ...]:
    """Return the groups that a process has to be in to open NODES; those that open nothing are not."""
    return tuple(sorted({node.gid for node in nodes if node.gid and (node.file_mode or 0) & GROUP}))


def node_edits(nodes: Iterable[HostNode], profile: Profile = DEFAULT) -> ContainerEdits:
    """Return the edits that give a container those of NODES that PROFILE wants, and their groups."""
    wanted = device_nodes(nodes, profile)
    return ContainerEdits(device_nodes=wanted, additional_gids=gids(wanted))
