"""Checks of other tools that write specs or inject devices, and of cdigen's own daemon.

The other tools are NVIDIA's refresh service, legacy hooks and runtimes, and other installations of cdigen.
"""

from __future__ import annotations

import os
import posixpath
import re

from cdigen.doctor.checks.configuration import CONFIGURATION
from cdigen.doctor.checks.driver import CAUSES
from cdigen.doctor.commands import file_command, give_to_root, move_aside, run_cdigen, write_specs
from cdigen.doctor.migration.leftovers import REFRESH_UNITS, VOID, bare_specs, hook_files, is_of_nvidia
from cdigen.doctor.result import Remedy, Topic
from cdigen.doctor.spec_documents import foreign_specs, own_file
from cdigen.host.mountinfo import rows
from cdigen.host.mounts import existing
from cdigen.host.root import shown
from cdigen.host.trust import untrusted
from cdigen.model.errors import CdigenError
from cdigen.runtimes.daemon_service import UNIT, service_of
from cdigen.runtimes.units import SYSTEM_FOLDERS, is_enabled
from cdigen.service.status import instance_of
from cdigen.store import specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.host.root import Root

TOPIC = Topic(name="others")
DAEMON = Topic(name="daemon")
REFRESH, FOREIGN, TWICE = "nvidia-refresh", "spec-foreign", "double-injection"
RUNNING, CYCLE, STATE, SPACE = "daemon-running", "daemon-cycle", "state-dir", "disk-space"
INSTALLED = "installations"
_REFRESH_FILES = ("/var/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml")
# Escape sequences in the paths of proc_pid_mountinfo(5).
_OCTAL = re.compile(rb"\\([0-7]{3})")
_HIDDEN_BECAUSE = ("spec-conflict", REFRESH, "spec-version", "spec-syntax", "spec-refused", "spec-unreadable")
# The checks whose failure prevents a cycle from writing specs. Their failure explains the cycle's error.
_CYCLE_BECAUSE = (CONFIGURATION, STATE, SPACE, *_HIDDEN_BECAUSE, *CAUSES)
# (folder of the code, installer, command that removes the installation).
_TREES = (
    ("/usr/lib/python3/dist-packages", "Debian's package", "apt remove python3-cdigen"),
    ("/usr/lib/cdigen", "an RPM", "dnf remove cdigen"),
    ("/usr/local/lib/cdigen", "make install", "make uninstall PREFIX=/usr/local"),
)
# The name of the list of installed files that 'make install' writes. Packages have no such list.
_RECORD = "installed"
# Home of pipx -> variables that select this home. docs/how-to/install.md uses the first home.
_PIPX = {
    "/opt/pipx": "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin ",
    "/root/.local/share/pipx": "",
    "/root/.local/pipx": "",
}
_PIP = "/usr/local/lib"
_PACKAGES = ("site-packages", "dist-packages")
_VERSION = re.compile(r'^__version__ = "([0-9A-Za-z.+!-]{1,40})"$', flags=re.MULTILINE)
_START = re.compile(r"^ExecStart=(\S+)", flags=re.MULTILINE | re.ASCII)


def _refresh(context: Context) -> Iterator[CheckResult]:
    """Report whether NVIDIA's refresh service writes specs in addition to cdigen's specs."""
    active = [unit for unit in REFRESH_UNITS if is_enabled(context.host, unit)]
    present = [path for path in _REFRESH_FILES if context.host.exists(path)]
    ours = any(context.host.exists(own_file(context, kind)) for kind in context.kinds)
    if not active or not ours:
        state = "is enabled, but cdigen has no spec for the same devices" if active else "is not enabled"
        yield TOPIC.passed(REFRESH, f"NVIDIA's service nvidia-cdi-refresh {state}")
        return
    text = (
        f"{' and '.join(active)}: writes {_REFRESH_FILES[0]}, which defines the same devices as cdigen's "
        "specs"
    )
    remedies = [Remedy(argv=("systemctl", "disable", "--now", *REFRESH_UNITS), why="stop NVIDIA's service")]
    for path in present:
        if path == _REFRESH_FILES[0]:
            why = "remove the generated file of the service"
            remedies.append(file_command(why, "rm", "-f", context.outer(path)))
        else:
            remedies += move_aside(context, path)  # not a generated file
    yield TOPIC.failed(REFRESH, text, tuple(remedies), is_error=bool(present))


def _foreign(context: Context) -> Iterator[CheckResult]:
    """Report specs of other tools for the required kinds."""
    foreign = foreign_specs(context)
    hiding = [
        spec.path for spec in foreign if spec.is_used and context.host.exists(own_file(context, spec.kind))
    ]
    if hiding:
        text = (
            f"{', '.join(map(shown, hiding))}: used instead of cdigen's spec for the same kind, and not "
            "updated by cdigen"
        )
        yield TOPIC.warning(FOREIGN, text, move_aside(context, *hiding), because=_HIDDEN_BECAUSE)
    elif foreign:
        text = ", ".join(f"{shown(spec.path)}{'' if spec.is_used else ' (not in use)'}" for spec in foreign)
        yield TOPIC.passed(FOREIGN, f"specs of other tools, not updated by cdigen: {text}")
    else:
        yield TOPIC.passed(FOREIGN, "no other tool has written specs of the examined kinds")


def _twice(context: Context) -> Iterator[CheckResult]:
    """Report a legacy runtime or hook of NVIDIA that injects GPUs a second time, in addition to CDI.

    The runtime and the hook read NVIDIA_VISIBLE_DEVICES. CUDA images set this variable to ``all``. With
    ``void``, the runtime and the hook inject nothing (nvidia-container-toolkit issue 395).
    """
    legacy = [path for path in hook_files(context) if context.host.exists(path)]
    legacy += [
        f"{one.files[-1]} (default runtime {shown(one.name)})"
        for runtime in context.runtimes
        for one in runtime.settings.oci_runtimes
        if one.is_default and is_of_nvidia(one)
    ]
    if not legacy:
        yield TOPIC.passed(TWICE, "only CDI injects GPUs into containers")
        return
    bare = bare_specs(context)
    by = ", ".join(legacy)
    if not bare and not any(spec.is_used for spec in context.specs):
        yield TOPIC.passed(TWICE, f"{by}: the only one that injects GPUs, because no spec is in use")
        return
    if not bare:
        yield TOPIC.passed(TWICE, f"{by}: injects nothing, because the specs set {VOID}")
        return
    paths = ", ".join(shown(spec.path) for spec in bare)
    text = f"{by}: injects GPUs a second time, because {VOID} is not set in {paths}"
    own = all(spec.path == own_file(context, spec.kind) for spec in bare)
    yield TOPIC.warning(TWICE, text, write_specs(context) if own and context.products else ())


def _daemon(context: Context) -> Iterator[CheckResult]:
    """Report whether cdigen's daemon runs, and the errors of its last cycle."""
    status, problem = context.request.daemon()
    enabled = is_enabled(context.host, UNIT)
    if status is None or problem:
        if enabled:
            text = f"{UNIT} is enabled but not running: {problem}"
            start = Remedy(argv=("systemctl", "restart", UNIT), why="start cdigen's daemon")
            # Containers start without the daemon, because its specs remain.
            is_error = context.request.concerns()
            yield (
                DAEMON.failed(RUNNING, text, (start,), (CONFIGURATION,), is_error=is_error)
                if context.is_live
                else DAEMON.needs_system(RUNNING)
            )
        else:
            text = f"{UNIT} is not running: specs are not updated after changes of the driver"
            yield DAEMON.passed(RUNNING, f"{text} (to start it: {service_of(context.host).enable})")
        return
    state = str(status.get("state", ""))
    by = f" ({instance})" if (instance := instance_of(status)) else ""
    yield DAEMON.passed(RUNNING, f"cdigen's daemon is running{by}, state of the host: {shown(state)}")
    cycle = status.get("last_cycle") or {}
    troubles = [str(cycle["error"])] if cycle.get("error") else []
    sources = status.get("sources") or {}
    troubles += [
        f"{name} is not watched: {row.get('problem')}"
        for name, row in sources.items()
        # The kernel log has a separate check (doctor.health).
        if not row.get("healthy") and name != "kernel-log"
    ]
    troubles += [
        f"{row.get('kind')}: {row.get('reason')}"
        for row in status.get("specs", ())
        if row.get("result") == "refused"
    ]
    if troubles:
        show = run_cdigen(context, "status", why="show the status of the daemon", as_root=False)
        text = f"errors in the last cycle of the daemon: {shown('; '.join(troubles))}"
        yield DAEMON.warning(CYCLE, text, (show,), _CYCLE_BECAUSE)
    else:
        yield DAEMON.passed(CYCLE, "no errors in the last cycle of the daemon")


def _installed(context: Context) -> Iterator[CheckResult]:
    """Report more than one installation of cdigen.

    Several installations would write the same specs, the same hook and the same record.
    """
    found = _installations(context)
    texts = ", ".join(text for text, _ in found)
    if len(found) < 2:
        yield DAEMON.passed(INSTALLED, f"one installation: {texts}" if found else "cdigen is not installed")
        return
    unit = _started_program(context)
    service = f"the service starts {shown(unit)}" if unit else "no service is installed"
    removals = "', or '".join(removal for _, removal in found)
    text = (
        f"{len(found)} installations of cdigen, which write the same specs: {texts}; {service}. "
        f"Remove all except one: '{removals}'"
    )
    yield DAEMON.warning(INSTALLED, text)


def _installations(context: Context) -> tuple[tuple[str, str], ...]:
    """Return the description and the removal command of each installation, with packages first."""
    found: dict[str, tuple[str, str]] = {}
    for top, by, removal in _places(context.host):
        if match := _VERSION.search(context.text(f"{top}/cdigen/__init__.py")):
            found.setdefault(top, (f"{match[1]} in {top} ({by})", removal))
    return tuple(found.values())


def _started_program(context: Context) -> str:
    """Return the program that the unit of the daemon starts; empty if there is no unit."""
    texts = (context.text(f"{folder}/{UNIT}") for folder in SYSTEM_FOLDERS)
    return next((match[1] for text in texts if (match := _START.search(text))), "")


def _places(host: Root) -> Iterator[tuple[str, str, str]]:
    for top, by, removal in _TREES:
        if host.exists(f"{top}/{_RECORD}"):
            yield top, "make install", removal if "local" in top else "make uninstall"
        else:
            yield top, by, removal
    for home, variables in _PIPX.items():
        for top in _site_folders(host, f"{home}/venvs/cdigen/lib"):
            yield top, "pipx", f"cdigen install-service --remove && {variables}pipx uninstall cdigen"
    for top in _site_folders(host, _PIP):
        yield top, "pip", "cdigen install-service --remove && pip uninstall cdigen"


def _site_folders(host: Root, lib: str) -> Iterator[str]:
    for python in sorted(name for name in host.names(lib) if name.startswith("python3")):
        yield from (f"{lib}/{python}/{name}" for name in _PACKAGES)


def _state(context: Context) -> Iterator[CheckResult]:
    """Report whether the state directory is intact, and whether only root may change it."""
    path = context.configuration.state_dir
    if not context.host.exists(path):
        yield DAEMON.passed(STATE, f"{path} does not exist; the first write creates it")
        return
    try:
        _, findings = specs.recorded(context.request.spec_dirs[-1], state_dir=context.request.state_dir)
    except CdigenError as error:
        yield DAEMON.warning(STATE, f"{error.message}; {error.hint}")
        return
    real = context.host.resolve(path)
    if problem := untrusted(real, base=context.host.outer):
        is_itself = not untrusted(posixpath.dirname(real), base=context.host.outer)
        # A parent folder of the state directory may be a home directory. The owner of a home directory must
        # not change.
        advice = "" if is_itself else "; set another state_dir"
        text = f"state directory with driver views: {problem}{advice}"
        yield DAEMON.warning(STATE, text, give_to_root(context.outer(real)) if is_itself else ())
    elif findings:
        text = "; ".join(finding.message for finding in findings)
        command = ("generate", "--write", "--replace-foreign")
        renew = run_cdigen(context, *command, why="write the specs and their record again")
        yield DAEMON.warning(STATE, text, (renew,))
    else:
        yield DAEMON.passed(STATE, f"{path} and its record are intact")


def _space(context: Context) -> Iterator[CheckResult]:
    """Report whether the file systems of the specs and of the state are writable and have space."""
    folders = dict.fromkeys(map(existing, (context.request.spec_dirs[-1], context.request.state_dir)))
    full = False
    for folder in folders:
        try:
            status = os.statvfs(folder)
        except OSError:
            continue
        show = Remedy(argv=("df", "-h", folder), why="show the space of the file system", as_root=False)
        if status.f_flag & os.ST_RDONLY:
            command = remount(folder)
            text = "on a read-only file system"
            remedies = (Remedy(argv=command, why="make the mount writable"),) if command else ()
        elif status.f_bavail * status.f_frsize < 1 << 20:
            text, remedies = "less than 1 MiB of free space on the file system", (show,)
        elif status.f_files and status.f_favail < 8:
            text, remedies = "no free inode", (show,)
        else:
            continue
        full = True
        yield DAEMON.warning(SPACE, f"{shown(folder)}: {text}: specs cannot be written", remedies)
    if not full:
        yield DAEMON.passed(SPACE, "the file systems have space for specs")


def remount(folder: str) -> tuple[str, ...]:
    """Return the command that makes the mount of FOLDER writable; empty if the mount is unknown."""
    real = os.fsencode(os.path.realpath(folder)).rstrip(b"/") + b"/"
    point, options = b"", ""
    try:
        for row in rows("/proc/self/mountinfo"):
            fields, _, file_system = row.partition(b" - ")
            _, _, _, _, at, own, *_ = fields.split(b" ")
            mounted = _OCTAL.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), at)
            # A later mount at the same path covers an earlier mount.
            if real.startswith(mounted.rstrip(b"/") + b"/") and len(mounted) >= len(point):
                point = mounted
                # "remount,rw" fails if only the bind mount is read-only and its file system is writable
                # (util-linux 2.41).
                is_own = _is_read_only(own) and not _is_read_only(file_system.rpartition(b" ")[2])
                options = "remount,bind,rw" if is_own else "remount,rw"
    except OSError:
        return ()
    return ("mount", "-o", options, os.fsdecode(point)) if point else ()


def _is_read_only(options: bytes) -> bool:
    return b"ro" in options.split(b",")


CHECKS = (_refresh, _foreign, _twice, _installed, _daemon, _state, _space)
