"""Checks of whether the runtimes load the spec files: one for each reason to ignore a file."""

from __future__ import annotations

import posixpath
import stat

from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.cdi.version import KNOWN_VERSIONS, is_newer
from cdigen.doctor.authority import may_change, may_copy, ways
from cdigen.doctor.commands import (
    file_command,
    free_path,
    move_aside,
    open_to_all,
    rename,
    restart,
    run_cdigen,
    write_specs,
)
from cdigen.doctor.driver import CAUSES
from cdigen.doctor.result import Topic, listed
from cdigen.doctor.spec_documents import MAX_SIZE, is_ours, own_file, was_ours
from cdigen.host.root import shown
from cdigen.model.findings import errors
from cdigen.model.names import is_yaml, natural_key
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.examined import ExaminedRuntime
    from cdigen.doctor.result import CheckResult, Remedy
    from cdigen.runtimes.scan import Resolution
    from cdigen.runtimes.spec_cache import SpecFile

TOPIC = Topic(name="specs")
MISSING = "spec-missing"
# The rule of runtimes.scan -> the check's name, and its message if nothing is wrong.
CAUSE_CHECKS = {
    "conflict": ("spec-conflict", "no two files of one directory define the same device"),
    "file-refused": ("spec-refused", "the runtimes take every file"),
    "runtime-crashes": ("spec-crash", "no file makes a runtime crash"),
    "runtime-hangs": ("spec-hangs", "no file makes a runtime wait for ever"),
    "file-unreadable": ("spec-unreadable", "every file can be read"),
    "directory-unreadable": ("spec-directory-unreadable", "every directory can be read"),
    "directory-symlink": ("spec-directory-link", "no directory is a link"),
    "not-a-directory": ("spec-directory-kind", "every directory is one"),
    "file-name-ignored": ("spec-name", "every name ends in .json or .yaml"),
    "file-uncertain": ("spec-uncertain", "every file can be judged"),
}
# The check for a refused file depends on its fault.
VERSION, SYNTAX = "spec-version", "spec-syntax"
LOADING = (*(name for name, _ in CAUSE_CHECKS.values()), VERSION, SYNTAX)
_OF_FOLDERS = {"directory-symlink", "directory-unreadable", "scan-stops"}
# Resolution.rule where no file is to blame.
_NOWHERE = {"not-a-name", "unknown-device", "unknown-kind", "no-specs"}


@frozen
class Problem:
    """A file or directory that runtimes ignore, by which rule and why, and the names lost by it."""

    rule: str
    path: str
    reason: str
    runtimes: tuple[ExaminedRuntime, ...]
    lost: tuple[str, ...]


def _loaded(context: Context) -> Iterator[CheckResult]:
    """Report which files and directories the runtimes ignore, and what is wrong with each."""
    found = [_result_of(context, problem) for problem in problems(context)]
    failed = [result for result in found if result is not None]
    yield from failed
    names = {result.check for result in failed}
    right = (
        *CAUSE_CHECKS.values(),
        (VERSION, "no cdiVersion is too new"),
        (SYNTAX, "all files can be parsed"),
    )
    for name, text in right:
        if name not in names:
            yield TOPIC.good(name, text)


def problems(context: Context) -> tuple[Problem, ...]:
    """Return the files and directories that any of the runtimes ignores."""
    reasons: dict[tuple[str, str], str] = {}
    runtimes: dict[tuple[str, str], dict[str, ExaminedRuntime]] = {}
    lost: dict[tuple[str, str], set[str]] = {}
    for runtime in context.runtimes:
        view = context.view(runtime)
        for finding in view.problems:
            key = (finding.rule, finding.path)
            reasons.setdefault(key, finding.message)
            runtimes.setdefault(key, {})[runtime.name] = runtime
        for resolution in lost_names(context, runtime):
            if resolution.rule not in _NOWHERE:
                key = (resolution.rule, _blamed(resolution))
                reasons.setdefault(key, resolution.reason)
                runtimes.setdefault(key, {})[runtime.name] = runtime
                lost.setdefault(key, set()).add(resolution.device)
    return tuple(
        Problem(
            rule=key[0],
            path=key[1],
            reason=text,
            runtimes=tuple(runtimes[key].values()),
            lost=tuple(sorted(lost.get(key, ()), key=natural_key)),
        )
        for key, text in reasons.items()
    )


def _blamed(resolution: Resolution) -> str:
    """Return the path that causes the problem: the file, or its directory if all of that is ignored."""
    is_file = resolution.file in resolution.files
    return (
        posixpath.dirname(resolution.file) if resolution.rule in _OF_FOLDERS and is_file else resolution.file
    )


def lost_names(context: Context, runtime: ExaminedRuntime) -> list[Resolution]:
    """Return why RUNTIME does not find each of the wanted names that it does not find."""
    view = context.view(runtime)
    found = {name for name, _ in view.devices}
    return [view.resolve(name) for name in context.wanted if name not in found]


def _result_of(context: Context, problem: Problem) -> CheckResult | None:
    name = CAUSE_CHECKS.get(problem.rule, ("spec-uncertain", ""))[0]
    spec_file = context.spec_files.get(problem.path)
    if _is_of_others(context, problem, spec_file):
        return None
    reason, remedies = problem.reason, _REMEDIES.get(problem.rule, lambda *_: ())(context, problem)
    if problem.rule in {"file-refused", "runtime-crashes", "file-uncertain"}:
        name, reason, remedies = _refused(context, problem, name, spec_file)
    is_error = bool(problem.lost) or problem.rule == "runtime-hangs"
    if problem.rule == "file-name-ignored" and not is_error:
        return None  # a copy of a device that is found elsewhere
    return TOPIC.failed(name, f"{reason}{_loses(problem)}", remedies, is_error=is_error)


def _copy(context: Context, problem: Problem) -> tuple[Remedy, ...]:
    """Return the commands that put a copy in the place of a directory that is a link, if root may be told."""
    if not may_copy(context, problem.path):
        return ()
    path, copy = context.outer(problem.path), context.outer(free_path(context, problem.path, ".cdigen"))
    source = context.outer(context.host.resolve(problem.path))
    return (
        file_command("copy what the link leads to", "cp", "-aT", source, copy),
        file_command("remove the link", "rm", path),
        file_command("put the copy in its place", "mv", "-T", copy, path),
        *_restarts(context, problem),
    )


def _make_directory(context: Context, problem: Problem) -> tuple[Remedy, ...]:
    """Return the commands that replace what is not a directory by one."""
    moved = move_aside(context, problem.path)
    if not moved:
        return ()
    made = file_command("make the directory", "mkdir", context.outer(problem.path))
    written = write_specs(context) if context.products else ()
    return (*moved, made, *written, *_restarts(context, problem))


def _restarts(context: Context, problem: Problem) -> Iterator[Remedy]:
    """Return the restarts that daemons need: they still watch the directory that the link led to."""
    for runtime in problem.runtimes:
        if runtime.name in context.daemons:
            yield from restart(context, runtime.name)


def _change_ending(context: Context, problem: Problem) -> tuple[Remedy, ...]:
    """Return the command that gives a file an ending that runtimes read."""
    stem, ending = posixpath.splitext(problem.path)
    target = free_path(context, stem, ".json" if ending.lower() == ".json" else ".yaml")
    return rename(context, {problem.path: target})


def _loses(problem: Problem) -> str:
    if not problem.lost:
        return ""
    names = " and ".join(runtime.shown for runtime in problem.runtimes)
    return f"; so {names} cannot resolve {listed(problem.lost)}"


def _is_of_others(context: Context, problem: Problem, spec_file: SpecFile | None) -> bool:
    """Return whether PROBLEM concerns only devices that were not asked for."""
    if problem.lost or not context.request.devices or problem.rule in {"runtime-crashes", "runtime-hangs"}:
        return False
    return spec_file is None or spec_file.kind not in context.kinds


def _end_conflict(context: Context, problem: Problem) -> tuple[Remedy, ...]:
    """Return the commands that move aside all but the best of the files that conflict."""
    rivals: dict[str, SpecFile] = {}
    for runtime in problem.runtimes:
        view = context.view(runtime)
        loaded = {file.path: file for file in view.files if file.state == "loaded"}
        first = loaded[problem.path]
        rivals |= {
            path: file
            for path, file in loaded.items()
            if (file.directory, file.kind) == (first.directory, first.kind)
            and set(file.devices) & set(first.devices)
        }
    keep = max(rivals, key=lambda path: _preference(context, path))
    return move_aside(context, *(path for path in rivals if path != keep))


def _preference(context: Context, path: str) -> tuple[bool, bool, bool, float]:
    """Return a sort key; best is a file that cdigen wrote, whose paths exist, at cdigen's place, and new."""
    try:
        data = context.host.read(path, limit=MAX_SIZE)
        changed = context.host.stat(path).st_mtime
    except OSError:
        return False, False, False, 0.0
    reading = parse_and_check(data, yaml=is_yaml(path))
    holds = (
        reading.document is not None
        and not errors(reading.findings)
        and not check_host(reading.document, context.host)
    )
    is_own = path in {own_file(context, kind) for kind in context.kinds}
    return is_ours(context, path), holds, is_own, changed


def _refused(
    context: Context, problem: Problem, name: str, spec_file: SpecFile | None
) -> tuple[str, str, tuple[Remedy, ...]]:
    """Return the check, the reason and the remedy for a file that runtimes refuse, or crash on."""
    path = problem.path
    try:
        data = context.host.read(path, limit=MAX_SIZE)
    except OSError:
        return name, problem.reason, move_aside(context, path)
    reading = parse_and_check(data, yaml=is_yaml(path))
    faults = errors(reading.findings)
    reason = problem.reason
    version = str((reading.document or {}).get("cdiVersion"))
    older = [
        runtime
        for runtime in problem.runtimes
        if version in KNOWN_VERSIONS and runtime.newest and is_newer(version, runtime.newest)
    ]
    target: tuple[str, ...] = ()
    if older:
        name = VERSION
        reads = " and ".join(f"{runtime.shown} reads {runtime.newest} at most" for runtime in older)
        reason = f"{shown(path)} has cdiVersion {version}, but {reads}"
        target = _targets(context, older, spec_file)
    elif reading.document is None and faults:
        name = SYNTAX
        place = f"line {faults[0].place[0]}: " if faults[0].place else ""
        reason = f"{shown(path)} cannot be parsed: {place}{faults[0].message}"
    elif faults:
        reason = f"{shown(path)} is refused: {faults[0].path}: {faults[0].message} [{faults[0].rule}]"
    return name, reason, _anew(context, path, spec_file, target)


def _targets(context: Context, older: list[ExaminedRuntime], spec_file: SpecFile | None) -> tuple[str, ...]:
    """Return the options that make cdigen write what OLDER runtimes read, where it does not by itself."""
    kinds = {spec_file.kind} if spec_file and spec_file.kind else context.kinds
    own = [product.document["cdiVersion"] for product in context.products if product.kind in kinds]
    words: list[str] = []
    for runtime in older:
        if (
            runtime.binary
            and runtime.binary.release
            and any(is_newer(version, runtime.newest) for version in own)
        ):
            words += ["--target", f"{runtime.name}-{'.'.join(map(str, runtime.binary.release))}"]
    return tuple(words)


def _anew(
    context: Context, path: str, spec_file: SpecFile | None = None, options: tuple[str, ...] = ()
) -> tuple[Remedy, ...]:
    """Return the commands that replace the file PATH by a valid spec."""
    own = {own_file(context, kind) for kind in context.offered_kinds}
    if context.products and (path in own or was_ours(context, path)):
        return write_specs(context, *options)
    moved = move_aside(context, path)
    if not moved or spec_file is None or _others_define(context, spec_file):
        return moved
    return (*moved, *write_specs(context, *options)) if spec_file.kind in context.offered_kinds else moved


def _others_define(context: Context, spec_file: SpecFile) -> bool:
    """Return whether another loaded file defines the kind of SPEC_FILE."""
    return any(
        other.path != spec_file.path and other.kind == spec_file.kind and other.state == "loaded"
        for view in context.views
        for other in view.files
    )


def _open(context: Context, problem: Problem) -> tuple[Remedy, ...]:
    """Return the commands that let the runtime's user read a file or directory, if root may be told."""
    is_file = problem.rule == "file-unreadable"
    try:
        real, status = context.host.located(problem.path)
    except OSError:
        return _anew(context, problem.path) if is_file else ()  # a link that leads nowhere
    if is_file and not stat.S_ISREG(status.st_mode):
        return _anew(context, problem.path)
    folders = ways(real) if stat.S_ISDIR(status.st_mode) else ways(real)[:-1]
    opened = {each: "a+rx" for each in folders if context.host.stat(each).st_mode & 0o005 != 0o005}
    if stat.S_ISREG(status.st_mode) and not status.st_mode & 0o004:
        opened[real] = "a+r"
    return open_to_all(context, opened) if all(may_change(context, each) for each in opened) else ()


_REMEDIES = {
    "conflict": _end_conflict,
    "file-unreadable": _open,
    "directory-unreadable": _open,
    "runtime-hangs": lambda context, problem: _anew(context, problem.path),
    "directory-symlink": _copy,
    "not-a-directory": _make_directory,
    "file-name-ignored": _change_ending,
}


def _missing(context: Context) -> Iterator[CheckResult]:
    """Report whether there is a spec for each kind that the host offers, and for each name asked for."""
    there = {file.kind for view in context.views for file in view.files if file.is_known}
    asked = context.request.devices
    lost = [
        kind for kind in context.offered_kinds if kind not in there and (not asked or kind in context.kinds)
    ]
    if lost:
        text = f"no spec of {', '.join(lost)} is in {' or '.join(context.configuration.spec_dirs)}"
        is_error = bool(set(lost) & context.kinds)
        yield TOPIC.failed(MISSING, text, write_specs(context), is_error=is_error)
        return
    if not context.products and not there:
        text = f"there is no spec in {' or '.join(context.configuration.spec_dirs)}, and none can be made now"
        yield TOPIC.error(MISSING, text, because=CAUSES)
        return
    unknown = [name for name in asked if name not in context.defined | context.offered]
    yield from (_unknown(context, name) for name in unknown)
    if not unknown:
        yield TOPIC.good(MISSING, f"there are specs of {', '.join(sorted(there))}")


def _unknown(context: Context, name: str) -> CheckResult:
    known = sorted(context.offered or context.defined, key=natural_key)
    text = f"this host has no device {shown(name)}; it has {listed(known) or 'none'}"
    listing = run_cdigen(context, "list", why="list the devices that there are", as_root=False)
    return TOPIC.error("device-unknown", text, (listing,), because=CAUSES)


CHECKS = (_loaded, _missing)
