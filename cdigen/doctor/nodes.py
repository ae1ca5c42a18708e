"""The device nodes: whether they are there, with the kernel's numbers, for the user, and for systemd."""

from __future__ import annotations

import os
import stat

from cdigen.doctor.driver import CAUSES
from cdigen.doctor.result import Topic, command_in
from cdigen.doctor.words import quoted
from cdigen.model.errors import HostError
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

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
_FEW = 4


def check(context: Context) -> Iterator[CheckResult]:
    """Say how the nodes of the host's devices stand."""
    missing, wrong = _unmade(context)
    findings = _said(context)
    serious = {finding.path for finding in findings if finding.severity == "error"}
    yield from _missing(context, findings, missing, wrong)
    yield from _wrong(context, wrong, serious)
    yield from _access(context)
    yield from _links(context)


def _unmade(context: Context) -> tuple[tuple[HostNode, ...], tuple[HostNode, ...]]:
    """Return the nodes that have to be made, and those that have to be made anew."""
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
            missing += vendor.missing_nodes(context.request.places)
            wrong += vendor.wrong_nodes(context.request.places)
        except HostError:
            continue  # what keeps the list of GPUs from being read is the driver's
    return tuple(missing), tuple(wrong)


def _said(context: Context) -> tuple[Finding, ...]:
    """Return what discovery said of nodes."""
    return tuple(
        finding
        for inventory in context.inventories.values()
        for finding in inventory.findings
        if finding.rule in _RULES and finding.severity != "info"
    )


def _missing(
    context: Context,
    findings: tuple[Finding, ...],
    missing: tuple[HostNode, ...],
    wrong: tuple[HostNode, ...],
) -> Iterator[CheckResult]:
    told = {node.host_path for node in (*missing, *wrong)}
    serious = {finding.path for finding in findings if finding.severity == "error"}
    lost = [error for error in context.failures.values() if error.kind == "no-nodes"]
    needed = [node for node in missing if _is_needed(node, serious) or lost]
    optional = [
        node for node in missing if node not in needed and any(node.host_path == f.path for f in findings)
    ]
    for nodes, say in ((needed, TOPIC.error), (optional, TOPIC.warning)):
        if nodes:
            does = "does" if len(nodes) == 1 else "do"
            yield say(
                MISSING, f"{_paths(nodes)} {does} not exist, and the driver is loaded", _make(context, nodes)
            )
    for finding in findings:
        if finding.path not in told and not any(
            node.host_path in finding.message for node in (*missing, *wrong)
        ):
            say = TOPIC.error if finding.severity == "error" else TOPIC.warning
            detail = f"{finding.message}; {finding.hint}" if finding.hint else finding.message
            yield say(MISSING, detail, command_in(finding.hint))
    if lost and not needed and not wrong:
        yield TOPIC.error(MISSING, f"{lost[0].message}; {lost[0].hint}", command_in(lost[0].hint))
    if context.nodes:
        yield TOPIC.good(MISSING, f"{len(context.nodes)} device nodes are there")


def _is_needed(node: HostNode, serious: set[str]) -> bool:
    return node.host_path in serious or node.role in {"gpu", "control", "capability"}


def _wrong(context: Context, wrong: tuple[HostNode, ...], serious: set[str]) -> Iterator[CheckResult]:
    if not wrong:
        if context.nodes:
            yield TOPIC.good(WRONG, "all have the numbers that the kernel gives them")
        return
    told = [
        f"{node.host_path} is {_is(context, node)}, and must be {node.major}:{node.minor}" for node in wrong
    ]
    needed = any(_is_needed(node, serious) or node.role == "uvm" for node in wrong)
    say = TOPIC.error if needed else TOPIC.warning
    yield say(
        WRONG,
        "; ".join(told[:_FEW]) + (f" and {len(told) - _FEW} more" if len(told) > _FEW else ""),
        f"{_remove(context, wrong)} && {_make(context, wrong)}",
    )


def _remove(context: Context, nodes: tuple[HostNode, ...]) -> str:
    """Return the command that removes NODES: a directory, as container engines leave one, only if empty."""
    commands = []
    for path in (node.host_path for node in nodes):
        command = "rmdir" if not context.is_link(path) and _is_folder(context, path) else "rm -f"
        commands.append(f"{command} {context.outer(path)}")
    return " && ".join(commands)


def _is_folder(context: Context, path: str) -> bool:
    try:
        return stat.S_ISDIR(context.host.stat(path).st_mode)
    except OSError:
        return False


def _is(context: Context, node: HostNode) -> str:
    try:
        status = context.host.stat(node.host_path)
    except OSError:
        return "unreadable"
    if not stat.S_ISCHR(status.st_mode):
        return "no character device"
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _make(context: Context, nodes: tuple[HostNode, ...] | list[HostNode]) -> str:
    """Return the command that makes NODES as the kernel says they have to be."""
    folders = dict.fromkeys(node.host_path.rpartition("/")[0] for node in nodes)
    commands = [f"mkdir -p {context.outer(folder)}" for folder in folders if not context.host.exists(folder)]
    for node in nodes:
        path = context.outer(node.host_path)
        commands.append(f"mknod -m {node.mode:04o} {path} c {node.major} {node.minor}")
        if node.uid or node.gid:
            commands.append(f"chown {node.uid}:{node.gid} {path}")
    return " && ".join(commands)


def _paths(nodes: list[HostNode]) -> str:
    listed = [node.host_path for node in nodes]
    more = f" and {len(listed) - _FEW} more" if len(listed) > _FEW else ""
    return ", ".join(listed[:_FEW]) + more


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
    say = TOPIC.error if needed else TOPIC.warning
    groups = {node.gid for node in closed if node.gid and (node.mode >> 3) & _OPEN == _OPEN}
    helped = [node for node in closed if node.gid in groups and (node.mode >> 3) & _OPEN == _OPEN]
    if len(helped) == len(closed):
        names = ",".join(_group_name(context, gid) for gid in sorted(groups))
        text = (
            f"{user.name} may not open {_paths(closed)}: they are open to the groups {names} (log in again "
            "afterwards; rootless containers keep groups with crun and 'podman run --group-add keep-groups')"
        )
        yield say(ACCESS, text, f"usermod --append --groups {quoted(names)} {quoted(user.name)}")
        return
    text = f"{user.name} may not open {_paths(closed)}; to keep it so after a boot, {_lasting(closed)}"
    yield say(ACCESS, text, f"chmod 0666 {' '.join(context.outer(node.host_path) for node in closed)}")


def _lasting(closed: list[HostNode]) -> str:
    """Return what makes CLOSED open at each boot: NVIDIA's module makes its own nodes, udev all others."""
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
    """Say whether systemd, which knows devices by /dev/char, keeps what a container was allowed.

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
    commands = [f"mkdir -p {context.outer('/dev/char')}"]
    for node in lost:
        link = context.outer(f"/dev/char/{node.major}:{node.minor}")
        commands.append(f"ln -sfn ../{node.host_path.removeprefix('/dev/')} {link}")
    verb, what = ("is", "it") if len(lost) == 1 else ("are", "them")
    text = (
        f"{_paths(lost)} {verb} not in /dev/char: containers lose {what} at the next 'systemctl "
        "daemon-reload', where systemd manages their cgroups"
    )
    yield TOPIC.warning(LINKS, text, " && ".join(commands), because=CAUSES)


def _is_linked(context: Context, node: HostNode) -> bool:
    try:
        status = context.host.stat(f"/dev/char/{node.major}:{node.minor}")
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(node.major, node.minor)
