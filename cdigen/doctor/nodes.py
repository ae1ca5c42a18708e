"""Checks of the device nodes: that they exist, with the kernel's numbers, for the user and for systemd."""

from __future__ import annotations

import os
import stat

from cdigen.doctor.commands import file_command
from cdigen.doctor.driver import CAUSES
from cdigen.doctor.result import Remedy, Topic, listed, with_hint
from cdigen.model.errors import HostError
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import HostNode

TOPIC = Topic(name="nodes")
MISSING, WRONG, ACCESS, LINKS = "node-missing", "node-wrong", "node-access", "node-links"
_RULES = {
    "control-node-missing",
    "gpu-node-missing",
    "drm-node-missing",
    "accel-node-missing",
    "family-node-unusable",
    "mig-instance-unusable",
}
_SYSTEMD = "/run/systemd/system"  # sd_booted(3)
_OPEN = 6  # to read and to write


def _unmade(context: Context) -> tuple[tuple[HostNode, ...], tuple[HostNode, ...]]:
    """Return the nodes that are missing, and those that have to be replaced."""
    missing: list[HostNode] = []
    wrong: list[HostNode] = []
    rules = {finding.rule for inventory in context.inventories.values() for finding in inventory.findings}
    if not rules & _RULES and not any(
        error.kind in {"no-nodes", "no-gpu"} for error in context.failures.values()
    ):
        return (), ()
    for name in context.request.vendors:
        vendor = registry.load(name)
        try:
            missing += vendor.missing_nodes(context.request.discovery_context)
            wrong += vendor.wrong_nodes(context.request.discovery_context)
        except HostError:
            continue  # what keeps the list of GPUs from being read is the driver's
    return tuple(missing), tuple(wrong)


def _found(context: Context) -> tuple[Finding, ...]:
    """Return what discovery found wrong with nodes."""
    return tuple(
        finding
        for inventory in context.inventories.values()
        for finding in inventory.findings
        if finding.rule in _RULES and finding.severity != "info"
    )


def _missing(context: Context) -> Iterator[CheckResult]:
    """Report the nodes that do not exist."""
    missing, wrong = _unmade(context)
    findings = _found(context)
    known = [node.host_path for node in (*missing, *wrong)]
    lost = {name: error for name, error in context.failures.items() if error.kind == "no-nodes"}
    needed = [node for node in missing if lost or _is_needed(context, node)]
    named = {finding.path for finding in findings}
    optional = [node for node in missing if node not in needed and node.host_path in named]
    for nodes, is_error in ((needed, True), (optional, False)):
        if nodes:
            text = (
                f"{_paths(nodes)} {'does' if len(nodes) == 1 else 'do'} not exist, and the driver is loaded"
            )
            yield TOPIC.failed(MISSING, text, _make(context, nodes), is_error=is_error)
    for finding in findings:
        if finding.path not in known and not any(path in finding.message for path in known):
            yield TOPIC.finding(MISSING, finding, _let_make(is_nvidia=finding.path.startswith("/dev/nvidia")))
    if not needed and not wrong:
        for name, error in lost.items():
            yield TOPIC.error(MISSING, with_hint(error), _let_make(is_nvidia=name == "nvidia"))
    if context.nodes:
        yield TOPIC.good(MISSING, f"{len(context.nodes)} device nodes are there")


def _is_needed(context: Context, node: HostNode) -> bool:
    is_serious = any(f.severity == "error" and f.path == node.host_path for f in _found(context))
    return is_serious or node.role in {"gpu", "control", "capability"}


def _let_make(*, is_nvidia: bool) -> tuple[Remedy, ...]:
    """Return the command that makes nodes: NVIDIA's own program, or udev for all others."""
    if is_nvidia:
        command = ("nvidia-modprobe", "-c", "0", "-u", "-m")
        return (Remedy(argv=command, why="make NVIDIA's device nodes"),)
    return (Remedy(argv=("udevadm", "trigger"), why="udev makes missing device nodes"),)


def _wrong(context: Context) -> Iterator[CheckResult]:
    """Report paths that are another device than the one meant, or not a device."""
    _, wrong = _unmade(context)
    if not wrong:
        if context.nodes:
            yield TOPIC.good(WRONG, "all have the numbers that the kernel gives them")
        return
    told = [
        f"{node.host_path} is {_is(context, node)}, and must be {node.major}:{node.minor}" for node in wrong
    ]
    is_error = any(_is_needed(context, node) or node.role == "uvm" for node in wrong)
    remedies = (*_remove(context, wrong), *_make(context, wrong))
    yield TOPIC.failed(WRONG, listed(told, separator="; "), remedies, is_error=is_error)


def _remove(context: Context, nodes: tuple[HostNode, ...]) -> Iterator[Remedy]:
    """Return the commands that remove NODES: a directory, as container engines leave one, only if empty."""
    for path in (node.host_path for node in nodes):
        is_folder = os.path.isdir(context.outer(path)) and not os.path.islink(context.outer(path))
        command = ("rmdir",) if is_folder else ("rm", "-f")
        yield file_command("remove what is in the place of the node", *command, context.outer(path))


def _is(context: Context, node: HostNode) -> str:
    try:
        status = context.host.stat(node.host_path)
    except OSError:
        return "unreadable"
    if not stat.S_ISCHR(status.st_mode):
        return "not a character device"
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _make(context: Context, nodes: Iterable[HostNode]) -> tuple[Remedy, ...]:
    """Return the commands that make NODES as the kernel says they have to be."""
    folders = dict.fromkeys(node.host_path.rpartition("/")[0] for node in nodes)
    made = [
        file_command("make the folder of the nodes", "mkdir", "-p", context.outer(folder))
        for folder in folders
        if not context.host.exists(folder)
    ]
    for node in nodes:
        path, numbers = context.outer(node.host_path), (str(node.major), str(node.minor))
        command = ("mknod", "-m", f"{node.mode:04o}", path, "c", *numbers)
        made.append(Remedy(argv=command, why="make the node with the kernel's numbers"))
        if node.uid or node.gid:
            made.append(file_command("give it its owner", "chown", f"{node.uid}:{node.gid}", path))
    return tuple(made)


def _paths(nodes: list[HostNode]) -> str:
    return listed(node.host_path for node in nodes)


def _access(context: Context) -> Iterator[CheckResult]:
    user = context.user
    if user is None or not context.nodes:
        return
    closed = [node for node in context.nodes if not _may_open(node, user.uid, user.gids)]
    needed = [node for node in closed if not node.capabilities or "compute" in node.capabilities]
    if not closed:
        yield TOPIC.good(ACCESS, f"{user.name} may open all {len(context.nodes)} nodes")
        by_group = sorted({str(node.gid) for node in context.nodes if not node.mode & 0o6 and node.gid})
        if by_group:
            text = (
                f"some only as a member of the groups {', '.join(by_group)}: rootless containers keep them "
                "with crun and 'podman run --group-add keep-groups'"
            )
            yield TOPIC.good("node-groups", text)
        return
    groups = {node.gid for node in closed if node.gid and (node.mode >> 3) & _OPEN == _OPEN}
    helped = [node for node in closed if node.gid in groups and (node.mode >> 3) & _OPEN == _OPEN]
    if len(helped) == len(closed):
        names = ",".join(_group_name(context, gid) for gid in sorted(groups))
        text = (
            f"{user.name} may not open {_paths(closed)}: they are open to the groups {names} (log in again "
            "afterwards; rootless containers keep groups with crun and 'podman run --group-add keep-groups')"
        )
        join = ("usermod", "--append", "--groups", names, user.name)
        remedy = Remedy(argv=join, why="the groups may open the nodes")
        yield TOPIC.failed(ACCESS, text, (remedy,), is_error=bool(needed))
        return
    text = f"{user.name} may not open {_paths(closed)}; to keep it so after a boot, {_lasting(closed)}"
    command = ("chmod", "0666", *(context.outer(node.host_path) for node in closed))
    remedy = file_command("let everybody open the nodes", *command)
    yield TOPIC.failed(ACCESS, text, (remedy,), is_error=bool(needed))


def _lasting(closed: list[HostNode]) -> str:
    """Return how to keep CLOSED open after a boot: NVIDIA's module makes its own nodes, udev all others."""
    is_of_nvidia = any(node.host_path.rpartition("/")[2].startswith("nvidia") for node in closed)
    if is_of_nvidia:
        return "set NVreg_DeviceFileMode=0666 for the module nvidia"
    return "give them to the group render by a rule of udev, as its own rules do"


def _may_open(node: HostNode, uid: int, gids: tuple[int, ...]) -> bool:
    if uid == 0:
        return True
    shift = 6 if node.uid == uid else 3 if node.gid in gids else 0
    return (node.mode >> shift) & _OPEN == _OPEN


def _group_name(context: Context, gid: int) -> str:
    for line in context.text("/etc/group", limit=1 << 20).splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(gid):
            return fields[0]
    return str(gid)


def _links(context: Context) -> Iterator[CheckResult]:
    """Report nodes without a link in /dev/char, by which systemd knows the devices that containers may use.

    runc issue 3708, nvidia-container-toolkit issue 48: after daemon-reload containers lose their GPUs.
    """
    if not context.nodes:
        return
    if not context.host.exists(_SYSTEMD):
        yield TOPIC.good(LINKS, "no systemd runs, which would need /dev/char")
        return
    lost = [node for node in context.nodes if not _is_linked(context, node)]
    if not lost:
        yield TOPIC.good(LINKS, "all are in /dev/char, where systemd looks for them")
        return
    links = [file_command("make the folder", "mkdir", "-p", context.outer("/dev/char"))]
    for node in lost:
        link = context.outer(f"/dev/char/{node.major}:{node.minor}")
        target = f"../{node.host_path.removeprefix('/dev/')}"
        links.append(file_command("link the node for systemd", "ln", "-sfn", target, link))
    verb, what = ("is", "it") if len(lost) == 1 else ("are", "them")
    text = (
        f"{_paths(lost)} {verb} not in /dev/char: containers lose {what} at the next 'systemctl "
        "daemon-reload', where systemd manages their cgroups"
    )
    yield TOPIC.warning(LINKS, text, tuple(links), because=CAUSES)


def _is_linked(context: Context, node: HostNode) -> bool:
    try:
        status = context.host.stat(f"/dev/char/{node.major}:{node.minor}")
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(node.major, node.minor)


CHECKS = (_missing, _wrong, _access, _links)
