"""The command ``cdigen install-service``: install units, hook and man pages of a wheel on the host."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import Counter
from contextlib import nullcontext

from cdigen.cli.host import restarts
from cdigen.cli.host.install_files import (
    ETC,
    IN_A_WHEEL,
    PACKAGE,
    InstallLayout,
    install_files,
    installation_lock,
    remove_files,
)
from cdigen.cli.shared import options, own_package, report
from cdigen.cli.shared.option_table import add
from cdigen.cli.shared.own_package import COMMAND
from cdigen.config import DEFAULT_PATH, Settings
from cdigen.host import childprocess
from cdigen.host.root import Root, reason, shown
from cdigen.host.trust import untrusted, untrusted_tree
from cdigen.model.errors import ConfigError, StoreError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from typing import Any

    from cdigen.cli.host.install_files import InstalledFile

EXAMPLES = """\
  cdigen install-service                       install it; start the daemon now and at boot
  cdigen install-service --prefix /usr/local   the same on a host whose /usr is read-only
  cdigen install-service --no-start            install only the files, for example in an image
  cdigen install-service --remove              stop the daemon, withdraw its specs, remove
                                               all files except /etc/cdigen
"""
_START = "systemctl daemon-reload && systemctl enable --now cdigen"
_IS_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 11))"
_DEADLINE_S = 20.0
_START_OPENRC = "rc-update add cdigen default && rc-service cdigen start"
# The folders that a unit with ProtectHome= cannot access (systemd.exec(5)).
_HOMES = ("/home/", "/root/", "/run/user/")


@frozen
class _Outcome:
    """The result of a run.

    ``service`` is the state of the service. ``next_steps`` are commands for the administrator.
    ``has_started`` is true if this run has started or restarted the services with new files.
    """

    files: tuple[InstalledFile, ...] = ()
    specs: tuple[str, ...] = ()
    service: str = "unknown"
    next_steps: tuple[str, ...] = ()
    has_started: bool = False

    @property
    def changed(self) -> bool:
        return self.has_started or any(file.result != "unchanged" for file in self.files)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    add(parser, "--remove", "--no-start")
    add(parser.add_argument_group("folders"), "--prefix", "--destdir")


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    options.absolute("--prefix", arguments.prefix)
    _require_scripts()
    is_for_this_host = not arguments.destdir
    if is_for_this_host and not arguments.remove:
        _require_installed()
    if is_for_this_host and os.geteuid() != 0:
        raise StoreError(
            "install-service changes the host: needs root", hint=own_package.as_root(*sys.argv[1:])
        )
    layout = _layout(arguments)
    _require_trusted(layout)
    change = _remove if arguments.remove else _install
    with installation_lock() if is_for_this_host else nullcontext(()) as lock:
        outcome = change(layout, arguments, lock)
    if arguments.json:
        report.print_json(_document(layout, outcome))
    else:
        _print(layout, outcome, arguments)
    return 0


def _layout(arguments: Namespace) -> InstallLayout:
    destdir = os.path.abspath(arguments.destdir) if arguments.destdir else ""
    settings = Settings()
    if os.path.isdir(destdir or "/"):
        host = Namespace(root=destdir or "/", config=None)
        _, settings, wrong = options.host_and_usable_settings(host)
        report.print_findings(wrong, arguments)
    prefix = "/" + arguments.prefix.strip("/")
    return InstallLayout(prefix=prefix, destdir=destdir, hook_python=settings.hook_python)


def _install(layout: InstallLayout, arguments: Namespace, lock: tuple[int, ...]) -> _Outcome:
    _require_writable(layout)
    _require_python(layout.hook_python)
    was_unfinished = layout.unfinished
    files = install_files(layout, lock)
    if layout.destdir:
        return _Outcome(files=files)
    is_first = layout.unfinished == "start"
    has_changed = bool(was_unfinished) or any(file.result != "unchanged" for file in files)
    if not restarts.has_systemd():
        has_openrc = any(file.path.endswith("/init.d/cdigen") for file in files)
        return _Outcome(files=files, next_steps=(_START_OPENRC if has_openrc else _START,))
    if arguments.no_start:
        layout.finish()
        restart = "systemctl daemon-reload && systemctl try-restart cdigen cdigen-nri cdigen-kubelet"
        step = _START if is_first else restart if has_changed else ""
        return _Outcome(files=files, service=restarts.own_state(), next_steps=(step,) if step else ())
    if is_first:
        restarts.start_own()
    elif has_changed:
        restarts.restart_own()
    layout.finish()
    state = restarts.own_state()
    steps = () if state == "active" else (_START,)
    return _Outcome(files=files, service=state, next_steps=steps, has_started=is_first or has_changed)


def _remove(layout: InstallLayout, arguments: Namespace, lock: tuple[int, ...]) -> _Outcome:  # noqa: ARG001 - as _install
    # The package must be identified before its files are removed.
    steps = () if layout.destdir else own_package.removal()
    if layout.is_installed:
        _require_writable(layout)
    files, specs = remove_files(layout, lock)
    return _Outcome(files=files, specs=specs, next_steps=steps)


def _require_scripts() -> None:
    """Raise ConfigError if this cdigen is in a distribution's package, which omits the files to install."""
    if not os.path.exists(f"{ETC}/refusals"):
        raise ConfigError(
            f"this cdigen in {shown(PACKAGE)} belongs to a package, which installs and removes its own files",
            hint="use the package manager; with another cdigen, run its own command by its path",
        )


def _require_installed() -> None:
    """Raise ConfigError if root's services cannot run the code of this process.

    The services must be able to read the code. Only root may change the code.
    """
    if ETC != IN_A_WHEEL:
        raise ConfigError(
            f"this cdigen runs from its sources in {shown(os.path.dirname(PACKAGE))}",
            hint="run 'make install' in this folder",
        )
    if not os.access(COMMAND, os.X_OK):
        raise ConfigError(
            f"{shown(COMMAND)}, the command of the services, does not exist",
            hint="install cdigen with pipx, or with pip into a virtual environment",
        )
    hint = f"install cdigen for the whole host: {own_package.installation_for_all()}"
    for path in (COMMAND, sys.executable, sys.prefix, sys.base_prefix, PACKAGE):
        locations = (location for location in (path, os.path.realpath(path)) if location.startswith(_HOMES))
        at_home = next(locations, "")
        if at_home:
            raise ConfigError(
                f"this cdigen needs {shown(at_home)}, but services cannot access homes (ProtectHome=)",
                hint=hint,
            )
    for path in (COMMAND, sys.executable, f"{PACKAGE}/__init__.py", f"{ETC}/install"):
        if problem := untrusted(path):
            raise ConfigError(f"root's services cannot run this cdigen: {problem}", hint=hint)


def _require_writable(layout: InstallLayout) -> None:
    """Raise StoreError if the file system of the prefix is read-only."""
    for name in ("lib", "libexec", "share"):
        folder = f"{layout.destdir}{layout.prefix}/{name}"
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        try:
            is_read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
        except OSError as error:
            raise StoreError(f"{shown(folder)} cannot be examined: {reason(error)}") from error
        if is_read_only:
            other = "/usr/local" if layout.prefix == "/usr" else "/etc/cdigen/installed"
            raise StoreError(
                f"{shown(folder)} is read-only: nothing was installed",
                hint=f"cdigen install-service --prefix {other}",
            )


def _require_trusted(layout: InstallLayout) -> None:
    """Raise ConfigError if root would write into folders that other users can change.

    In such a folder, a user could create a link, or add a path to the list of installed files. root would
    then change a file that this user cannot change. The check applies only to root, because a packager
    without root's rights cannot change such files.
    """
    if os.geteuid() != 0:
        return
    paths = (*layout.folders, layout.record[len(layout.destdir) :])
    if not layout.destdir:
        problem = next(filter(None, (untrusted(_existing(path)) for path in paths)), "")
        hint = "use a prefix that only root can change, such as /usr or /opt/cdigen"
    else:
        destdir = os.path.realpath(layout.destdir)
        tree = Root(_existing(destdir))
        # The configuration file is checked too, because it names a program that root executes.
        inside = sorted({_existing(path, tree) for path in (*paths, DEFAULT_PATH)})
        # In a user namespace, files of the host's root have the overflow UID (see also store.pathwalk).
        owners = frozenset({os.stat("/").st_uid})
        problem = untrusted_tree(tree, tuple(inside) if os.path.exists(destdir) else ("/",), owners=owners)
        problem = problem and f"{shown(tree.outer)}: {problem}"
        hint = "use a folder that only root can change, or run the command as its owner"
    if problem:
        raise ConfigError(f"nothing was changed: {problem}", hint=hint)


def _existing(path: str, tree: Root | None = None) -> str:
    """Return PATH if it exists in TREE, otherwise the deepest folder above PATH that exists.

    The default of TREE is this machine.
    """
    tree = tree or Root()
    while path != "/" and not tree.exists(path):
        path = os.path.dirname(path)
    return path


def _require_python(path: str) -> None:
    """Raise ConfigError if PATH is not a Python interpreter that can run the hook."""
    try:
        ending = childprocess.run((path, "-I", "-c", _IS_NEW_ENOUGH), deadline_s=_DEADLINE_S)
    except OSError:
        ending = None
    if ending is None or ending.by != "itself" or ending.status != 0:
        raise ConfigError(
            f"{shown(path)}, which runs the hook, is not Python 3.11 or newer",
            hint="set hook_python in /etc/cdigen/config.yaml",
        )


def _document(layout: InstallLayout, outcome: _Outcome) -> dict[str, Any]:
    return {
        "changed": outcome.changed,
        "prefix": layout.prefix,
        "command": COMMAND,
        "files": [{"path": file.path, "result": file.result} for file in outcome.files],
        "specs": list(outcome.specs),
        "service": outcome.service,
        "next_steps": list(outcome.next_steps),
    }


def _print(layout: InstallLayout, outcome: _Outcome, arguments: Namespace) -> None:
    top = shown(layout.destdir + layout.prefix)
    changes = [file for file in outcome.files if file.result != "unchanged"]
    if arguments.verbose:
        for file in changes:
            report.write(sys.stdout, f"{file.result} {shown(file.path)}\n")
    elif changes:
        counts = Counter(file.result for file in changes)
        text = ", ".join(f"{count} file{'s' * (count != 1)} {result}" for result, count in counts.items())
        report.write(sys.stdout, f"{top}: {text} (--verbose lists them)\n")
    if not outcome.changed:
        result = "nothing to remove" if arguments.remove else "all files are up to date"
        report.print_note(f"{result} in {top}", arguments)
    for spec in outcome.specs:
        report.print_note(
            f"{shown(spec)} stays: this spec of another program uses the removed hook", arguments
        )
    if outcome.service != "unknown":
        report.print_note(f"the service is {outcome.service}", arguments)
    for step in outcome.next_steps:
        report.print_note(f"next step: {step}", arguments)
