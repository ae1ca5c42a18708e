"""Checks of the programs in the configuration of a runtime: OCI runtimes, OCI hooks, NVIDIA's toolkit.

The program of an OCI runtime or of a hook stays in the configuration after its package, or the pod that
installed it, is gone.
"""

from __future__ import annotations

import json
import posixpath

from cdigen.doctor.checks.driver import CAUSES
from cdigen.doctor.commands import move_aside
from cdigen.doctor.kubernetes_node.bundled import bundled_containerd, rewriter, unit_of
from cdigen.doctor.migration.leftovers import OPERATOR, TOOLKIT, VENDORS, is_of_nvidia, tool_of
from cdigen.doctor.result import Topic, listed
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.runtimes.documents import lookup, parse_toml
from cdigen.runtimes.installed import is_of_snap, place
from cdigen.runtimes.settings import containerd, docker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.examined import ExaminedRuntime
    from cdigen.doctor.result import CheckResult
    from cdigen.runtimes.settings.config_files import OciRuntime

TOPIC = Topic(name="others")
PROGRAM, UNREAD, HOOK, ROOT = (
    "oci-runtime-program",
    "oci-runtime-unread",
    "oci-hook-program",
    "toolkit-root",
)
# Runtime -> its usual configuration file, and the reader of the OCI runtimes in this file. The runtimes of
# Kubernetes distributions and snaps read other files, but other tools write the usual file.
_USUAL = {
    "containerd": (containerd.FILE, containerd.usual_runtimes),
    "docker": (docker.FILE, docker.usual_runtimes),
}
_MAX_HOOKS = 100
# The toolkit's configuration below the folder of its program, or below / (nvidia-container-toolkit,
# internal/config; the operator's toolkit sets XDG_CONFIG_HOME in its wrapper).
_CONFIG = "nvidia-container-runtime/config.toml"
# The library that nvidia-container-cli loads from its root, in the folders of its own search path.
_LIBRARY = "libnvidia-ml.so.1"
_FOLDERS = (
    "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/lib64", "/lib",
)  # fmt: skip


def _programs(context: Context) -> Iterator[CheckResult]:
    """Report OCI runtimes whose program does not exist, for each examined runtime."""
    lost = False
    for runtime in context.runtimes:
        for one in _lost(context, runtime):
            lost = True
            role = "the default runtime" if one.is_default else "the runtime"
            text = f"{one.files[-1]}: {role} {one.name} of {runtime.name} has the program {one.path}"
            effect = f"containers with the runtime {one.name} do not start"
            if one.is_default:
                effect = "containers and pods that name no other runtime do not start"
            unit = unit_of(context.host, runtime.name, for_kubelet=context.request.for_kubelet)
            advice = f"remove the runtime from the file and restart {unit}"
            if bundled := rewriter(context.host, one.files[-1]):
                advice = (
                    f"run 'systemctl restart {bundled.unit}', so that {bundled.name} writes the file again"
                )
            text = f"{text}, which does not exist: {effect}; install the program, or {advice}"
            yield TOPIC.failed(PROGRAM, shown(text), is_error=one.is_default)
    if not lost:
        yield TOPIC.passed(PROGRAM, "all programs of OCI runtimes exist")


def _lost(context: Context, runtime: ExaminedRuntime) -> Iterator[OciRuntime]:
    """Yield the OCI runtimes of RUNTIME without a program; other names than paths are not examined.

    A snap has other folders than the host. A file whose table is ignored registers no OCI runtime.
    """
    if runtime.binary is not None and is_of_snap(runtime.binary.binary) and runtime.name == "docker":
        return
    ignored = {one.path for one in runtime.settings.findings if one.rule == "config-passed-over"}
    for one in runtime.settings.oci_runtimes:
        is_path = one.path.startswith("/")
        if is_path and not ignored.issuperset(one.files) and not context.host.exists(one.path):
            yield one


def _unread(context: Context) -> Iterator[CheckResult]:
    """Report OCI runtimes of other tools that are only in files which the examined runtimes do not read."""
    is_unread = False
    for runtime in context.runtimes:
        settings = runtime.settings
        usual, read = _USUAL.get(runtime.name, ("", None))
        if read is None or usual in settings.files or settings.rootless or _has_second(context, runtime):
            continue
        known = {one.name for one in settings.oci_runtimes}
        lost = [one for one in read(context.host) if tool_of(one) and one.name not in known]
        if lost:
            is_unread = True
            yield TOPIC.warning(UNREAD, shown(_unread_text(context, runtime, lost)))
    if not is_unread:
        yield TOPIC.passed(UNREAD, "no OCI runtime of another tool is only in a file that no runtime reads")


def _has_second(context: Context, runtime: ExaminedRuntime) -> bool:
    """Return whether RUNTIME is a distribution's containerd, and a second one reads the usual file."""
    is_containerd = runtime.name == "containerd" and bool(place(context.host, "containerd"))
    return is_containerd and bundled_containerd(context.host) is not None


def _unread_text(context: Context, runtime: ExaminedRuntime, lost: list[OciRuntime]) -> str:
    names = listed(one.name for one in lost)
    bundled = bundled_containerd(context.host) if runtime.name == "containerd" else None
    is_snap = runtime.binary is not None and is_of_snap(runtime.binary.binary)
    owner = f" of {bundled.name}" if bundled else " from the snap" if is_snap else ""
    other = listed(runtime.settings.files) or runtime.settings.edited_file
    users, place, advice = "containers", "", "request devices with --device"
    if runtime.name == "containerd":
        users, place = "pods", " (NVIDIA's operator: CONTAINERD_CONFIG in toolkit.env)"
        advice = "remove runtimeClassName from the pods"
    return (
        f"{lost[0].files[-1]} has the runtime {names}, but the {runtime.name}{owner} reads {other}, and not "
        f"this file: {users} with this runtime do not start; add the runtime to a file that is read{place}, "
        f"or {advice}: the devices of cdigen need no such runtime"
    )


def _hooks(context: Context) -> Iterator[CheckResult]:
    """Report OCI hooks whose program does not exist, in the folders that each examined runtime reads."""
    lost = False
    for runtime in context.runtimes:
        for folder in runtime.settings.hook_dirs:
            names = [name for name in context.host.names(folder) if name.endswith(".json")]
            for path in (f"{folder}/{name}" for name in names[:_MAX_HOOKS]):
                program = _program(context, path)
                if program.startswith("/") and not context.host.exists(program):
                    lost = True
                    text = (
                        f"{shown(path)}: the hook's program {shown(program)} does not exist: containers of "
                        f"{runtime.name} do not start until the program is installed or the hook removed"
                    )
                    yield TOPIC.error(HOOK, text, move_aside(context, path))
    if not lost:
        yield TOPIC.passed(HOOK, "all programs of OCI hooks exist")


def _program(context: Context, path: str) -> str:
    """Return the program of the hook in the file PATH; empty if the file has none."""
    try:
        document = json.loads(context.text(path))
    except (ValueError, RecursionError):
        return ""
    # Version 0.1.0 of the format has the program at the top (oci-hooks(5)).
    hook = document.get("hook") if isinstance(document, dict) else None
    program = hook.get("path") if isinstance(hook, dict) else hook
    return program if isinstance(program, str) else ""


def _toolkit(context: Context) -> Iterator[CheckResult]:
    """Report a configuration of NVIDIA's toolkit that searches the driver in a root without a driver."""
    if not any(kind.startswith(VENDORS[TOOLKIT]) for kind in context.offered_kinds):
        return  # the driver of this host is missing, which other checks report
    folders = [
        posixpath.dirname(one.path)
        for runtime in context.runtimes
        for one in runtime.settings.oci_runtimes
        if is_of_nvidia(one) and one.path.startswith("/")
    ]
    places = ("/etc", *(f"{folder}/.config" for folder in (OPERATOR, *folders)))
    wrong = []
    for path in dict.fromkeys(f"{folder}/{_CONFIG}" for folder in places):
        root = _root(context, path)
        if root.startswith("/") and root.strip("/") and not _has_driver(context, root.rstrip("/")):
            wrong.append(f"{path} (root = {root!r})")
    if not wrong:
        yield TOPIC.passed(ROOT, "no configuration of NVIDIA's toolkit has a root without a driver")
        return
    text = (
        f"{listed(wrong)}: the folder has no {_LIBRARY}, so containers with NVIDIA's runtime do not start. "
        "The driver of this host is in /. Set root = '/' (in the operator: driver.enabled=false), or run "
        "'cdigen doctor --migrate', which prints the steps to CDI without NVIDIA's runtime"
    )
    yield TOPIC.warning(ROOT, shown(text), because=CAUSES)


def _root(context: Context, path: str) -> str:
    try:
        document = parse_toml(context.text(path).encode(), path)
    except ConfigError:
        return ""
    root = lookup(document, ("nvidia-container-cli", "root"))
    return root if isinstance(root, str) else ""


def _has_driver(context: Context, root: str) -> bool:
    return any(context.host.exists(f"{root}{folder}/{_LIBRARY}") for folder in _FOLDERS)


CHECKS = (_programs, _unread, _hooks, _toolkit)
