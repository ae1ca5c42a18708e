"""Read device nodes, compare node numbers with the kernel's numbers, and return the nodes' spec entries.

If a node does not exist or another file is at its path, the reader records the node with the numbers, owner
and mode for its creation. ``cdigen create-nodes`` creates these nodes. ``cdigen doctor`` prints the commands.
"""

from __future__ import annotations

from errno import ELOOP, ENOENT, ENOTDIR

from cdigen.host import devnodes
from cdigen.host.containers import is_guest
from cdigen.host.root import is_plain, reason
from cdigen.model.cdi import ContainerEdits, DeviceNode
from cdigen.model.inventory import HostNode
from cdigen.model.profile import DEFAULT
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator
    from cdigen.model.profile import Profile

# The permitted bits in the mode of a created node. Nodes are never executed, and other bits may be unsafe.
NODE_MODE = 0o666
# The group of a file if the user namespace has no number for it (proc(5), /proc/sys/kernel/overflowgid).
_OVERFLOW_GID = 65534
# The bits that permit reading and writing by all users, and by the node's group.
WORLD, GROUP = 0o006, 0o060


# Majors that the kernel gives to drivers without a fixed major (fs/char_dev.c, find_dynamic_major).
_DYNAMIC = (range(234, 255), range(384, 512))
_DRM, _ACCEL, _VERBS = range(226, 227), range(261, 262), range(231, 232)
# Name of a node's type, its possible majors, its possible minors. The numbers are from the kernel's
# Documentation/admin-guide/devices.txt. The minors of render nodes begin at 128. The minors from 192 on can
# belong to any type of DRM node (drivers/gpu/drm/drm_drv.c). Older Gaudi drivers create /dev/accel/accel0
# with a dynamic major.
_CARD = ("DRM card", (_DRM,), (range(128), range(192, 1 << 12)))
_RENDER = ("render node", (_DRM,), (range(128, 1 << 20),))
_ANY = ("node with this name", _DYNAMIC, (range(1 << 20),))
# (folder in the container, name of the node without digits at the end) -> type of the node.
_KNOWN_NODES = {
    ("/dev/dri", "card"): _CARD,
    ("/dev/dri", "renderD"): _RENDER,
    ("/dev/accel", "accel"): ("accelerator node", (_ACCEL, *_DYNAMIC), (range(1 << 20),)),
    ("/dev/infiniband", "uverbs"): ("node of verbs", (_VERBS, *_DYNAMIC), (range(1 << 20),)),
    ("/dev", "kfd"): _ANY,
    ("/dev", "mei"): _ANY,
    ("/dev/vfio", ""): _ANY,
}


# The folders of systemd.unit(5), "System Unit Search Path", and the unit that creates the nodes.
_UNIT_FOLDERS = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
_UNIT = "systemd/system/cdigen-nodes.service"
_BOOTED = "/run/systemd/system"  # sd_booted(3)
# The next steps for a missing or wrong node, and for a node that this user has no permission to read.
RUN_DOCTOR = "see 'cdigen doctor'"
RUN_AS_ROOT = "run as root"


def node_remedy(host: Root, dev: Root) -> str:
    """Return the command that creates missing nodes on HOST, in the tree DEV.

    If systemd runs on HOST and has the unit cdigen-nodes.service, the command starts this unit. The unit has
    no options: for the nodes of a driver container, the result is the command with the path of DEV.
    """
    if not dev.host_prefix and host.exists(_BOOTED) and _can_start_unit(host):
        return "systemctl start cdigen-nodes.service"
    import shlex  # noqa: PLC0415 - only for hosts with missing nodes

    words = ["cdigen", "create-nodes"]
    words += [] if host.is_this_machine else ["--root", host.outer]
    words += ["--dev-root", dev.host_prefix] if dev.host_prefix else []
    return shlex.join(words)


def _can_start_unit(host: Root) -> bool:
    """Return whether the search path has a unit file, and the first unit file does not mask the unit."""
    folder, _, name = _UNIT.rpartition("/")
    for above in _UNIT_FOLDERS:
        if name in host.names(f"{above}/{folder}"):
            try:
                return host.resolve_new(f"{above}/{_UNIT}") != "/dev/null"
            except OSError:
                return False
    return False


@frozen
class DeviceNumbers:
    """The expected device numbers of a node.

    ``major`` is None if the kernel does not report the major. ``make_with`` is the major for the creation of
    a missing node, or None if cdigen must not create the node.
    """

    major: int | None
    minor: int
    make_with: int | None = None


@frozen
class NodeCreationPolicy:
    """The mode, owner and group of created nodes. ``allowed`` is false if cdigen must not create nodes."""

    mode: int = NODE_MODE
    uid: int = 0
    gid: int = 0
    allowed: bool = True


class NodeReader:
    """Reads the device nodes in the tree DEV of one host, and records the results.

    ``present`` holds the usable nodes. ``missing`` holds the nodes that do not exist and that cdigen can
    create, because the numbers are known and the policy permits it. ``wrong`` holds the correct nodes for
    paths with another file. ``absent`` holds the role and the path on the host of every node that does not
    exist.

    The keys of ``obstacles`` are problems that ``create-nodes`` does not solve, in the text that ``read``
    returned. Each value is the next step for the problem. ``is_denied`` is true if this process had no
    permission to read a node.
    """

    def __init__(self, dev: Root, policy: NodeCreationPolicy) -> None:
        self.present: list[HostNode] = []
        self.missing: list[HostNode] = []
        self.wrong: list[HostNode] = []
        self.absent: list[tuple[str, str]] = []
        self.obstacles: dict[str, str] = {}
        self.is_denied = False
        self._dev = dev
        self._policy = policy
        # path of a node -> device of the node
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
        """Return (node, "") for the node at PATH, or (None, problem) if it cannot be used.

        A node with other numbers than NUMBERS is a problem, because containers would get another device. If
        the node does not exist, it is recorded as missing, with MODE or with the policy's mode.
        """
        try:
            node = devnodes.read_node(self._dev, path, role=role, capabilities=capabilities)
        except devnodes.NotADevice as error:
            self._record(self.wrong, path, role, numbers, mode)
            return None, self._obstructed(path, str(error))
        except OSError as error:
            if error.errno in {ENOENT, ENOTDIR, ELOOP} and self._dev.is_link(path):
                self._record(self.wrong, path, role, numbers, mode)
                problem = f"{self._dev.host_path(path)} is a link without an existing target"
                return None, self._obstructed(path, problem)
            if error.errno not in {ENOENT, ENOTDIR}:
                self.is_denied |= isinstance(error, PermissionError)
                return None, f"{self._dev.host_path(path)} cannot be read: {reason(error)}"
            self.absent.append((role, self._dev.host_path(path)))
            if self._policy.allowed:
                self._record(self.missing, path, role, numbers, mode)
            return None, f"{self._dev.host_path(path)} does not exist"
        if not is_plain(node.host_path):
            return None, f"{path} leads to a path with unprintable characters"
        if problem := number_problem(node):
            self._record(self.wrong, path, role, numbers, mode)
            return None, problem
        if numbers is None or (node.minor == numbers.minor and node.major == (numbers.major or node.major)):
            self.present.append(node)
            return node, ""
        self._record(self.wrong, path, role, numbers, mode)
        expected = (
            f"driver's minor is {numbers.minor}"
            if numbers.major is None
            else f"kernel's numbers are {numbers.major}:{numbers.minor}"
        )
        problem = f"{node.host_path} has the numbers {node.major}:{node.minor}, but the {expected}"
        return None, self._obstructed(path, problem) if self._dev.is_link(path) else problem

    @property
    def may_create(self) -> bool:
        """Whether the driver permits other programs to create its nodes."""
        return self._policy.allowed

    def remedy(self, problem: str = "", role: str = "") -> str:  # noqa: ARG002 - NVIDIA's reader uses both
        """Return the next step for PROBLEM, a text that ``read`` returned for a node with ROLE.

        NVIDIA's reader overrides this method. For all other vendors, the kernel creates the nodes (devtmpfs),
        and udev sets their groups, modes and links. ``cdigen doctor`` prints the commands that create a node.
        """
        return RUN_AS_ROOT if self.is_denied else RUN_DOCTOR

    def claim(self, path: str, owner: str) -> str:
        """Return a problem if the node at PATH has an owner other than OWNER; else record OWNER."""
        first = self._owners.setdefault(path, owner)
        return f"{path} is also the node of another device ({first})" if first != owner else ""

    def then_create(self, command: str) -> str:
        """Return COMMAND. If a vendor has a command that creates nodes, its reader appends that command."""
        return command

    def _obstructed(self, path: str, problem: str) -> str:
        """Return PROBLEM, and record the removal of the wrong file at PATH as the next step for PROBLEM."""
        self.obstacles[problem] = self.then_create(devnodes.removal(self._dev.outer_path(path)))
        return problem

    def _record(
        self, where: list[HostNode], path: str, role: str, numbers: DeviceNumbers | None, mode: int | None
    ) -> None:
        """Append the correct node for PATH to the list WHERE if the numbers for its creation are known."""
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
    """Return the problem if NODE has impossible numbers for its path, else an empty string.

    For example, a node with the numbers 1:3 is the null device.
    """
    what, majors, minors = _known_node(node.path) or ("", (), ())
    if not what or (_is_in(node.major, majors) and _is_in(node.minor, minors)):
        return ""
    return f"{node.host_path} has the numbers {node.major}:{node.minor}, which no {what} has"


def is_dynamic_major(major: int) -> bool:
    """Return whether MAJOR is in the kernel's ranges for drivers without a fixed major."""
    return _is_in(major, _DYNAMIC)


def _known_node(path: str) -> tuple[str, tuple[range, ...], tuple[range, ...]] | None:
    folder, _, name = path.rpartition("/")
    if folder.startswith("/dev/dri/by-path"):
        return _CARD if name.endswith("-card") else _RENDER if name.endswith("-render") else None
    return _KNOWN_NODES.get((folder, name.rstrip("0123456789")))


def _is_in(number: int, ranges: tuple[range, ...]) -> bool:
    return any(number in each for each in ranges)


def device_nodes(nodes: Iterable[HostNode], profile: Profile = DEFAULT) -> tuple[DeviceNode, ...]:
    """Return the spec entries of the nodes that PROFILE selects.

    A spec entry contains the node's group if not all users may open the node.
    """
    return tuple(
        DeviceNode(
            path=node.path,
            host_path=node.host_path if node.host_path != node.path else None,
            file_mode=node.mode,
            gid=node.gid if node.gid and node.mode & WORLD != WORLD else None,
        )
        for node in nodes
        if profile.includes_capabilities(node.capabilities)
    )


def all_nodes(device: Accelerator) -> tuple[HostNode, ...]:
    """Return the nodes of DEVICE and of its partitions, each node once."""
    every = (*device.nodes, *(node for part in device.partitions for node in part.nodes))
    return tuple(dict.fromkeys(every))


def is_root_only(node: HostNode) -> bool:
    """Return whether only root may open NODE."""
    by_group = node.gid != 0 and node.mode & GROUP == GROUP
    return node.mode & WORLD != WORLD and not by_group


def has_unmapped_group(host: Root, node: HostNode) -> bool:
    """Return whether HOST is a guest without a number for the group of NODE, and NODE is not open to all."""
    return node.gid == _OVERFLOW_GID and node.mode & WORLD != WORLD and is_guest(host)


def gids(nodes: tuple[DeviceNode, ...]) -> tuple[int, ...]:
    """Return the ids of the groups that a process needs to open NODES."""
    return tuple(sorted({node.gid for node in nodes if node.gid and (node.file_mode or 0) & GROUP}))


def node_edits(nodes: Iterable[HostNode], profile: Profile = DEFAULT) -> ContainerEdits:
    """Return the edits with the nodes that PROFILE selects, and with the groups of these nodes."""
    selected = device_nodes(nodes, profile)
    return ContainerEdits(device_nodes=selected, additional_gids=gids(selected))
