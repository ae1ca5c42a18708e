"""Who else has a hand in it: NVIDIA's refresh service, foreign specs, legacy hooks, cdigen's daemon."""

from __future__ import annotations

import json
import posixpath
import re

from cdigen.doctor.mounts import remount
from cdigen.doctor.moving import move_aside
from cdigen.doctor.result import Topic
from cdigen.doctor.specs import read_specs
from cdigen.doctor.words import quoted
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
    from cdigen.doctor.specs import ExaminedSpec

TOPIC = Topic(name="others")
DAEMON = Topic(name="daemon")
REFRESH, FOREIGN, TWICE = "nvidia-refresh", "spec-foreign", "double-injection"
RUNNING, CYCLE, STATE, SPACE = "daemon-running", "daemon-cycle", "state-dir", "disk-space"
# nvidia-container-toolkit 1.18 and later install both.
_REFRESH_UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")
_REFRESH_FILES = ("/var/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml")
_PODMAN_HOOKS = (
    "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "/etc/containers/oci/hooks.d/oci-nvidia-hook.json",
)
_DAEMON_JSON = "/etc/docker/daemon.json"
# In containerd's and CRI-O's TOML; a comment or another runtime is none.
_DEFAULT_RUNTIME = re.compile(r"""(?m)^\s*default_runtime(?:_name)?\s*=\s*["'](nvidia[\w.-]*)["']""")
_VOID = "NVIDIA_VISIBLE_DEVICES=void"
_ENABLED_AT = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


def check(context: Context) -> Iterator[CheckResult]:
    """Say who else writes or reads what cdigen does, and how cdigen's daemon stands."""
    found = read_specs(context)
    yield from _refresh(context)
    yield from _foreign(context, found)
    yield from _twice(context, found)
    yield from _daemon(context)
    yield from _state(context)
    yield from _space(context)


def _refresh(context: Context) -> Iterator[CheckResult]:
    active = [unit for unit in _REFRESH_UNITS if is_enabled(context, unit)]
    there = [path for path in _REFRESH_FILES if context.host.exists(path)]
    ours = any(context.host.exists(context.own_file(kind)) for kind in context.kinds)
    if not active or not ours:
        what = "is enabled, and no spec of cdigen's lies beside its own" if active else "is not enabled"
        yield TOPIC.good(REFRESH, f"NVIDIA's own service that writes specs {what}")
        return
    text = (
        f"{' and '.join(active)} writes {_REFRESH_FILES[0]} beside cdigen's specs: two files define the "
        "same devices"
    )
    remedy = f"systemctl disable --now {' '.join(_REFRESH_UNITS)}"
    for path in there:
        # The service writes the first anew at any time; the other somebody has put there by hand.
        gone = f"rm -f {context.outer(path)}" if path == _REFRESH_FILES[0] else move_aside(context, path)
        remedy += f" && {gone}"
    say = TOPIC.error if there else TOPIC.warning
    yield say(REFRESH, text, remedy)


def is_enabled(context: Context, unit: str) -> bool:
    """Return whether systemd starts UNIT by itself: something wants it, and it is neither masked nor gone."""
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


def _foreign(context: Context, found: tuple[ExaminedSpec, ...]) -> Iterator[CheckResult]:
    foreign = [
        spec for spec in found if not context.was_ours(spec.path) and spec.path != context.own_file(spec.kind)
    ]
    hiding = [spec for spec in foreign if spec.is_used and context.host.exists(context.own_file(spec.kind))]
    if hiding:
        paths = [spec.path for spec in hiding]
        text = (
            f"{', '.join(map(shown, paths))} is used, though cdigen's own spec of the kind is there: nobody "
            "keeps it true"
        )
        moves = [move_aside(context, path) for path in paths]
        yield TOPIC.warning(
            FOREIGN,
            text,
            " && ".join(moves),
            because=(
                "spec-conflict",
                REFRESH,
                "spec-version",
                "spec-syntax",
                "spec-refused",
                "spec-unreadable",
            ),
        )
        return
    if foreign:
        text = ", ".join(f"{shown(spec.path)}{'' if spec.is_used else ' (not in use)'}" for spec in foreign)
        yield TOPIC.good(FOREIGN, f"written by others, and not kept true by cdigen: {text}")
    else:
        yield TOPIC.good(FOREIGN, "nobody else has written specs of these kinds")


def _twice(context: Context, found: tuple[ExaminedSpec, ...]) -> Iterator[CheckResult]:
    """Say whether NVIDIA's legacy runtime or hook injects GPUs into containers that have them by CDI.

    Images of CUDA set NVIDIA_VISIBLE_DEVICES=all, which both heed; void tells them that all is done
    (nvidia-container-toolkit issue 395).
    """
    legacy = [path for path in _PODMAN_HOOKS if context.host.exists(path)]
    if runtime := _default_runtime(context):
        legacy.append(f"{_DAEMON_JSON} (default-runtime {shown(runtime)})")
    for configured in context.runtimes:
        legacy += [
            f"{file} (default runtime {named[1]})"
            for file in configured.settings.files
            if configured.name in {"containerd", "crio"}
            and (named := _DEFAULT_RUNTIME.search(context.text(file, limit=1 << 20)))
        ]
    if not legacy:
        yield TOPIC.good(TWICE, "nothing but CDI gives containers GPUs by itself")
        return
    bare = [spec for spec in found if spec.is_used and "nvidia" in spec.kind and not _says_void(spec)]
    by = ", ".join(legacy)
    if not bare:
        yield TOPIC.good(TWICE, f"{by}: told by the specs ({_VOID}) that all is done")
        return
    paths = ", ".join(shown(spec.path) for spec in bare)
    text = f"{by} gives containers GPUs by NVIDIA_VISIBLE_DEVICES as well, and {paths} lacks {_VOID}"
    own = all(spec.path == context.own_file(spec.kind) for spec in bare)
    remedy = context.write_command() if own and context.products else ""
    yield TOPIC.warning(TWICE, text, remedy)


def _default_runtime(context: Context) -> str:
    """Return Docker's default runtime if it is NVIDIA's."""
    try:
        document = json.loads(context.text(_DAEMON_JSON, limit=1 << 20) or "{}")
    except (ValueError, RecursionError):
        return ""
    if not isinstance(document, dict):
        return ""
    name = document.get("default-runtime")
    runtimes = document.get("runtimes")
    entry = runtimes.get(name) if isinstance(runtimes, dict) and isinstance(name, str) else None
    path = entry.get("path") if isinstance(entry, dict) else ""
    return name if isinstance(name, str) and "nvidia" in f"{name} {path}" else ""


def _says_void(spec: ExaminedSpec) -> bool:
    edits = (
        spec.document.get("containerEdits", {}),
        *(one["containerEdits"] for one in spec.document["devices"]),
    )
    return any(_VOID in each.get("env", ()) for each in edits)


def _daemon(context: Context) -> Iterator[CheckResult]:
    daemon = context.request.daemon()
    enabled = is_enabled(context, UNIT)
    if daemon.status is None or daemon.problem:
        if enabled:
            text = f"cdigen's daemon is enabled and not running: {daemon.problem}"
            yield (
                DAEMON.error(RUNNING, text, f"systemctl restart {UNIT}")
                if context.is_live
                else DAEMON.unchecked(RUNNING, "the host is a folder")
            )
        else:
            text = "cdigen's daemon is not running: nobody writes specs anew when the driver changes"
            yield DAEMON.good(RUNNING, f"{text} (start it with {service_of(context.host).enable})")
        return
    state = str(daemon.status.get("state", ""))
    yield DAEMON.good(RUNNING, f"cdigen's daemon is running, and found the host {shown(state)}")
    cycle = daemon.status.get("last_cycle") or {}
    troubles = [str(cycle["error"])] if cycle.get("error") else []
    sources = daemon.status.get("sources") or {}
    troubles += [
        f"{name} is not watched: {row.get('problem')}"
        for name, row in sources.items()
        if not row.get("healthy")
    ]
    troubles += [
        f"{row.get('kind')}: {row.get('reason')}"
        for row in daemon.status.get("specs", ())
        if row.get("result") == "refused"
    ]
    if troubles:
        yield DAEMON.warning(
            CYCLE, f"its last look had trouble: {shown('; '.join(troubles))}", context.cdigen("status")
        )
    else:
        yield DAEMON.good(CYCLE, "its last look had no trouble")


def _state(context: Context) -> Iterator[CheckResult]:
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
        place = quoted(context.outer(real))
        is_itself = not untrusted(posixpath.dirname(real), base=context.host.outer)
        # A folder above it may be somebody's home: that is not ours to take away from them.
        text = f"driver views lie in it, and {problem}" + ("" if is_itself else "; choose another state_dir")
        yield DAEMON.warning(
            STATE, text, f"chown root:root {place} && chmod go-w {place}" if is_itself else ""
        )
    elif findings:
        text = "; ".join(finding.message for finding in findings)
        yield DAEMON.warning(STATE, text, context.cdigen("generate", "--write", "--replace-foreign"))
    else:
        yield DAEMON.good(STATE, f"{path} is whole")


def _space(context: Context) -> Iterator[CheckResult]:
    """Say whether a spec can be written where specs are."""
    import os  # noqa: PLC0415 - for this alone

    full = []
    for path in dict.fromkeys((context.request.spec_dirs[-1], context.request.state_dir)):
        folder = path
        while folder and not os.path.isdir(folder):
            folder = os.path.dirname(folder.rstrip("/")) if folder != "/" else ""
        try:
            status = os.statvfs(folder or "/")
        except OSError:
            continue
        if status.f_flag & os.ST_RDONLY:
            full.append((folder, "is on a file system that is read-only"))
        elif status.f_bavail * status.f_frsize < 1 << 20:
            full.append((folder, "has less than 1 MiB of free space"))
        elif status.f_files and status.f_favail < 8:
            full.append((folder, "has no free inode"))
    for folder, text in full:
        remedy = remount(folder) if "read-only" in text else f"df -h {quoted(folder)}"
        yield DAEMON.warning(SPACE, f"{shown(folder)} {text}: specs cannot be written anew", remedy)
    if not full:
        yield DAEMON.good(SPACE, "there is space for specs")
