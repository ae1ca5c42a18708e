"""Checks of a Kubernetes node: the kubelet, its folder, and the service ``cdigen kubelet``.

docs/how-to/kubernetes/troubleshoot.md has the problems that the checks report. ``devices`` and ``runtime``
contain the checks of the devices and of the runtime.
"""

from __future__ import annotations

import os
import posixpath
import re

from cdigen import page_url
from cdigen.doctor.checks.configuration import CONFIGURATION
from cdigen.doctor.checks.selinux import enforces, label
from cdigen.doctor.kubernetes_node.node import SOCKET
from cdigen.doctor.processes import are_hidden
from cdigen.doctor.result import Remedy, Topic, listed
from cdigen.host.root import reason, shown
from cdigen.runtimes.daemon_service import KUBELET_UNIT as UNIT
from cdigen.runtimes.units import command, has_unit, is_enabled, unit_values
from cdigen.service.status import instance_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult

    Check = Callable[[Context], Iterator[CheckResult]]

TOPIC = Topic(name="kubelet")
KUBELET, DIRECTORY, LISTENS = "kubelet-running", "kubelet-directory", "kubelet-socket"
PLUGIN, ORDER, LABELS = "kubelet-plugin", "kubelet-unit", "kubelet-labels"
# The checks whose failures explain unregistered resources.
REACHED = (KUBELET, DIRECTORY, LISTENS, PLUGIN)
# The SELinux label that the kubelet sets for plugins in pods (kubernetes pkg/kubelet/config, defaults.go).
_LABEL = "container_file_t"
# A path that needs no quotes in a unit file, in a format of printf(1), and in a shell command.
_SIMPLE = re.compile(r"/[A-Za-z0-9/._-]+")
_OWN_FOLDER, _OWN_ORDER = "kubelet-dir.conf", "before.conf"
# The unit may write below this folder.
_WRITABLE = "/var/lib/"
# The folders that ProtectHome= hides from the unit (systemd.exec(5)).
_HOMES = ("/home/", "/root/", "/run/user/")
_DROP_INS = f"/etc/systemd/system/{UNIT}.d"
_NO_DEVICES = "pods that request a resource get no devices"


def see(text: str) -> str:
    """Return TEXT with a reference to the documentation of problems in Kubernetes."""
    return f"{text} ({page_url('how-to/kubernetes/troubleshoot')})"


def is_set_up(context: Context) -> bool:
    """Return whether ``cdigen kubelet`` is running, has ended, or is enabled on this node."""
    return context.node.status is not None or bool(context.node.problem) or is_enabled(context.host, UNIT)


def is_needed(context: Context) -> bool:
    """Return whether the service is set up, or needed because no other program advertises devices."""
    return is_set_up(context) or not (context.node.is_hidden or context.node.competing_plugins)


def is_examined(context: Context) -> bool:
    """Return whether Kubernetes is requested, or the whole host is requested and the service is set up."""
    request = context.request
    return request.for_kubelet or (request.concerns() and is_set_up(context))


def for_nodes(check: Check) -> Check:
    """Return CHECK as a check that runs only if ``is_examined`` is true."""

    def check_node(context: Context) -> Iterator[CheckResult]:
        if is_examined(context):
            yield from check(context)

    return check_node


def _running(context: Context) -> Iterator[CheckResult]:
    """Report whether the kubelet of the node is running."""
    node, kubelet = context.node, context.node.kubelet
    if (kubelet is None or kubelet.began_s is None) and context.is_live and are_hidden():
        yield TOPIC.skipped(KUBELET, "only root may list the processes of this machine")
        return
    if kubelet is None:
        text = "no kubelet runs, and no unit of Kubernetes, k3s, RKE2, k0s or MicroK8s starts one"
        yield TOPIC.error(KUBELET, see(text)) if context.is_live else TOPIC.skipped(KUBELET, text)
        return
    name = kubelet.distribution.name
    if kubelet.began_s is None and context.is_live:
        start = Remedy(argv=("systemctl", "restart", kubelet.unit), why="start the kubelet")
        yield TOPIC.error(KUBELET, see(f"no kubelet runs, although {kubelet.unit} starts one"), (start,))
    elif not context.is_live:
        yield TOPIC.needs_system(KUBELET)
    else:
        release = f" {'.'.join(map(str, node.release))}" if node.release else ""
        yield TOPIC.passed(KUBELET, f"{name}{release} is running, with the folder {shown(kubelet.root_dir)}")
    for problem in kubelet.problems:
        text = f"the kubelet's configuration is not readable, its defaults are assumed: {problem}"
        yield TOPIC.skipped("kubelet-config", text)


def _directory(context: Context) -> Iterator[CheckResult]:
    """Report whether cdigen kubelet and the kubelet use the same folder."""
    node, kubelet = context.node, context.node.kubelet
    if kubelet is None or not is_needed(context):
        return
    own, folder = node.our_folder, kubelet.root_dir
    if _same(context, own, folder):
        yield TOPIC.passed(DIRECTORY, f"cdigen kubelet uses the kubelet's own folder, {shown(folder)}")
        return
    do_match = _same(context, node.plugins_of(own), node.plugins)
    effect = "cdigen kubelet cannot read which containers use which devices" if do_match else _NO_DEVICES
    text = f"the kubelet's folder is {shown(folder)}, but cdigen kubelet uses {shown(own)}: {effect}"
    fail = TOPIC.warning if do_match else TOPIC.error
    yield fail(DIRECTORY, see(f"{text}; set --kubelet-dir {shown(folder)}"), _use(context, folder))


def _same(context: Context, one: str, other: str) -> bool:
    try:
        # A path in the status is a path of this machine.
        outer = context.host.outer
        inner = one.removeprefix(outer) if outer and one.startswith(f"{outer}/") else one
        if context.host.resolve_new(inner) == context.host.resolve_new(other):
            return True
        # One folder may be a mount of the other folder.
        return os.path.samestat(context.host.stat(inner), context.host.stat(other))
    except OSError:
        return one == other


def _use(context: Context, folder: str) -> tuple[Remedy, ...]:
    """Return the commands that make the unit use the kubelet's FOLDER; empty if no command is safe."""
    line = command(context.host, UNIT)
    program = line.program
    usual = " ".join(("kubelet", *(f"--kubelet-dir {each}" for each in line.values("--kubelet-dir"))))
    present = " ".join(word for word in line.words if word != "--standby")
    if present.replace("--kubelet-dir=", "--kubelet-dir ") != usual:
        return ()  # an administrator has changed the options
    if context.host.exists(f"{_DROP_INS}/{_OWN_FOLDER}"):
        return ()  # a drop-in exists already
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
    """Return the commands that write LINES to a drop-in and restart the unit; LINES must need no quotes."""
    text = "".join(f"{line}\\n" for line in lines)
    script = f'mkdir -p {_DROP_INS} && printf "{text}" >{_DROP_INS}/{name}'
    return (
        Remedy(argv=("sh", "-c", script), why=f"write the drop-in {_DROP_INS}/{name}"),
        Remedy(argv=("systemctl", "daemon-reload"), why="make systemd read the drop-in"),
        Remedy(argv=("systemctl", "restart", UNIT), why="restart the device plugins"),
    )


def _socket(context: Context) -> Iterator[CheckResult]:
    """Report whether the folder of sockets exists, and whether the kubelet listens on its socket."""
    node = context.node
    if node.kubelet is None:
        return
    folder, path = node.plugins, f"{node.plugins}/{SOCKET}"
    if node.is_hidden:
        yield TOPIC.skipped(LISTENS, f"only root may list {shown(folder)}")
        return
    try:
        context.host.listdir(folder)
    except OSError as error:
        text = f"{shown(folder)}: {reason(error)}; the kubelet creates the folder at its start"
        yield TOPIC.error(LISTENS, see(text), _restart(context), because=(KUBELET,))
        return
    found = node.socket
    if found is None:
        text = f"{shown(path)} does not exist: no device plugin can register"
        yield TOPIC.error(LISTENS, see(text), _restart(context), because=(KUBELET,))
    elif found.kind != "socket":
        text = f"{shown(path)} is a {found.kind}, not the kubelet's socket"
        yield TOPIC.error(LISTENS, see(text), _restart(context))
    elif found.is_served is False:
        text = f"no process listens on {shown(path)}: the kubelet has ended, or uses another folder"
        yield TOPIC.error(LISTENS, see(text), _restart(context), because=(KUBELET,))
    elif found.is_served is None:
        yield TOPIC.skipped(LISTENS, f"only root on the kubelet's machine may connect to {shown(path)}")
    else:
        yield TOPIC.passed(LISTENS, f"the kubelet listens on {shown(path)}")


def _restart(context: Context) -> tuple[Remedy, ...]:
    unit = context.node.kubelet.unit if context.node.kubelet else ""
    why = "make the kubelet create the folder and the socket again; pods continue"
    return (Remedy(argv=("systemctl", "restart", unit), why=why),) if unit and context.is_live else ()


def _plugin(context: Context) -> Iterator[CheckResult]:
    """Report whether ``cdigen kubelet`` runs."""
    if not context.request.for_kubelet and not context.request.concerns():
        return
    node, enabled = context.node, is_enabled(context.host, UNIT)
    start = Remedy(argv=("systemctl", "restart", UNIT), why="start cdigen's device plugins")
    is_installed = has_unit(context.host, UNIT)
    if node.status is not None:
        state = shown(f"{node.status.get('state')}, since {node.status.get('since')}")
        by = f" ({instance})" if (instance := instance_of(node.status)) else ""
        yield TOPIC.passed(PLUGIN, f"cdigen kubelet is running{by}: {state}")
    elif not context.is_live:
        yield TOPIC.needs_system(PLUGIN)
    elif node.problem:
        text = f"cdigen kubelet is not running: {shown(node.problem)}; {_NO_DEVICES}"
        yield TOPIC.error(PLUGIN, see(text), (start,) if is_installed else (), (CONFIGURATION,))
    elif enabled:
        text = f"cdigen kubelet is enabled but not running: {_NO_DEVICES}"
        yield TOPIC.error(PLUGIN, see(text), (start,), (CONFIGURATION,))
    elif context.request.for_kubelet and node.competing_plugins:
        others = shown(listed(one.description for one in node.competing_plugins))
        yield TOPIC.passed(PLUGIN, f"cdigen kubelet is not set up; pods get devices from {others}")
    elif context.request.for_kubelet and node.is_hidden:
        text = "cdigen kubelet is not set up; only root may list other device plugins"
        yield TOPIC.skipped(PLUGIN, text)
    elif context.request.for_kubelet:
        text = f"cdigen kubelet is not set up: {_NO_DEVICES}"
        enable = Remedy(argv=("systemctl", "enable", "--now", UNIT), why="start it now and at each boot")
        by_hand = "" if is_installed else f"; start 'cdigen kubelet' as root: {UNIT} is not installed"
        yield TOPIC.error(
            PLUGIN, see(f"{text}{by_hand}"), (enable,) if is_installed else (), because=(KUBELET,)
        )
    else:
        yield TOPIC.passed(PLUGIN, f"cdigen kubelet is not set up: {_NO_DEVICES} of cdigen")


def _unit(context: Context) -> Iterator[CheckResult]:
    """Report whether the service is enabled and starts before the kubelet."""
    kubelet = context.node.kubelet
    if kubelet is None or not has_unit(context.host, UNIT) or not is_needed(context):
        return
    if instance_of(context.node.status or {}).startswith("pod "):
        return
    if not is_enabled(context.host, UNIT):
        text = f"{UNIT} is not enabled: after a reboot {_NO_DEVICES}"
        enable = Remedy(argv=("systemctl", "enable", UNIT), why="start it at each boot")
        yield TOPIC.warning(ORDER, see(text), (enable,), because=(PLUGIN,))
        return
    unit = kubelet.unit
    before = unit in unit_values(context.host, UNIT, "Before")
    if not unit or before or UNIT in unit_values(context.host, unit, "After"):
        yield TOPIC.passed(ORDER, f"{UNIT} is enabled{f' and starts before {unit}' if unit else ''}")
        return
    text = (
        f"{UNIT} is not ordered before {unit}: after a reboot, the kubelet permanently rejects pods whose "
        "devices are not registered yet"
    )
    is_free = not context.host.exists(f"{_DROP_INS}/{_OWN_ORDER}") and _SIMPLE.fullmatch(f"/{unit}")
    remedies = _drop_in(_OWN_ORDER, "[Unit]", f"Before={unit}") if is_free else ()
    yield TOPIC.warning(ORDER, see(text), remedies)


def _labels(context: Context) -> Iterator[CheckResult]:
    """Report whether SELinux permits device plugins in pods to use the folder of sockets."""
    node = context.node
    if node.kubelet is None or not enforces(context) or not context.host.exists(node.plugins):
        return
    found = label(context, node.plugins)
    if found in {"", _LABEL}:
        yield TOPIC.passed(LABELS, f"{shown(node.plugins)} has the label that the kubelet sets")
        return
    text = f"SELinux: {shown(node.plugins)} has the label {shown(found)}, the kubelet sets {_LABEL}"
    path = context.outer(node.plugins)
    yield TOPIC.warning(
        LABELS,
        see(text),
        (Remedy(argv=("chcon", "-t", _LABEL, path), why="set the label of the kubelet"),),
    )


CHECKS = (
    *map(for_nodes, (_running, _directory, _socket)),
    _plugin,
    *map(for_nodes, (_unit, _labels)),
)
