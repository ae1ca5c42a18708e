"""``cdigen configure``: enable CDI in a runtime's own configuration, or restore the original."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from cdigen.cli import options, report
from cdigen.cli.restarts import command_for, restart
from cdigen.host.root import is_plain, shown
from cdigen.model.change import Change
from cdigen.model.errors import ConfigError, StoreError
from cdigen.model.findings import Finding
from cdigen.runtimes import installed
from cdigen.runtimes.edits.plan import DesiredConfig, refuse_broken
from cdigen.runtimes.releases import RUNTIME_NAMES
from cdigen.runtimes.settings import read
from cdigen.store import configfiles
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.runtimes.edits.plan import Plan
    from cdigen.runtimes.installed import InstalledRuntime

EXAMPLES = """\
  cdigen configure docker --dry-run        what would change in Docker's configuration
  cdigen configure docker --restart        change it, and restart Docker
  cdigen configure containerd --nri        switch NRI on as well
  cdigen configure crio --nri-required     and let nothing start while cdigen's plugin is away
  cdigen configure podman --spec-dir /srv/cdi --spec-dir /var/run/cdi
                                           directories that podman shall read, the last first
  cdigen configure docker --undo           put the configuration back as it was
"""


@frozen
class _Work:
    """What a run is about to do: the changes, and what there is to say of them."""

    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    names = tuple(RUNTIME_NAMES)
    parser.add_argument("runtime", metavar="RUNTIME", choices=names, help=", ".join(names))
    parser.add_argument(
        "--dry-run", action="store_true", help="change nothing, print what would be as a diff"
    )
    parser.add_argument(
        "--undo", action="store_true", help="restore the files as they were before this command changed them"
    )
    parser.add_argument("--nri", action="store_true", help="switch NRI on as well (containerd, crio)")
    parser.add_argument(
        "--nri-required",
        action="store_true",
        help="as --nri, and no container starts while the plugin is away (containerd 2.2, CRI-O 1.34)",
    )
    parser.add_argument("--restart", action="store_true", help="restart the runtime if anything was changed")
    parser.add_argument(
        "--spec-dir",
        metavar="DIR",
        type=options.not_empty,
        action="append",
        help="a spec directory that the runtime shall read, as the host names it; repeat it, the last has "
        "priority (default: those of the configuration)",
    )
    options.add_root_options(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    _refuse_contradictions(arguments, host)
    state_dir = options.outer_directory(host, settings.state_dir)
    name = arguments.runtime
    binary = _binary(name, host)
    if arguments.restart and binary is None:
        raise ConfigError(f"{_absence(name)}, so there is nothing to restart", hint="leave --restart away")
    if arguments.undo:
        work = _undoing(arguments, host, state_dir)
        if not arguments.dry_run:
            _restore(name, work, host, state_dir)
    else:
        work = _doing(name, host, _desired(arguments, settings), binary)
        if work.changes and not arguments.dry_run:
            check = _check(name, host, binary)
            configfiles.apply(name, work.changes, host=host, state_dir=state_dir, check=check)
    restarted = restart(name, host) if work.changes and arguments.restart else ""
    command = " ".join(command_for(name, host)) if binary is not None else ""
    if arguments.json:
        report.print_json(_document(arguments, work, restarted=restarted, command=command))
    else:
        _tell(arguments, work, state_dir=state_dir, restarted=restarted, command=command)
    return 0


def _refuse_contradictions(arguments: Namespace, host: Root) -> None:
    if arguments.undo and (arguments.nri or arguments.nri_required or arguments.spec_dir):
        raise ConfigError(
            "--undo restores the files as they were",
            hint="give it without --nri, --nri-required and --spec-dir",
        )
    if arguments.restart and arguments.dry_run:
        raise ConfigError("--dry-run changes nothing, so there is nothing to restart", hint="leave one away")
    if arguments.restart and not host.is_this_machine:
        raise ConfigError(
            "--restart is for this machine, and --root names another host", hint="restart the runtime there"
        )
    for folder in arguments.spec_dir or ():
        options.absolute("--spec-dir", folder)


def _desired(arguments: Namespace, settings: Settings) -> DesiredConfig:
    given = arguments.spec_dir or settings.spec_dirs
    return DesiredConfig(
        spec_dirs=tuple(dict.fromkeys(given)),
        nri=arguments.nri or arguments.nri_required,
        nri_required=arguments.nri_required,
    )


def _binary(name: str, host: Root) -> InstalledRuntime | None:
    return next((one for one in installed.find(host) if one.runtime == RUNTIME_NAMES[name]), None)


def _doing(name: str, host: Root, desired: DesiredConfig, binary: InstalledRuntime | None) -> _Work:
    """Return what makes the runtime's configuration say what DESIRED says."""
    release = binary.release if binary is not None else None
    settings = read(RUNTIME_NAMES[name], host, release)

    def content(path: str) -> bytes | None:
        return configfiles.current(host, path)

    for path in dict.fromkeys((settings.edited_file, *settings.files)):
        content(path)  # what cannot be read is said before anything is made of the rest
    refuse_broken(settings)  # a plan takes keys for what they must be
    plan: Plan = import_module(f"cdigen.runtimes.edits.{name}").plan(settings, release, desired, content)
    missing = () if binary is not None else (_missing(name, settings.edited_file),)
    return _Work(changes=plan.changes, findings=(*missing, *plan.findings))


def _missing(name: str, path: str) -> Finding:
    return Finding(
        severity="warning",
        rule="runtime-missing",
        path=path,
        message=f"{_absence(name)}; what is set counts once it is there",
        hint="install it, or take this back with --undo",
    )


def _absence(name: str) -> str:
    program = installed.BINARIES[RUNTIME_NAMES[name]]
    return (
        f"{name} is not installed: there is no {program} in {installed.FOLDERS[0]} or the other usual places"
    )


def _undoing(arguments: Namespace, host: Root, state_dir: str) -> _Work:
    """Return what restores every original; raises StoreError where others have changed a file since.

    Then the difference is shown, and no file is restored.
    """
    files = configfiles.configured(arguments.runtime, host=host, state_dir=state_dir)
    files = tuple(file for file in files if not file.is_undone)
    changed = [file for file in files if not file.is_ours]
    if not changed:
        changes = (Change(path=file.path, before=file.present, after=file.original) for file in files)
        return _Work(changes=tuple(changes))
    for file in changed:
        if file.is_known and not arguments.json:
            diff = _diff(Change(path=file.path, before=file.present, after=file.original))
            report.write(sys.stdout, diff)
    first = changed[0]
    hint = "take the keys of cdigen out by hand; the original is not kept"
    if first.backup:
        hint = f"change it back by hand; the original is {shown(first.backup)}"
    elif first.is_known:
        hint = "take the keys of cdigen out by hand, or remove the file, which cdigen made"
    why = "was changed by others since, and --undo would lose that"
    raise StoreError(
        f"{shown(first.path)} {why if first.is_known else 'cannot be restored: what it was is not known'}",
        hint=hint,
        kind="changed-since",
    )


def _restore(name: str, work: _Work, host: Root, state_dir: str) -> None:
    # Where the files hold nothing of ours any more, the record goes all the same.
    if work.changes or configfiles.configured(name, host=host, state_dir=state_dir):
        configfiles.revert(name, work.changes, host=host, state_dir=state_dir)


def _check(name: str, host: Root, binary: InstalledRuntime | None) -> configfiles.Check | None:
    """Return dockerd's own judgement of a file, where there is a dockerd that may be asked."""
    if name != "docker" or not host.is_this_machine or binary is None:
        return None
    from cdigen.cli.restarts import dockerd_check  # noqa: PLC0415 - for Docker alone

    return dockerd_check(binary)


def _tell(arguments: Namespace, work: _Work, *, state_dir: str, restarted: str, command: str) -> None:
    _tell_findings(arguments, work)
    for change in work.changes:
        if arguments.dry_run:
            text = _diff(change)
            report.write(sys.stdout, _for_terminal(text) if sys.stdout.isatty() else text)
        else:
            keys = f": {', '.join(change.keys)}" if change.keys else ""
            report.write(sys.stdout, f"{_result(arguments, change)} {shown(change.path)}{keys}\n")
    if not work.changes:
        report.print_note(f"nothing to {'undo' if arguments.undo else 'do'}", arguments)
    elif arguments.dry_run:
        report.print_note("nothing was changed", arguments)
    else:
        if not arguments.undo and any(change.before is not None for change in work.changes):
            kept = f"{shown(state_dir)}/configure/{arguments.runtime}"
            report.print_note(f"what was there is kept in {kept}", arguments)
        if restarted or command:
            text = f"done: {restarted}" if restarted else f"to make it count: {command}"
            report.print_note(text, arguments)


def _tell_findings(arguments: Namespace, work: _Work) -> None:
    for finding in work.findings:
        if finding.severity == "info":
            report.print_note(finding.message, arguments)
    report.print_findings((finding for finding in work.findings if finding.severity != "info"), arguments)


def _document(arguments: Namespace, work: _Work, *, restarted: str, command: str) -> dict[str, Any]:
    files = [
        {
            "path": change.path,
            "result": _result(arguments, change),
            "keys": list(change.keys),
            "diff": _diff(change),
        }
        for change in work.changes
    ]
    return {
        "runtime": arguments.runtime,
        "changed": bool(work.changes) and not arguments.dry_run,
        "files": files,
        "findings": [finding.row() for finding in work.findings],
        "restart": command if work.changes else "",
        "restarted": bool(restarted),
    }


def _result(arguments: Namespace, change: Change) -> str:
    if arguments.dry_run:
        return "would change"
    if change.after is None:
        return "removed"
    if change.before is None:
        return "written"
    return "restored" if arguments.undo else "changed"


def _diff(change: Change) -> str:
    """Return CHANGE as a unified diff that patch(1) takes."""
    from difflib import unified_diff  # noqa: PLC0415 - only where one is shown

    before, after = (
        (content or b"").decode("utf-8", "backslashreplace").splitlines(keepends=True)
        for content in (change.before, change.after)
    )
    name = _quoted(change.path)
    old, new = ("/dev/null" if text is None else name for text in (change.before, change.after))
    lines = unified_diff(before, after, old, new)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _quoted(path: str) -> str:
    """Return PATH as diff(1) writes it: in quotes, with octal escapes, if it has control characters."""
    if is_plain(path):
        return path
    plain = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in os.fsencode(path)
    )
    return f'"{"".join(plain)}"'


def _for_terminal(text: str) -> str:
    """Return TEXT with escapes for the control characters that a terminal would obey."""
    return "".join(char if char in "\n\t" or char.isprintable() else ascii(char)[1:-1] for char in text)
