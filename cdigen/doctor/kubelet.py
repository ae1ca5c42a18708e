"""Checks of a node of Kubernetes: its kubelet, that one's folder, and ``cdigen kubelet`` as a service.

docs/kubernetes-questions.md has the question that each of them answers. What concerns devices and the runtime
is in ``kubelet_devices`` and ``kubelet_runtime``.
"""

from __future__ import annotations

import os
import posixpath
import re

from cdigen.doctor.kubelet_node import SOCKET
from cdigen.doctor.others import is_enabled
from cdigen.doctor.processes import are_hidden
from cdigen.doctor.result import Remedy, Topic, listed
from cdigen.doctor.security import enforces, label
from cdigen.frontend.status import owner_of
from cdigen.host.root import reason, shown
from cdigen.runtimes.daemon_service import KUBELET_UNIT as UNIT
from cdigen.runtimes.units import SYSTEM_FOLDERS, command, unit_values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

    Check = Callable[[Context], Iterator[CheckResult]]

TOPIC = Topic(name="kubelet")
KUBELET, DIRECTORY, LISTENS = "kubelet-running", "kubelet-directory", "kubelet-socket"
PLUGIN, ORDER, LABELS = "kubelet-plugin", "kubelet-unit", "kubelet-labels"
# The checks that explain why resources are not registered.
REACHED = (KUBELET, DIRECTORY, LISTENS, PLUGIN)
# What the kubelet sets, for plugins that are pods (kubernetes pkg/kubelet/config, defaults.go).
_LABEL = "container_file_t"
# A path that is the same in a unit file, in C and in a shell.
_SIMPLE = re.compile(r"/[A-Za-z0-9/._-]+")
_OWN_FOLDER, _OWN_ORDER = "kubelet-dir.conf", "before.conf"
# What the unit may write to.
_WRITABLE = "/var/lib/"
# What ProtectHome= hides from it (systemd.exec(5)).
_HOMES = ("/home/", "/root/", "/run/user/")
_DROP_INS = f"/etc/systemd/system/{UNIT}.d"
_NO_DEVICES = "pods get no devices by resource"


def see(text: str, question: int) -> str:
    """Return TEXT with the place where the documentation answers the question."""
    return f"{text} (docs/kubernetes-questions.md, {question})"


def is_set_up(context: Context) -> bool:
    """Return whether ``cdigen kubelet`` runs here, has ended, or is to be started."""
    return context.node.status is not None or bool(context.node.problem) or is_enabled(context, UNIT)


def is_missed(context: Context) -> bool:
    """Return whether pods lack ``cdigen kubelet``: it is set up, or nothing else gives them devices."""
    return is_set_up(context) or not (context.node.is_hidden or context.node.rivals)


def is_wanted(context: Context) -> bool:
    """Return whether Kubernetes is to be examined: it was asked for, or all is, and we serve it."""
    request = context.request
    return request.for_kubelet or (not request.runtimes and is_set_up(context))


def for_nodes(check: Check) -> Check:
    """Return CHECK as one that is made only where Kubernetes matters."""

    def made(context: Context) -> Iterator[CheckResult]:
        if is_wanted(context):
            yield from check(context)

    return made


def _running(context: Context) -> Iterator[CheckResult]:
    """Report which kubelet there is."""
    node, kubelet = context.node, context.node.kubelet
    if (kubelet is None or kubelet.began_s is None) and node.is_live and are_hidden():
        yield TOPIC.unchecked(KUBELET, "only root may see which processes run here")
        return
    if kubelet is None:
        text = (
            "there is no kubelet: none runs, and no unit of Kubernetes, k3s, RKE2, k0s or MicroK8s starts one"
        )
        yield TOPIC.error(KUBELET, see(text, 1)) if node.is_live else TOPIC.unchecked(KUBELET, text)
        return
    name = kubelet.distribution.name
    if kubelet.began_s is None and node.is_live:
        start = Remedy(argv=("systemctl", "restart", kubelet.unit), why="start the kubelet")
        yield TOPIC.error(KUBELET, see(f"no kubelet runs, though {kubelet.unit} starts one", 1), (start,))
    elif not node.is_live:
        yield TOPIC.unchecked(KUBELET, f"the host is a folder; {kubelet.unit} starts a kubelet")
    else:
        release = f" {'.'.join(map(str, node.release))}" if node.release else ""
        yield TOPIC.good(KUBELET, f"{name}{release} is running, with its folder {shown(kubelet.root_dir)}")
    for problem in kubelet.problems:
        text = f"the kubelet's configuration was not read, and its defaults taken: {problem}"
        yield TOPIC.unchecked("kubelet-config", text)


def _directory(context: Context) -> Iterator[CheckResult]:
    """Report whether we and the kubelet mean the same folder."""
    node, kubelet = context.node, context.node.kubelet
    if kubelet is None or not is_missed(context):
        return
    ours, theirs = node.our_folder, kubelet.root_dir
    if _same(context, ours, theirs):
        yield TOPIC.good(DIRECTORY, f"cdigen kubelet uses the kubelet's own folder, {shown(theirs)}")
        return
    do_meet = _same(context, node.plugins_of(ours), node.plugins)
    lacks = "it does not know which containers have which devices" if do_meet else _NO_DEVICES
    text = f"the kubelet's folder is {shown(theirs)}, and cdigen kubelet uses {shown(ours)}: {lacks}"
    tell = TOPIC.warning if do_meet else TOPIC.error
    yield tell(DIRECTORY, see(f"{text}; it wants --kubelet-dir {shown(theirs)}", 2), _use(context, theirs))


def _same(context: Context, one: str, other: str) -> bool:
    try:
        # The status has a path of this machine.
        outer = context.host.outer
        inner = one.removeprefix(outer) if outer and one.startswith(f"{outer}/") else one
        if context.host.resolve_new(inner) == context.host.resolve_new(other):
            return True
        # One may be a mount of the other.
        return os.path.samestat(context.host.stat(inner), context.host.stat(other))
    except OSError:
        return one == other


def _use(context: Context, folder: str) -> tuple[Remedy, ...]:
    """Return the commands by which the unit uses the kubelet's FOLDER, nothing without a unit."""
    line = command(context.host, UNIT)
    program = line.program
    usual = " ".join(("kubelet", *(f"--kubelet-dir {each}" for each in line.values("--kubelet-dir"))))
    given = " ".join(word for word in line.words if word != "--standby")
    if given.replace("--kubelet-dir=", "--kubelet-dir ") != usual:
        return ()  # it has options of somebody's own
    if context.host.exists(f"{_DROP_INS}/{_OWN_FOLDER}"):
        return ()  # somebody has written one
    if not _SIMPLE.fullmatch(folder) or not _SIMPLE.fullmatch(program):
        return ()
    lines = ["[Service]", "ExecStart=", f"ExecStart={program} kubelet --standby --kubelet-dir {folder}"]
    if not folder.startswith(_WRITABLE):
        above = posixpath.dirname(folder)
        lines.append(f"ReadWritePaths={folder if above == '/' else above}")
    if folder.startswith(_HOMES):
        lines.append("ProtectHome=no")
    return _drop_in(_OWN_FOLDER, *lines)


def _drop_in(name: str, *lines: str) -> tuple[Remedy, ...]:
    """Return the commands that add LINES, which need no quotes, to our unit and restart it."""
    text = "".join(f"{line}\\n" for line in lines)
    script = f'mkdir -p {_DROP_INS} && printf "{text}" >{_DROP_INS}/{name}'
    return (
        Remedy(argv=("sh", "-c", script), why=f"write the drop-in {_DROP_INS}/{name}"),
        Remedy(argv=("systemctl", "daemon-reload"), why="systemd reads it"),
        Remedy(argv=("systemctl", "restart", UNIT), why="the device plugins start with it"),
    )


def _has_unit(context: Context) -> bool:
    return any(context.host.exists(f"{folder}/{UNIT}") for folder in SYSTEM_FOLDERS)


def _socket(context: Context) -> Iterator[CheckResult]:
    """Report whether the folder of sockets and the kubelet's own socket are as they should be."""
    node = context.node
    if node.kubelet is None:
        return
    folder, path = node.plugins, f"{node.plugins}/{SOCKET}"
    if node.is_hidden:
        yield TOPIC.unchecked(LISTENS, f"only root may look into {shown(folder)}")
        return
    try:
        context.host.listdir(folder)
    except OSError as error:
        text = f"{shown(folder)}: {reason(error)}: the kubelet makes it when it starts"
        yield TOPIC.error(LISTENS, see(text, 3), _restart(context), because=(KUBELET,))
        return
    found = node.socket
    if found is None:
        text = f"{shown(path)} is not there: no device plugin can register"
        yield TOPIC.error(LISTENS, see(text, 3), _restart(context), because=(KUBELET,))
    elif found.kind != "socket":
        text = f"{shown(path)} is a {found.kind}, where the kubelet has a socket"
        yield TOPIC.error(LISTENS, see(text, 3), _restart(context))
    elif found.is_served is False:
        text = f"no process listens at {shown(path)}: the kubelet has ended, or serves another folder"
        yield TOPIC.error(LISTENS, see(text, 3), _restart(context), because=(KUBELET,))
    elif found.is_served is None:
        yield TOPIC.unchecked(
            LISTENS, f"{shown(path)} is there; only root may connect to it, on its own machine"
        )
    else:
        yield TOPIC.good(LISTENS, f"the kubelet listens at {shown(path)}")


def _restart(context: Context) -> tuple[Remedy, ...]:
    unit = context.node.kubelet.unit if context.node.kubelet else ""
    why = "the kubelet makes folder and socket anew; pods go on"
    return (Remedy(argv=("systemctl", "restart", unit), why=why),) if unit and context.is_live else ()


def _plugin(context: Context) -> Iterator[CheckResult]:
    """Report whether ``cdigen kubelet`` runs."""
    node, enabled = context.node, is_enabled(context, UNIT)
    start = Remedy(argv=("systemctl", "restart", UNIT), why="start cdigen's device plugins")
    is_there = _has_unit(context)
    if node.status is not None:
        state = shown(f"{node.status.get('state')}, since {node.status.get('since')}")
        by = f" ({owner})" if (owner := owner_of(node.status)) else ""
        yield TOPIC.good(PLUGIN, f"cdigen kubelet is running{by}: {state}")
    elif not context.is_live:
        yield TOPIC.unchecked(PLUGIN, "the host is a folder")
    elif node.problem:
        text = f"cdigen kubelet is not running: {shown(node.problem)}; {_NO_DEVICES}"
        yield TOPIC.error(PLUGIN, see(text, 4), (start,) if is_there else ())
    elif enabled:
        text = f"cdigen kubelet is enabled and not running: {_NO_DEVICES}"
        yield TOPIC.error(PLUGIN, see(text, 4), (start,))
    elif context.request.for_kubelet and node.rivals:
        others = shown(listed(one.told for one in node.rivals))
        yield TOPIC.good(PLUGIN, f"cdigen kubelet is not set up; pods get devices by {others}")
    elif context.request.for_kubelet and node.is_hidden:
        text = "cdigen kubelet is not set up; whether another device plugin is there, only root may see"
        yield TOPIC.unchecked(PLUGIN, text)
    elif context.request.for_kubelet:
        text = f"cdigen kubelet is not set up: {_NO_DEVICES}"
        enable = Remedy(argv=("systemctl", "enable", "--now", UNIT), why="start it, now and at each boot")
        by_hand = (
            "" if is_there else "; start 'cdigen kubelet' as root: no service of its own is installed here"
        )
        yield TOPIC.error(
            PLUGIN, see(f"{text}{by_hand}", 4), (enable,) if is_there else (), because=(KUBELET,)
        )
    else:
        yield TOPIC.good(PLUGIN, f"cdigen kubelet is not set up: {_NO_DEVICES} of cdigen's")


def _unit(context: Context) -> Iterator[CheckResult]:
    """Report whether the service starts at boot, and before the kubelet."""
    kubelet = context.node.kubelet
    if kubelet is None or not _has_unit(context) or not is_missed(context):
        return
    if owner_of(context.node.status or {}).startswith("pod "):
        return
    if not is_enabled(context, UNIT):
        text = f"{UNIT} is not enabled: after a reboot {_NO_DEVICES}"
        enable = Remedy(argv=("systemctl", "enable", UNIT), why="start it at each boot")
        yield TOPIC.warning(ORDER, see(text, 5), (enable,), because=(PLUGIN,))
        return
    unit = kubelet.unit
    before = unit in unit_values(context.host, UNIT, "Before")
    if not unit or before or UNIT in unit_values(context.host, unit, "After"):
        yield TOPIC.good(ORDER, f"{UNIT} is enabled{f' and starts before {unit}' if unit else ''}")
        return
    text = (
        f"{UNIT} is not ordered before {unit}: after a reboot pods may be admitted before their devices are "
        "registered, and are refused for good"
    )
    is_free = not context.host.exists(f"{_DROP_INS}/{_OWN_ORDER}") and _SIMPLE.fullmatch(f"/{unit}")
    remedies = _drop_in(_OWN_ORDER, "[Unit]", f"Before={unit}") if is_free else ()
    yield TOPIC.warning(ORDER, see(text, 5), remedies)


def _labels(context: Context) -> Iterator[CheckResult]:
    """Report whether SELinux lets plugins that are pods use the folder; ours is none."""
    node = context.node
    if node.kubelet is None or not enforces(context) or not context.host.exists(node.plugins):
        return
    found = label(context, node.plugins)
    if found in {"", _LABEL}:
        yield TOPIC.good(LABELS, f"{shown(node.plugins)} has the label that the kubelet gives it")
        return
    text = f"SELinux: {shown(node.plugins)} is labelled {shown(found)}, where the kubelet sets {_LABEL}"
    path = context.outer(node.plugins)
    yield TOPIC.warning(
        LABELS,
        see(text, 20),
        (Remedy(argv=("chcon", "-t", _LABEL, path), why="label it as the kubelet does"),),
    )


CHECKS = (
    *map(for_nodes, (_running, _directory, _socket)),
    _plugin,
    *map(for_nodes, (_unit, _labels)),
)
