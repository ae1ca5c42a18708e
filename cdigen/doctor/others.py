"""Checks of who else writes or reads specs: NVIDIA's refresh service, legacy hooks, cdigen's own daemon."""

from __future__ import annotations

import os
import posixpath
import re

from cdigen.doctor.commands import file_command, give_to_root, move_aside, run_cdigen, write_specs
from cdigen.doctor.installations import installations, started
from cdigen.doctor.result import Remedy, Topic
from cdigen.doctor.spec_documents import own_file, was_ours
from cdigen.frontend.status import owner_of
from cdigen.host.mountinfo import rows
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.model.errors import CdigenError
from cdigen.runtimes.daemon_service import UNIT, service_of
from cdigen.runtimes.units import SYSTEM_FOLDERS
from cdigen.store import specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.doctor.spec_documents import ExaminedSpec
    from cdigen.runtimes.settings.oci_runtimes import OciRuntime

TOPIC = Topic(name="others")
DAEMON = Topic(name="daemon")
REFRESH, FOREIGN, TWICE = "nvidia-refresh", "spec-foreign", "double-injection"
RUNNING, CYCLE, STATE, SPACE = "daemon-running", "daemon-cycle", "state-dir", "disk-space"
INSTALLED = "installations"
# nvidia-container-toolkit 1.18 and later install both.
REFRESH_UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
_REFRESH_FILES = ("/var/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml")
PODMAN_HOOKS = (
    "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "/etc/containers/oci/hooks.d/oci-nvidia-hook.json",
)
# In the paths of proc_pid_mountinfo(5).
_OCTAL = re.compile(rb"\\([0-7]{3})")
VOID = "NVIDIA_VISIBLE_DEVICES=void"
_HIDDEN_BECAUSE = ("spec-conflict", REFRESH, "spec-version", "spec-syntax", "spec-refused", "spec-unreadable")
_ENABLED_AT = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


def _refresh(context: Context) -> Iterator[CheckResult]:
    """Report whether NVIDIA's own service writes specs beside cdigen's."""
    active = [unit for unit in REFRESH_UNITS if is_enabled(context, unit)]
    there = [path for path in _REFRESH_FILES if context.host.exists(path)]
    ours = any(context.host.exists(own_file(context, kind)) for kind in context.kinds)
    if not active or not ours:
        what = "is enabled, and no spec of cdigen's lies beside its own" if active else "is not enabled"
        yield TOPIC.good(REFRESH, f"NVIDIA's own service that writes specs {what}")
        return
    text = (
        f"{' and '.join(active)} writes {_REFRESH_FILES[0]} beside cdigen's specs: two files define the "
        "same devices"
    )
    remedies = [
        Remedy(argv=("systemctl", "disable", "--now", *REFRESH_UNITS), why="NVIDIA's service stops writing")
    ]
    for path in there:
        if path == _REFRESH_FILES[0]:
            why = "remove what the service writes anew at any time"
            remedies.append(file_command(why, "rm", "-f", context.outer(path)))
        else:
            remedies += move_aside(context, path)  # somebody has put it there by hand
    yield TOPIC.failed(REFRESH, text, tuple(remedies), is_error=bool(there))


def is_enabled(context: Context, unit: str) -> bool:
    """Return whether UNIT is enabled: something wants it, and it exists and is not masked."""
    host = context.host
    files = [f"{folder}/{unit}" for folder in SYSTEM_FOLDERS]
    try:
        real = next(host.resolve(path) for path in files if host.exists(path))
    except (StopIteration, OSError):
        return False
    if real == "/dev/null":
        return False
    return any(
        unit in host.names(f"{folder}/{name}")
        for folder in _ENABLED_AT
        for name in host.names(folder)
        if name.endswith((".wants", ".requires"))
    )


def _foreign(context: Context) -> Iterator[CheckResult]:
    """Report specs of our kinds that others wrote."""
    foreign = [
        spec
        for spec in context.specs
        if not was_ours(context, spec.path) and spec.path != own_file(context, spec.kind)
    ]
    hiding = [
        spec.path for spec in foreign if spec.is_used and context.host.exists(own_file(context, spec.kind))
    ]
    if hiding:
        text = (
            f"{', '.join(map(shown, hiding))} is used, though cdigen's own spec of the kind is there: it is "
            "not kept up to date"
        )
        yield TOPIC.warning(FOREIGN, text, move_aside(context, *hiding), because=_HIDDEN_BECAUSE)
    elif foreign:
        text = ", ".join(f"{shown(spec.path)}{'' if spec.is_used else ' (not in use)'}" for spec in foreign)
        yield TOPIC.good(FOREIGN, f"written by others, and not kept up to date by cdigen: {text}")
    else:
        yield TOPIC.good(FOREIGN, "nobody else has written specs of these kinds")


def _twice(context: Context) -> Iterator[CheckResult]:
    """Report NVIDIA's legacy runtime or hook where it injects GPUs a second time, beside CDI.

    Images of CUDA set NVIDIA_VISIBLE_DEVICES=all, which both heed; void tells them that all is done
    (nvidia-container-toolkit issue 395).
    """
    legacy = [path for path in PODMAN_HOOKS if context.host.exists(path)]
    legacy += [
        f"{one.files[-1]} (default runtime {shown(one.name)})"
        for runtime in context.runtimes
        for one in runtime.settings.oci_runtimes
        if one.is_default and is_nvidias(one)
    ]
    if not legacy:
        yield TOPIC.good(TWICE, "nothing but CDI gives containers GPUs by itself")
        return
    bare = bare_specs(context)
    by = ", ".join(legacy)
    if not bare:
        yield TOPIC.good(TWICE, f"{by}: told by the specs ({VOID}) that all is done")
        return
    paths = ", ".join(shown(spec.path) for spec in bare)
    text = f"{by} gives containers GPUs by NVIDIA_VISIBLE_DEVICES as well, and {paths} lacks {VOID}"
    own = all(spec.path == own_file(context, spec.kind) for spec in bare)
    yield TOPIC.warning(TWICE, text, write_specs(context) if own and context.products else ())


def bare_specs(context: Context) -> list[ExaminedSpec]:
    """Return the specs in use for NVIDIA's devices that do not tell NVIDIA's runtime that all is done."""
    used = [spec for spec in context.specs if spec.is_used and "nvidia" in spec.kind]
    return [spec for spec in used if VOID not in spec.edits("env")]


def is_nvidias(runtime: OciRuntime) -> bool:
    """Return whether RUNTIME is NVIDIA's wrapper around runc, whatever it is called."""
    return "nvidia" in f"{runtime.name} {runtime.path}"


def _daemon(context: Context) -> Iterator[CheckResult]:
    """Report whether cdigen's daemon runs, and how its last cycle ended."""
    status, problem = context.request.daemon()
    enabled = is_enabled(context, UNIT)
    if status is None or problem:
        if enabled:
            text = f"cdigen's daemon is enabled and not running: {problem}"
            start = Remedy(argv=("systemctl", "restart", UNIT), why="start cdigen's daemon again")
            yield (
                DAEMON.error(RUNNING, text, (start,))
                if context.is_live
                else DAEMON.unchecked(RUNNING, "the host is a folder")
            )
        else:
            text = "cdigen's daemon is not running: specs are not written anew when the driver changes"
            yield DAEMON.good(RUNNING, f"{text} (start it with {service_of(context.host).enable})")
        return
    state = str(status.get("state", ""))
    by = f" ({owner})" if (owner := owner_of(status)) else ""
    yield DAEMON.good(RUNNING, f"cdigen's daemon is running{by}, and found the host {shown(state)}")
    cycle = status.get("last_cycle") or {}
    troubles = [str(cycle["error"])] if cycle.get("error") else []
    sources = status.get("sources") or {}
    troubles += [
        f"{name} is not watched: {row.get('problem')}"
        for name, row in sources.items()
        # The kernel's log has a check of its own (doctor.health).
        if not row.get("healthy") and name != "kernel-log"
    ]
    troubles += [
        f"{row.get('kind')}: {row.get('reason')}"
        for row in status.get("specs", ())
        if row.get("result") == "refused"
    ]
    if troubles:
        look = run_cdigen(context, "status", why="show what the daemon reports", as_root=False)
        yield DAEMON.warning(CYCLE, f"its last cycle had trouble: {shown('; '.join(troubles))}", (look,))
    else:
        yield DAEMON.good(CYCLE, "its last cycle had no trouble")


def _installed(context: Context) -> Iterator[CheckResult]:
    """Report whether there is more than one cdigen: they write the same specs, hook and record."""
    found = installations(context.host)
    told = ", ".join(one.described() for one in found)
    if len(found) < 2:
        yield DAEMON.good(
            INSTALLED, f"one cdigen is installed: {told}" if found else "cdigen runs uninstalled"
        )
        return
    unit = started(context.host)
    service = f"the service starts {shown(unit)}" if unit else "there is no service"
    removals = "', or '".join(one.removal for one in found)
    text = (
        f"{len(found)} cdigens are installed, and write the same specs: {told}; {service}. "
        f"Keep one: '{removals}'"
    )
    yield DAEMON.warning(INSTALLED, text)


def _state(context: Context) -> Iterator[CheckResult]:
    """Report whether the state directory is whole, and root's alone."""
    path = context.configuration.state_dir
    if not context.host.exists(path):
        yield DAEMON.good(STATE, f"{path} does not exist; the first write makes it")
        return
    try:
        _, findings = specs.recorded(context.request.spec_dirs[-1], state_dir=context.request.state_dir)
    except CdigenError as error:
        yield DAEMON.warning(STATE, f"{error.message}; {error.hint}")
        return
    real = context.host.resolve(path)
    if problem := untrusted(real, base=context.host.outer):
        is_itself = not untrusted(posixpath.dirname(real), base=context.host.outer)
        # A folder above it may be somebody's home: it is not for us to take it from them.
        text = f"driver views lie in it, and {problem}" + ("" if is_itself else "; choose another state_dir")
        yield DAEMON.warning(STATE, text, give_to_root(context.outer(real)) if is_itself else ())
    elif findings:
        text = "; ".join(finding.message for finding in findings)
        command = ("generate", "--write", "--replace-foreign")
        anew = run_cdigen(context, *command, why="write the specs and their record anew")
        yield DAEMON.warning(STATE, text, (anew,))
    else:
        yield DAEMON.good(STATE, f"{path} and its record are intact")


def _space(context: Context) -> Iterator[CheckResult]:
    """Report whether a spec can be written where specs are."""
    folders = dict.fromkeys(
        _existing(path) for path in (context.request.spec_dirs[-1], context.request.state_dir)
    )
    full = False
    for folder in folders:
        try:
            status = os.statvfs(folder)
        except OSError:
            continue
        look = Remedy(argv=("df", "-h", folder), why="show how full the file system is", as_root=False)
        if status.f_flag & os.ST_RDONLY:
            command = remount(folder)
            text = "is on a file system that is read-only"
            remedies = (Remedy(argv=command, why="make the mount writable"),) if command else ()
        elif status.f_bavail * status.f_frsize < 1 << 20:
            text, remedies = "has less than 1 MiB of free space", (look,)
        elif status.f_files and status.f_favail < 8:
            text, remedies = "has no free inode", (look,)
        else:
            continue
        full = True
        yield DAEMON.warning(SPACE, f"{shown(folder)} {text}: specs cannot be written anew", remedies)
    if not full:
        yield DAEMON.good(SPACE, "there is space for specs")


def remount(folder: str) -> tuple[str, ...]:
    """Return the command that makes the mount of FOLDER writable; nothing where it is unknown."""
    real = os.fsencode(os.path.realpath(folder)).rstrip(b"/") + b"/"
    point, options = b"", ""
    try:
        for row in rows("/proc/self/mountinfo"):
            fields, _, file_system = row.partition(b" - ")
            _, _, _, _, at, own, *_ = fields.split(b" ")
            mounted = _OCTAL.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), at)
            # Of two mounts at one place the later one covers the other.
            if real.startswith(mounted.rstrip(b"/") + b"/") and len(mounted) >= len(point):
                point = mounted
                # A bind mount can be read-only by itself: "remount,rw" fails (util-linux 2.41).
                is_own = _is_read_only(own) and not _is_read_only(file_system.rpartition(b" ")[2])
                options = "remount,bind,rw" if is_own else "remount,rw"
    except OSError:
        return ()
    return ("mount", "-o", options, os.fsdecode(point)) if point else ()


def _is_read_only(options: bytes) -> bool:
    return b"ro" in options.split(b",")


def _existing(path: str) -> str:
    """Return PATH of this machine, or the nearest folder above it that exists."""
    while path != "/" and not os.path.isdir(path):
        path = os.path.dirname(path.rstrip("/")) or "/"
    return path


CHECKS = (_refresh, _foreign, _twice, _installed, _daemon, _state, _space)
