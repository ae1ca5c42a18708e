"""Checks of the device nodes: existence, numbers, access for the user, and links for systemd."""

from __future__ import annotations

import os
import shlex
import stat
from contextlib import suppress

from cdigen.doctor.checks.boot_modules import at_boot, unloaded_modules
from cdigen.doctor.checks.driver import CAUSES, NODE_RULES
from cdigen.doctor.commands import file_command
from cdigen.doctor.result import Remedy, Topic, listed, with_hint
from cdigen.host.containers import may_create_nodes
from cdigen.host.root import shown
from cdigen.model.errors import HostError
from cdigen.runtimes.installed import place
from cdigen.runtimes.users import Reader, groups_with_access, may_use, rows
from cdigen.vendors import registry
from cdigen.vendors.kernel.nodes import RUN_AS_ROOT, has_unmapped_group, node_remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import HostNode
    from cdigen.runtimes.users import User

    # A missing or wrong node, and whether the vendor's devices need the node.
    _FaultyNode = tuple[HostNode, bool]

TOPIC = Topic(name="nodes")
MISSING, WRONG, ACCESS, LINKS = "node-missing", "node-wrong", "node-access", "node-links"
# The next step if mknod cannot work on this host.
GUEST_STEP = "mknod is not permitted in this container: the host must pass the node to it"
GROUPS = "node-groups"
# Kinds of HostError. A node may be the cause of _NODE_KINDS, and a node is always the cause of _LOST_KINDS.
_NODE_KINDS = frozenset(("no-nodes", "no-usable-device", "no-mig-instances"))
_LOST_KINDS = frozenset(("no-nodes", "no-mig-instances"))
_SYSTEMD = "/run/systemd/system"  # sd_booted(3)
# The groups of the user have no numbers in the user namespace.
_LOSS = "rootless Docker's containers lose the additional groups of the user"
_SETFACL = "/usr/bin/setfacl"
# podman-run(1), --group-add keep-groups: only crun keeps the groups. krun is crun with libkrun.
_KEEP_GROUPS = frozenset(("crun", "krun"))
# No user has this ID (kernel: uid_valid).
_NO_USER = (1 << 32) - 1


def _faulty_nodes(context: Context) -> tuple[list[_FaultyNode], list[_FaultyNode], list[Finding]]:
    """Return the missing nodes, the nodes that must be replaced, and the failures of vendors' code."""
    missing: list[_FaultyNode] = []
    wrong: list[_FaultyNode] = []
    failed: list[Finding] = []
    failures = {name: error.kind for name, error in context.failures.items() if context.concerns(name)}
    if not _found(context) and not _NODE_KINDS.intersection(failures.values()):
        return [], [], []
    for name in filter(context.concerns, context.request.vendors):
        vendor, is_lost = registry.load(name), failures.get(name) in _LOST_KINDS
        where = context.request.discovery_context
        # The checks of the driver report an unreadable list of GPUs, which is a HostError.
        with registry.reporting(name, failed), suppress(HostError):
            missing += [(node, is_lost or _is_needed(context, node)) for node in vendor.missing_nodes(where)]
            wrong += [(node, is_lost or _is_needed(context, node)) for node in vendor.wrong_nodes(where)]
    return missing, wrong, failed


def _found(context: Context) -> tuple[Finding, ...]:
    """Return the discovery's findings about device nodes."""
    return tuple(
        finding
        for inventory in context.inventories.values()
        if context.concerns(inventory.vendor)
        for finding in inventory.findings
        if finding.rule in NODE_RULES
    )


def _missing(context: Context) -> Iterator[CheckResult]:
    """Report the nodes that do not exist."""
    missing, wrong, failed = _faulty_nodes(context)
    yield from (TOPIC.finding(MISSING, finding) for finding in failed)
    findings = [finding for finding in _found(context) if finding.severity != "info"]
    known = [node.host_path for node, _ in (*missing, *wrong)]
    # The findings with the severity info are about nodes that containers do not need, or that belong to other
    # containers of the host.
    unneeded = {finding.path for finding in _found(context) if finding.severity == "info"}
    needed = [node for node, is_needed in missing if is_needed and node.host_path not in unneeded]
    named = {finding.path for finding in findings}
    optional = [node for node, _ in missing if node not in needed and node.host_path in named]
    for nodes, is_error in ((needed, True), (optional, False)):
        if nodes:
            text = f"{_paths(nodes)}: missing device node{'' if len(nodes) == 1 else 's'} of a loaded driver"
            made = _make(context, nodes)
            step = at_boot(context) if made else f"; {GUEST_STEP}"
            yield TOPIC.failed(MISSING, f"{text}{step}", made, is_error=is_error)
    for finding in findings:
        if finding.path not in known and not any(path in finding.message for path in known):
            yield _unexplained(context, finding, is_error=finding.severity == "error")
    if not needed and not wrong:
        for name, error in context.failures.items():
            if error.kind == "no-nodes" and context.concerns(name):
                yield _unexplained(context, error, is_error=True)
    if context.nodes:
        yield TOPIC.passed(MISSING, f"{len(context.nodes)} device nodes exist")


def _is_needed(context: Context, node: HostNode) -> bool:
    is_serious = any(f.severity == "error" and f.path == node.host_path for f in _found(context))
    return is_serious or node.role in {"gpu", "control", "capability", "uvm"}


def _unexplained(context: Context, problem: Finding | HostError, *, is_error: bool) -> CheckResult:
    """Return the result for PROBLEM, which concerns nodes with unknown device numbers.

    If the hint is cdigen's own command, the result has this command as the remedy. The command finds the
    numbers of nodes that the kernel does not create.
    """
    if problem.hint == RUN_AS_ROOT:
        return TOPIC.skipped(MISSING, with_hint(problem))
    command = node_remedy(context.host, context.request.discovery_context.dev)
    why = "load the driver's further modules and create its device nodes"
    made = (Remedy(argv=tuple(shlex.split(command)), why=why),) if problem.hint == command else ()
    step = at_boot(context) if made else ""
    return TOPIC.failed(MISSING, f"{with_hint(problem)}{step}", made, is_error=is_error)


def _wrong(context: Context) -> Iterator[CheckResult]:
    """Report nodes with wrong numbers, and paths that are not device nodes."""
    _, wrong, _ = _faulty_nodes(context)
    if not wrong:
        if context.nodes:
            yield TOPIC.passed(WRONG, "all nodes have the numbers of the kernel")
        return
    nodes = [node for node, _ in wrong]
    texts = [f"{one.host_path}: {_state(context, one)}, must be {one.major}:{one.minor}" for one in nodes]
    # A directory with files is not removed, because its owner is unknown.
    replaced = [node for node in nodes if not _is_full(context, node)]
    made = _make(context, replaced)
    remedies = (*_remove(context, replaced), *made) if made else ()
    step = f"; {GUEST_STEP}" if replaced and not made else ""
    is_error = any(is_needed for _, is_needed in wrong)
    yield TOPIC.failed(WRONG, f"{listed(texts, separator='; ')}{step}", remedies, is_error=is_error)


def _remove(context: Context, nodes: Iterable[HostNode]) -> Iterator[Remedy]:
    """Yield the commands that remove NODES; a directory is removed only if it is empty.

    Container engines can create an empty directory at the path of a node.
    """
    for path in (node.host_path for node in nodes):
        is_folder = os.path.isdir(context.outer(path)) and not os.path.islink(context.outer(path))
        command = ("rmdir",) if is_folder else ("rm", "-f")
        yield file_command("remove the path of the node", *command, context.outer(path))


def _is_full(context: Context, node: HostNode) -> bool:
    return bool(context.host.names(node.host_path))


def _state(context: Context, node: HostNode) -> str:
    try:
        status = context.host.stat(node.host_path)
    except OSError:
        return "unreadable"
    if _is_full(context, node):
        return "a directory that is not empty"
    if not stat.S_ISCHR(status.st_mode):
        return "not a character device"
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _make(context: Context, nodes: Iterable[HostNode]) -> tuple[Remedy, ...]:
    """Return the commands that create NODES with the numbers of the kernel; empty if mknod cannot work."""
    if not may_create_nodes(context.host):
        return ()
    folders = dict.fromkeys(node.host_path.rpartition("/")[0] for node in nodes)
    made = [
        file_command("create the folder of the nodes", "mkdir", "-p", context.outer(folder))
        for folder in folders
        if not context.host.exists(folder)
    ]
    for node in nodes:
        path, numbers = context.outer(node.host_path), (str(node.major), str(node.minor))
        command = ("mknod", "-m", f"{node.mode:04o}", path, "c", *numbers)
        made.append(Remedy(argv=command, why="create the node with the kernel's numbers"))
        if node.uid or node.gid:
            made.append(file_command("set the owner of the node", "chown", f"{node.uid}:{node.gid}", path))
    return tuple(made)


def _paths(nodes: list[HostNode]) -> str:
    return listed(node.host_path for node in nodes)


def _access(context: Context) -> Iterator[CheckResult]:
    """Report the nodes that the user may not open, and the nodes that only the user's groups open."""
    user = context.user
    yield from _unmapped(context)
    if user is None:
        yield from _container_groups(context)
        return
    if not (nodes := _mapped(context)):
        return
    closed = [node for node in nodes if not may_use(context.host, node.host_path, user.reader())]
    if closed:
        yield _closed(context, user, closed)
        yield from _groups(context, user, closed)
        return
    text = f"{user.name} may open all {len(nodes)} nodes"
    stranger = Reader(uid=_NO_USER, gids=user.gids)
    others = [node for node in nodes if node.uid != user.uid]
    by_list = [node for node in others if not may_use(context.host, node.host_path, stranger)]
    if by_list:
        text += (
            f"; {_paths(by_list)}: by an entry for this user in the access list (see getfacl), which "
            "systemd-logind removes at the end of a local session"
        )
    yield TOPIC.passed(ACCESS, text)
    yield from _groups(context, user, closed)


def _unmapped(context: Context) -> Iterator[CheckResult]:
    """Report the nodes whose group is not a group of this container."""
    if nodes := [node for node in context.nodes if has_unmapped_group(context.host, node)]:
        text = (
            f"{_paths(nodes)}: the user namespace of this container does not have the group of the node: no "
            "process can join the group; the host must pass the node with a group of this container (gid)"
        )
        yield TOPIC.warning(GROUPS, text)


def _mapped(context: Context) -> list[HostNode]:
    return [node for node in context.nodes if not has_unmapped_group(context.host, node)]


def _container_groups(context: Context) -> Iterator[CheckResult]:
    """Report the nodes that processes of containers open only as root, or as members of a group."""
    stranger = Reader(uid=_NO_USER, gids=())
    nodes = [node for node in _mapped(context) if not may_use(context.host, node.host_path, stranger)]
    options = _group_options(context, nodes)
    if options:
        names = ", ".join(filter(None, _group_names(context, nodes)))
        text = f"{_paths(nodes)}: only root and the groups {names} may open the nodes"
        yield TOPIC.passed(GROUPS, f"{text}: processes of other users in containers need '{options}'")


def _group_options(context: Context, nodes: list[HostNode]) -> str:
    """Return the options by which containers get the groups of NODES that no spec adds."""
    added = {gid for spec in context.specs if spec.is_used for gid in spec.edits("additionalGids")}
    return " ".join(f"--group-add {gid}" for gid in _group_ids(context, nodes) if gid and gid not in added)


def _groups(context: Context, user: User, closed: list[HostNode]) -> Iterator[CheckResult]:
    """Report the nodes, without those in CLOSED, that the user opens only as a member of further groups."""
    alone = Reader(uid=user.uid, gids=(user.gid,))
    nodes = [
        node
        for node in _mapped(context)
        if node not in closed and not may_use(context.host, node.host_path, alone)
    ]
    if not nodes:
        return
    names = ", ".join(_group_names(context, nodes))
    text = f"{_paths(nodes)}: only the groups {names} may open the nodes"
    if _has_rootless_docker(context):
        text += f": {_LOSS}; permanent fix: a udev rule that sets OWNER, for containers that run as root"
        yield TOPIC.warning(GROUPS, text, _add_entry(context, user, nodes))
    elif loser := _runtime_without_groups(context):
        text += (
            f": podman's rootless containers lose these groups, because podman uses {shown(loser)}: install "
            "crun, set 'runtime = \"crun\"' below [engine] in containers.conf, and use 'podman run "
            "--group-add keep-groups'"
        )
        yield TOPIC.warning(GROUPS, text)
    else:
        text += ": rootless containers keep groups with crun and 'podman run --group-add keep-groups'"
        if options := _group_options(context, nodes):
            text += f"; processes that are not root in containers of rootful engines need '{options}'"
        yield TOPIC.passed(GROUPS, text)


def _closed(context: Context, user: User, closed: list[HostNode]) -> CheckResult:
    """Return the failure for the nodes in CLOSED, which the user may not open."""
    is_error = any(not node.capabilities or "compute" in node.capabilities for node in closed)
    only_docker = _has_rootless_docker(context) and "podman" not in context.installed
    text = f"{user.name} may not open {_paths(closed)}"
    names = _group_names(context, closed)
    if all(names) and not only_docker:
        groups = ",".join(names)
        text += (
            f", but members of the groups {groups} may (log in again after joining; rootless containers keep "
            "groups with crun and 'podman run --group-add keep-groups')"
        )
        join = ("usermod", "--append", "--groups", groups, user.name)
        remedy = Remedy(argv=join, why="join the groups that may open the nodes")
        return TOPIC.failed(ACCESS, text, (remedy,), is_error=is_error)
    text += f"; {_LOSS}" if only_docker else ""
    text += f"; permanent fix: {_permanent_fix(context, closed, only_docker=only_docker)}"
    if only_docker and (entries := _add_entry(context, user, closed)):
        return TOPIC.failed(ACCESS, text, entries, is_error=is_error)
    command = ("chmod", "0666", *(context.outer(node.host_path) for node in closed))
    remedy = file_command("let every user open the nodes", *command)
    return TOPIC.failed(ACCESS, text, (remedy,), is_error=is_error)


def _has_rootless_docker(context: Context) -> bool:
    """Return whether a rootless dockerd of the user is examined; its containers keep no additional groups."""
    return any(one.name == "docker" and one.settings.rootless for one in context.runtimes)


def _runtime_without_groups(context: Context) -> str:
    """Return the OCI runtime of the user's podman if it is not crun, the only one that keeps groups, else "".

    Without a setting, podman uses runc if crun is not installed (containers.conf(5), ``runtime``).
    """
    for one in context.runtimes:
        if one.name == "podman" and one.settings.rootless:
            configured = one.settings.default_oci_runtime
            if configured:
                return "" if configured.rpartition("/")[2] in _KEEP_GROUPS else configured
            return "runc" if place(context.host, "runc") and not place(context.host, "crun") else ""
    return ""


def _add_entry(context: Context, user: User, nodes: list[HostNode]) -> tuple[Remedy, ...]:
    """Return the command that lets the user open NODES by an access list; empty without setfacl."""
    if not context.host.exists(_SETFACL):
        return ()
    paths = (context.outer(node.host_path) for node in nodes)
    command = ("setfacl", "--modify", f"user:{user.uid}:rw", *paths)
    return (file_command(f"let {user.name} open the nodes until they are created again", *command),)


def _permanent_fix(context: Context, closed: list[HostNode], *, only_docker: bool) -> str:
    """Return the setting that permanently lets the user open the nodes in CLOSED.

    The setting belongs to the vendor's module. If the kernel creates the nodes, it belongs to udev.
    """
    for known in filter(None, map(registry.remedies, context.inventories)):
        if known.node_mode and any(node.host_path.startswith(known.node_prefix) for node in closed):
            return known.node_mode
    return (
        "a udev rule that sets OWNER" if only_docker else "assign them to the group render with a udev rule"
    )


def _group_names(context: Context, nodes: Iterable[HostNode]) -> list[str]:
    """Return for each group that may open one of NODES its name; "" for nodes that no group may open."""
    groups = _group_ids(context, nodes)
    names = {number: name for name, _, number, *_ in rows(context.host, "/etc/group", 3)}
    return [names.get(str(gid), str(gid)) if gid else "" for gid in groups]


def _group_ids(context: Context, nodes: Iterable[HostNode]) -> list[int]:
    """Return for each group that may open one of NODES its number; 0 for nodes that no group may open."""
    return sorted({next(filter(None, groups_with_access(context.host, node.host_path)), 0) for node in nodes})


def _links(context: Context) -> Iterator[CheckResult]:
    """Report nodes without a link in /dev/char, where systemd finds the devices of containers.

    Without the link, containers lose their GPUs after daemon-reload (runc issue 3708,
    nvidia-container-toolkit issue 48).
    """
    if not context.nodes:
        return
    if not context.host.exists(_SYSTEMD):
        yield TOPIC.passed(LINKS, "systemd does not run: /dev/char is not needed")
        return
    lost = [node for node in context.nodes if not _is_linked(context, node)]
    if not lost:
        yield TOPIC.passed(LINKS, "all nodes have links in /dev/char for systemd")
        return
    links = [file_command("create the folder", "mkdir", "-p", context.outer("/dev/char"))]
    for node in lost:
        link = context.outer(f"/dev/char/{node.major}:{node.minor}")
        target = f"../{node.host_path.removeprefix('/dev/')}"
        links.append(file_command("link the node for systemd", "ln", "-sfn", target, link))
    text = (
        f"{_paths(lost)}: no link in /dev/char: containers whose cgroups systemd manages lose access at the "
        f"next 'systemctl daemon-reload'{at_boot(context, is_by_module=False)}"
    )
    yield TOPIC.warning(LINKS, text, tuple(links), because=CAUSES)


def _is_linked(context: Context, node: HostNode) -> bool:
    try:
        status = context.host.stat(f"/dev/char/{node.major}:{node.minor}")
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(node.major, node.minor)


CHECKS = (_missing, unloaded_modules, _wrong, _access, _links)
