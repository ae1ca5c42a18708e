"""The command ``cdigen configure``: enable CDI in the configuration of a runtime, or restore the original."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from cdigen.cli.host.restarts import SERVICES, command_for, dockerd_check, restart
from cdigen.cli.shared import options, report
from cdigen.cli.shared.option_table import add
from cdigen.doctor.kubernetes_node import bundled
from cdigen.host.root import is_plain, shown
from cdigen.model.change import Change
from cdigen.model.errors import ConfigError, StoreError
from cdigen.model.findings import Finding
from cdigen.runtimes import installed
from cdigen.runtimes.edits.plan import DesiredConfig, EditPlan, refuse_broken
from cdigen.runtimes.releases import RUNTIME_NAMES
from cdigen.runtimes.settings import read
from cdigen.runtimes.settings.config_files import UNREADABLE
from cdigen.runtimes.settings.generated import generated_file
from cdigen.runtimes.users import find_user
from cdigen.store import configfiles
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from cdigen.config import Settings
    from cdigen.doctor.kubernetes_node.bundled import BundledContainerd
    from cdigen.host.root import Root
    from cdigen.runtimes.installed import InstalledRuntime
    from cdigen.runtimes.users import User

EXAMPLES = """\
  cdigen configure docker --dry-run        print the changes of Docker's configuration
  cdigen configure docker --restart        change it, and restart Docker
  cdigen configure containerd --nri        also enable NRI
  cdigen configure crio --nri-required     also require cdigen's plugin for every container
  cdigen configure podman --spec-dir /srv/cdi --spec-dir /var/run/cdi
                                           the spec directories for podman; the last has priority
  cdigen configure docker --rootless       change the rootless Docker of the present user
  cdigen configure docker --undo           restore the original configuration
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    names = tuple(RUNTIME_NAMES)
    parser.add_argument("runtime", metavar="RUNTIME", choices=names, help=", ".join(names))
    add(parser, "--dry-run", help="print the changes as a diff, and change nothing")
    add(parser, "--undo", "--nri", "--nri-required", "--rootless", "--restart")
    text = (
        "a spec directory for the runtime, a path on the host; repeatable, the last has priority "
        "(default: the spec directories of cdigen's configuration)"
    )
    add(parser, "--spec-dir", help=text)
    options.add_root_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    _refuse_contradictions(arguments, host)
    user = _rootless_user(arguments, host)
    state_dir = (
        options.users_state_dir(settings.state_dir, os.environ)
        if user
        else options.outer_directory(host, settings.state_dir)
    )
    name = arguments.runtime
    contained = None
    if name == "containerd":
        bundled.refuse_talos(host)
        contained = bundled.bundled_containerd(host)
    binary = _binary(name, host, contained)
    if arguments.restart and binary is None:
        raise ConfigError(f"{_absence(name, host)}: nothing to restart", hint="omit --restart")
    if arguments.undo:
        work = _plan_undo(arguments, host, state_dir)
        if not arguments.dry_run:
            _restore(name, work, host, state_dir)
    else:
        work = _plan(name, host, _desired(arguments, settings), binary, contained or user)
        if not work.changes:
            own = configfiles.configured(name, host=host, state_dir=state_dir)
            work = replace(work, unchanged=tuple(file.path for file in own) or work.unchanged)
        elif not arguments.dry_run:
            check = dockerd_check(name, host, binary)
            configfiles.apply(name, work.changes, host=host, state_dir=state_dir, check=check)
    unit = contained.unit if contained is not None else ""
    restarted = restart(name, host, unit) if work.changes and arguments.restart else ""
    next_command = command_for(name, host, unit, is_rootless=user is not None)
    command = " ".join(next_command) if binary is not None else ""
    if arguments.json:
        report.print_json(_document(arguments, work, restarted=restarted, command=command))
    else:
        step = f"restart {name}" if binary is not None and name in SERVICES else ""
        _print(arguments, work, state_dir=state_dir, restarted=restarted, command=command or step)
    return 0


def _rootless_user(arguments: Namespace, host: Root) -> User | None:
    """Return the user whose rootless Docker --rootless configures; None without --rootless."""
    if not arguments.rootless:
        return None
    user = find_user(host, str(os.geteuid()), os.environ) if os.geteuid() else None
    if user is None:
        # Root changes no file in a folder of a user, because the user can replace the folder by a link.
        raise ConfigError(
            "--rootless configures the Docker of an ordinary user, but root runs this command",
            hint="run it as that user: 'runuser -u USER -- cdigen configure docker --rootless'",
        )
    return user


def _refuse_contradictions(arguments: Namespace, host: Root) -> None:
    if arguments.undo and (arguments.nri or arguments.nri_required or arguments.spec_dir):
        raise ConfigError(
            "--undo restores the files as they were",
            hint="use it without --nri, --nri-required and --spec-dir",
        )
    if arguments.restart and arguments.dry_run:
        raise ConfigError("--dry-run changes nothing: nothing to restart", hint="omit --restart or --dry-run")
    if arguments.restart and not host.is_this_machine:
        raise ConfigError(
            "--restart is for this machine, but --root names another host",
            hint="restart the runtime on that host",
        )
    if arguments.rootless and arguments.runtime != "docker":
        raise ConfigError(
            f"--rootless is for docker, not for {arguments.runtime}",
            hint="omit --rootless: a user's podman reads the configuration of the host",
        )
    if arguments.rootless and arguments.restart:
        raise ConfigError(
            "--restart restarts services of the host, but --rootless is for a service of a user",
            hint="omit --restart, then run 'systemctl --user restart docker'",
        )
    for folder in arguments.spec_dir or ():
        options.absolute("--spec-dir", folder)


def _desired(arguments: Namespace, settings: Settings) -> DesiredConfig:
    spec_dirs = arguments.spec_dir or settings.spec_dirs
    return DesiredConfig(
        spec_dirs=tuple(dict.fromkeys(spec_dirs)),
        nri=arguments.nri or arguments.nri_required,
        nri_required=arguments.nri_required,
    )


def _binary(name: str, host: Root, contained: BundledContainerd | None) -> InstalledRuntime | None:
    if contained is not None:
        return installed.examine(host, name, contained.binary)
    return next((one for one in installed.find(host) if one.runtime == RUNTIME_NAMES[name]), None)


def _plan(
    name: str,
    host: Root,
    desired: DesiredConfig,
    binary: InstalledRuntime | None,
    owner: BundledContainerd | User | None,
) -> EditPlan:
    """Return the changes that turn the runtime's configuration into DESIRED.

    OWNER is the Kubernetes distribution that starts the runtime, or the user of a rootless runtime.
    """
    release = binary.release if binary is not None else None
    if isinstance(owner, bundled.BundledContainerd):
        settings = bundled.read(host, owner, release)
    else:
        settings = read(RUNTIME_NAMES[name], host, release, owner)

    def content(path: str) -> bytes | None:
        return configfiles.current(host, path)

    unread = (finding.path for finding in settings.findings if finding.rule == UNREADABLE)
    for path in dict.fromkeys((settings.edited_file, *settings.files, *unread)):
        # If a file or folder is unreadable, the user lacks the rights to read it. It can still be valid.
        configfiles.require_readable(host, path)
    refuse_broken(settings)  # a plan relies on the types of the values
    plan: EditPlan = import_module(f"cdigen.runtimes.edits.{name}").plan(settings, release, desired, content)
    if isinstance(owner, bundled.BundledContainerd):
        bundled.require_kept(owner, (change.path for change in plan.changes))
    for change in plan.changes:
        if generated := generated_file(host, name, change.path):
            raise ConfigError(f"{generated.problem}: cdigen cannot change it", hint=generated.step)
    # The plan can change another file than the one for new keys.
    path = next((change.path for change in plan.changes), settings.edited_file)
    missing = () if binary is not None else (_missing(name, host, path),)
    unchanged = () if plan.changes else tuple(settings.files) or (settings.edited_file,)
    return replace(plan, findings=(*missing, *plan.findings), unchanged=unchanged)


def _missing(name: str, host: Root, path: str) -> Finding:
    return Finding(
        severity="warning",
        rule="runtime-missing",
        path=path,
        message=f"{_absence(name, host)}; the configuration takes effect when {name} is installed",
        hint=f"install {name}, or run 'cdigen configure {name} --undo'",
    )


def _absence(name: str, host: Root) -> str:
    program = installed.BINARIES[RUNTIME_NAMES[name]]
    if name == "docker" and (script := installed.emulated_docker(host)):
        return f"docker is not installed: {script} is podman's emulation of Docker"
    return f"{name} is not installed: no {program} in {installed.FOLDERS[0]} or the other usual folders"


def _plan_undo(arguments: Namespace, host: Root, state_dir: str) -> EditPlan:
    """Return the changes that restore every original file.

    If another program has changed a file, the command prints the difference, restores no file and raises
    StoreError.
    """
    files = configfiles.configured(arguments.runtime, host=host, state_dir=state_dir)
    files = tuple(file for file in files if not file.is_undone)
    changed = [file for file in files if not file.is_ours]
    if not changed:
        changes = (Change(path=file.path, before=file.present, after=file.original) for file in files)
        return EditPlan(changes=tuple(changes))
    for file in changed:
        if file.is_known and not arguments.json:
            diff = _diff(Change(path=file.path, before=file.present, after=file.original))
            report.write(sys.stdout, diff)
    first = changed[0]
    hint = "remove the keys of cdigen manually; there is no copy of the original"
    if first.backup:
        hint = f"restore the file manually; the original is {shown(first.backup)}"
    elif first.is_known:
        hint = "remove the keys of cdigen manually, or remove the file, which cdigen created"
    problem = "was changed by another program, and --undo would remove these changes"
    raise StoreError(
        f"{shown(first.path)} {problem if first.is_known else 'cannot be restored: the original is unknown'}",
        hint=hint,
        kind="changed-since",
    )


def _restore(name: str, work: EditPlan, host: Root, state_dir: str) -> None:
    # Remove cdigen's record of the originals even if the files contain no change of cdigen any more.
    if work.changes or configfiles.configured(name, host=host, state_dir=state_dir):
        configfiles.revert(name, work.changes, host=host, state_dir=state_dir)


def _without_changes(arguments: Namespace, work: EditPlan) -> str:
    if arguments.undo:
        return f"nothing to undo: cdigen has changed no file of {arguments.runtime}"
    return f"nothing to do: no change is needed in {', '.join(map(shown, work.unchanged))}"


def _print(arguments: Namespace, work: EditPlan, *, state_dir: str, restarted: str, command: str) -> None:
    _print_findings(arguments, work)
    for change in work.changes:
        if arguments.dry_run:
            text = _diff(change)
            report.write(sys.stdout, _for_terminal(text) if sys.stdout.isatty() else text)
        else:
            keys = f": {', '.join(change.keys)}" if change.keys else ""
            report.write(sys.stdout, f"{_result(arguments, change)} {shown(change.path)}{keys}\n")
    if not work.changes:
        report.print_note(_without_changes(arguments, work), arguments)
    elif arguments.dry_run:
        report.print_note("nothing was changed", arguments)
    else:
        if not arguments.undo and any(change.before is not None for change in work.changes):
            backup = f"{shown(state_dir)}/configure/{arguments.runtime}"
            report.print_note(f"the original is in {backup}", arguments)
        if restarted or command:
            text = f"done: {restarted}" if restarted else f"to apply the change: {command}"
            report.print_note(text, arguments)


def _print_findings(arguments: Namespace, work: EditPlan) -> None:
    for finding in work.findings:
        if finding.severity == "info":
            report.print_note(finding.message, arguments)
    report.print_findings((finding for finding in work.findings if finding.severity != "info"), arguments)


def _document(arguments: Namespace, work: EditPlan, *, restarted: str, command: str) -> dict[str, Any]:
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
    from difflib import unified_diff  # noqa: PLC0415 - only to print a diff

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
    """Return PATH as diff(1) prints it: a path with control characters has quotes and octal escapes."""
    if is_plain(path):
        return path
    plain = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in os.fsencode(path)
    )
    return f'"{"".join(plain)}"'


def _for_terminal(text: str) -> str:
    """Return TEXT with escapes for the control characters that a terminal would interpret."""
    return "".join(char if char in "\n\t" or char.isprintable() else ascii(char)[1:-1] for char in text)
