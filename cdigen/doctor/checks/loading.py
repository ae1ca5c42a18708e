"""Check whether the runtimes load the spec files; each reason to ignore a file has its own check."""

from __future__ import annotations

import posixpath
import stat
from contextlib import suppress

from cdigen.cdi.parse_cache import parse_and_check
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.cdi.version import KNOWN_VERSIONS, is_newer
from cdigen.doctor.checks.driver import CAUSES
from cdigen.doctor.commands import (
    file_command,
    free_path,
    move_aside,
    open_to_all,
    rename,
    restart,
    set_target,
    write_specs,
)
from cdigen.doctor.remedy_safety import may_change, may_copy, ways
from cdigen.doctor.result import Topic, listed
from cdigen.doctor.spec_documents import MAX_SIZE, is_ours, own_file, was_ours
from cdigen.host.root import shown
from cdigen.model.findings import errors
from cdigen.model.names import is_yaml, natural_key
from cdigen.runtimes.releases import RUNTIME_NAMES
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
# Rule of runtimes.scan -> the name of the check, and the message of a passed check.
CAUSE_CHECKS = {
    "conflict": ("spec-conflict", "no two files of a directory define the same device"),
    "file-refused": ("spec-refused", "the runtimes accept every file"),
    "runtime-crashes": ("spec-crash", "no file causes a runtime to crash"),
    "runtime-hangs": ("spec-hangs", "no file causes a runtime to hang"),
    "file-unreadable": ("spec-unreadable", "every file is readable"),
    "directory-unreadable": ("spec-directory-unreadable", "every directory is readable"),
    "directory-symlink": ("spec-directory-link", "no directory is a link"),
    "not-a-directory": ("spec-directory-kind", "every spec directory is a directory"),
    "file-name-ignored": ("spec-name", "every file name ends in .json or .yaml"),
    "file-uncertain": ("spec-uncertain", "the state of every file is certain"),
}
# A rejected file fails one of these checks instead of ``spec-refused`` if the fault is the version or syntax.
VERSION, SYNTAX = "spec-version", "spec-syntax"
LOADING = (*(name for name, _ in CAUSE_CHECKS.values()), VERSION, SYNTAX)
_OF_FOLDERS = {"directory-symlink", "directory-unreadable", "scan-stops"}
# The first cdiVersion that permits device names with a digit at the beginning (cdi.version).
NUMBERS_SINCE = "0.5.0"
# The values of Resolution.rule whose cause is not a file.
_WITHOUT_FILE = {"not-a-name", "unknown-device", "unknown-kind", "no-specs"}


@frozen
class IgnoredPath:
    """A file or directory that runtimes ignore, with the rule and the reason.

    ``lost`` are the required names that do not resolve for this reason.
    """

    rule: str
    path: str
    reason: str
    runtimes: tuple[ExaminedRuntime, ...]
    lost: tuple[str, ...]


def _loaded(context: Context) -> Iterator[CheckResult]:
    """Report the files and directories that the runtimes ignore, each with the reason."""
    found = [_result_of(context, problem) for problem in problems(context)]
    failed = [result for result in found if result is not None]
    yield from failed
    names = {result.check for result in failed}
    passed = (
        *CAUSE_CHECKS.values(),
        (VERSION, "no cdiVersion is too new"),
        (SYNTAX, "all files are parsable"),
    )
    for name, text in passed:
        if name not in names:
            yield TOPIC.passed(name, text)


def problems(context: Context) -> tuple[IgnoredPath, ...]:
    """Return the files and directories that at least one runtime ignores."""
    reasons: dict[tuple[str, str], str] = {}
    runtimes: dict[tuple[str, str], dict[str, ExaminedRuntime]] = {}
    lost: dict[tuple[str, str], set[str]] = {}
    for runtime in context.readers:
        view = context.view(runtime)
        for finding in view.problems:
            key = (finding.rule, finding.path)
            reasons.setdefault(key, finding.message)
            runtimes.setdefault(key, {})[runtime.name] = runtime
        for resolution in lost_names(context, runtime):
            if resolution.rule not in _WITHOUT_FILE:
                key = (resolution.rule, _path_of(resolution))
                reasons.setdefault(key, resolution.reason)
                runtimes.setdefault(key, {})[runtime.name] = runtime
                lost.setdefault(key, set()).add(resolution.device)
    return tuple(
        IgnoredPath(
            rule=key[0],
            path=key[1],
            reason=text,
            runtimes=tuple(runtimes[key].values()),
            lost=tuple(sorted(lost.get(key, ()), key=natural_key)),
        )
        for key, text in reasons.items()
    )


def _path_of(resolution: Resolution) -> str:
    """Return the path that prevents RESOLUTION.

    The path is a file, or the directory of the file if runtimes ignore the whole directory.
    """
    is_file = resolution.file in resolution.files
    return (
        posixpath.dirname(resolution.file) if resolution.rule in _OF_FOLDERS and is_file else resolution.file
    )


def lost_names(context: Context, runtime: ExaminedRuntime) -> list[Resolution]:
    """Return the failed resolutions of the required names by RUNTIME."""
    view = context.view(runtime)
    found = {name for name, _ in view.devices}
    return [view.resolve(name) for name in context.required if name not in found]


def _result_of(context: Context, problem: IgnoredPath) -> CheckResult | None:
    name = CAUSE_CHECKS.get(problem.rule, ("spec-uncertain", ""))[0]
    spec_file = context.spec_files.get(problem.path)
    if _is_irrelevant(context, problem, spec_file):
        return None
    reason, remedies = problem.reason, _REMEDIES.get(problem.rule, lambda *_: ())(context, problem)
    if problem.rule in {"file-refused", "runtime-crashes", "file-uncertain"}:
        name, reason, remedies = _refused(context, problem, name, spec_file)
    is_error = bool(problem.lost) or problem.rule == "runtime-hangs"
    if problem.rule == "file-name-ignored" and not is_error:
        return None  # another file defines the same devices
    because = CAUSES if _is_irreplaceable(context, problem.path, spec_file) else ()
    return TOPIC.failed(name, f"{reason}{_lost_text(problem)}", remedies, because, is_error=is_error)


def _replace_link(context: Context, problem: IgnoredPath) -> tuple[Remedy, ...]:
    """Return the commands that replace a link by a directory, if the commands are safe for root.

    The new directory contains copies of the files. If the target of the link is another spec directory, the
    new directory is empty.
    """
    if not may_copy(context, problem.path):
        return ()
    path, copy = context.outer(problem.path), context.outer(free_path(context, problem.path, ".cdigen"))
    real = context.host.resolve(problem.path)
    removed = file_command("remove the link", "rm", path)
    restarts = tuple(_restarts(context, problem))
    if real in _real_directories(context, problem):
        return (removed, file_command("create the directory", "mkdir", path), *restarts)
    copied = file_command("copy the target of the link", "cp", "-aT", context.outer(real), copy)
    return (copied, removed, file_command("rename the copy", "mv", "-T", copy, path), *restarts)


def _real_directories(context: Context, problem: IgnoredPath) -> set[str]:
    """Return the real paths of the other spec directories of cdigen and of the runtimes of PROBLEM."""
    every = {path for runtime in problem.runtimes for path in runtime.settings.spec_dirs}
    found = set()
    for path in (every | {*context.configuration.spec_dirs}) - {problem.path}:
        if not context.host.is_link(path):
            with suppress(OSError):
                found.add(context.host.resolve(path))
    return found


def _make_directory(context: Context, problem: IgnoredPath) -> tuple[Remedy, ...]:
    """Return the commands that create a directory in place of a path of another type."""
    moved = move_aside(context, problem.path)
    if not moved:
        return ()
    made = file_command("create the directory", "mkdir", context.outer(problem.path))
    written = write_specs(context) if context.products else ()
    return (*moved, made, *written, *_restarts(context, problem))


def _restarts(context: Context, problem: IgnoredPath) -> Iterator[Remedy]:
    """Yield the commands that restart the runtimes of PROBLEM, whose daemons still watch the former path."""
    for runtime in problem.runtimes:
        if runtime.name in context.daemons:
            yield from restart(context, runtime.name)


def _change_ending(context: Context, problem: IgnoredPath) -> tuple[Remedy, ...]:
    """Return the command that gives a file an ending that runtimes read."""
    stem, ending = posixpath.splitext(problem.path)
    target = free_path(context, stem, ".json" if ending.lower() == ".json" else ".yaml")
    return rename(context, {problem.path: target})


def _lost_text(problem: IgnoredPath) -> str:
    if not problem.lost:
        return ""
    names = " and ".join(runtime.shown for runtime in problem.runtimes)
    return f"; {names} cannot resolve {listed(problem.lost)}"


def _is_irrelevant(context: Context, problem: IgnoredPath, spec_file: SpecFile | None) -> bool:
    """Return whether PROBLEM concerns only devices that are not requested."""
    if problem.lost or not context.request.devices or problem.rule in {"runtime-crashes", "runtime-hangs"}:
        return False
    return spec_file is None or spec_file.kind not in context.kinds


def _end_conflict(context: Context, problem: IgnoredPath) -> tuple[Remedy, ...]:
    """Return the commands that rename all conflicting files except the file with the highest preference."""
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
    """Return the preference of a conflicting file as a sort key.

    A file of cdigen has the highest preference. The next criteria are a valid content, cdigen's own path for
    the kind, and a later change of the file.
    """
    try:
        data = context.host.read(path, limit=MAX_SIZE)
        changed = context.host.stat(path).st_mtime
    except OSError:
        return False, False, False, 0.0
    reading = parse_and_check(data, yaml=is_yaml(path))
    is_valid = (
        reading.document is not None
        and not errors(reading.findings)
        and not check_host(reading.document, context.host)
    )
    is_own = path in {own_file(context, kind) for kind in context.kinds}
    return is_ours(context, path), is_valid, is_own, changed


def _refused(
    context: Context, problem: IgnoredPath, name: str, spec_file: SpecFile | None
) -> tuple[str, str, tuple[Remedy, ...]]:
    """Return the check, the reason and the remedies for a file that runtimes reject, or that crashes them."""
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
    if older:
        name = VERSION
        limits = " and ".join(f"{runtime.shown} reads at most {runtime.newest}" for runtime in older)
        reason = f"{shown(path)}: cdiVersion {version} is too new: {limits}{_lost_numbers(context, older)}"
        if target := _targets(context, older, spec_file):
            text, remedies = set_target(context, target, spec_file.kind if spec_file else "")
            renewed = _regenerate(context, path, spec_file) if remedies else ()
            return name, f"{reason}{text}", (*remedies, *renewed)
    elif reading.document is None and faults:
        name = SYNTAX
        place = f"line {faults[0].place[0]}: " if faults[0].place else ""
        reason = f"{shown(path)}: invalid syntax: {place}{faults[0].message}"
    elif faults:
        reason = f"{shown(path)}: rejected: {faults[0].path}: {faults[0].message} [{faults[0].rule}]"
    return name, reason, _regenerate(context, path, spec_file)


def _lost_numbers(context: Context, older: list[ExaminedRuntime]) -> str:
    """Return a text about required names that begin with a digit, if OLDER cannot resolve such names."""
    numbers = [name for name in context.required if name.partition("=")[2][:1].isdigit()]
    if not numbers or not any(is_newer(NUMBERS_SINCE, runtime.newest) for runtime in older):
        return ""
    names = listed(map(shown, numbers), most=2)
    return f"; {names} cannot be resolved: a name that begins with a digit needs {NUMBERS_SINCE}"


def _targets(context: Context, older: list[ExaminedRuntime], spec_file: SpecFile | None) -> tuple[str, ...]:
    """Return the releases in OLDER that cannot read the specs that cdigen would generate now."""
    kinds = {spec_file.kind} if spec_file and spec_file.kind else context.kinds
    own = [product.document["cdiVersion"] for product in context.products if product.kind in kinds]
    return tuple(
        f"{RUNTIME_NAMES[runtime.name]}-{'.'.join(map(str, runtime.binary.release))}"
        for runtime in older
        if runtime.binary
        and runtime.binary.release
        and any(is_newer(version, runtime.newest) for version in own)
    )


def _regenerate(context: Context, path: str, spec_file: SpecFile | None = None) -> tuple[Remedy, ...]:
    """Return the commands that replace the file PATH by a valid spec."""
    if _is_irreplaceable(context, path, spec_file):
        return ()
    own = {own_file(context, kind) for kind in context.offered_kinds}
    if path in own or was_ours(context, path):
        return write_specs(context)
    moved = move_aside(context, path)
    if not moved or spec_file is None or _others_define(context, spec_file):
        return moved
    return (*moved, *write_specs(context)) if spec_file.kind in context.offered_kinds else moved


def _is_irreplaceable(context: Context, path: str, spec_file: SpecFile | None) -> bool:
    """Return whether PATH is cdigen's spec of a kind that cdigen cannot generate now."""
    if not was_ours(context, path):
        return False
    if spec_file is not None and spec_file.kind:
        return spec_file.kind not in context.offered_kinds
    return path not in {own_file(context, kind) for kind in context.offered_kinds}


def _others_define(context: Context, spec_file: SpecFile) -> bool:
    """Return whether another loaded file defines the kind of SPEC_FILE."""
    return any(
        other.path != spec_file.path and other.kind == spec_file.kind and other.state == "loaded"
        for view in context.views
        for other in view.files
    )


def _open(context: Context, problem: IgnoredPath) -> tuple[Remedy, ...]:
    """Return the commands that let the runtime's user read a path, if the commands are safe for root."""
    is_file = problem.rule == "file-unreadable"
    try:
        real, status = context.host.located(problem.path)
    except OSError:
        return _regenerate(context, problem.path) if is_file else ()  # a dangling link
    if is_file and not stat.S_ISREG(status.st_mode):
        return _regenerate(context, problem.path)
    folders = ways(real) if stat.S_ISDIR(status.st_mode) else ways(real)[:-1]
    opened = {each: "a+rx" for each in folders if context.host.stat(each).st_mode & 0o005 != 0o005}
    if stat.S_ISREG(status.st_mode) and not status.st_mode & 0o004:
        opened[real] = "a+r"
    return open_to_all(context, opened) if all(may_change(context, each) for each in opened) else ()


_REMEDIES = {
    "conflict": _end_conflict,
    "file-unreadable": _open,
    "directory-unreadable": _open,
    "runtime-hangs": lambda context, problem: _regenerate(context, problem.path),
    "directory-symlink": _replace_link,
    "not-a-directory": _make_directory,
    "file-name-ignored": _change_ending,
}


CHECKS = (_loaded,)
