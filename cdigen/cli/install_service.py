"""``cdigen install-service``: put units, hook and man pages of an installed wheel onto the host."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from cdigen.cli import options, own_service, report
from cdigen.cli.placing import COMMAND, Placement, put, require_installed, require_writable, take_away
from cdigen.config import Settings
from cdigen.host import childprocess
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError, StoreError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from typing import Any

    from cdigen.cli.placing import PlacedFile

EXAMPLES = """\
  cdigen install-service                       put it there; start the daemon now and at boot
  cdigen install-service --prefix /usr/local   the same where /usr is read-only
  cdigen install-service --no-start            only the files, as for an image
  cdigen install-service --remove              stop the daemon, withdraw its specs, take it away;
                                               before 'pipx uninstall cdigen'
"""
_START = "systemctl daemon-reload && systemctl enable --now cdigen"
_IS_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 11))"
_DEADLINE_S = 20.0
_START_OPENRC = "rc-update add cdigen default && rc-service cdigen start"


@frozen
class _Outcome:
    """What a run did; ``service`` is the state of the service, ``left`` are commands for somebody to type."""

    files: tuple[PlacedFile, ...] = ()
    specs: tuple[str, ...] = ()
    service: str = "unknown"
    left: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return any(file.result != "unchanged" for file in self.files)


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "--remove",
        action="store_true",
        help="stop the services, withdraw specs that name the hook, remove what this command has put there",
    )
    parser.add_argument(
        "--no-start", action="store_true", help="only put the files there; enable, start and restart nothing"
    )
    group = parser.add_argument_group("where")
    group.add_argument(
        "--prefix",
        metavar="DIR",
        type=options.not_empty,
        default="/usr",
        help="below which folder (default: /usr)",
    )
    group.add_argument(
        "--destdir",
        metavar="DIR",
        type=options.not_empty,
        help="the folder that stands for /: nothing of this host is changed or started",
    )
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    options.absolute("--prefix", arguments.prefix)
    is_for_here = not arguments.destdir
    if is_for_here and os.geteuid() != 0:
        raise StoreError("this changes the host and needs root", hint="sudo cdigen install-service")
    placement = _placement(arguments)
    if is_for_here and not arguments.remove:
        require_installed()
    outcome = _removed(placement) if arguments.remove else _installed(placement, arguments)
    if arguments.json:
        report.print_json(_document(placement, outcome))
    else:
        _tell(placement, outcome, arguments)
    return 0


def _placement(arguments: Namespace) -> Placement:
    destdir = os.path.abspath(arguments.destdir) if arguments.destdir else ""
    settings = Settings()
    if os.path.isdir(destdir or "/"):
        asked = Namespace(root=destdir or "/", config=None)
        _, settings, wrong = options.host_and_usable_settings(asked)
        report.print_findings(wrong, arguments)
    prefix = "/" + arguments.prefix.strip("/")
    return Placement(prefix=prefix, destdir=destdir, hook_python=settings.hook_python)


def _installed(placement: Placement, arguments: Namespace) -> _Outcome:
    require_writable(placement)
    _require_python(placement.hook_python)
    is_first = not placement.is_there
    files = put(placement)
    has_changed = any(file.result != "unchanged" for file in files)
    if placement.destdir:
        return _Outcome(files=files)
    if not own_service.has_systemd():
        has_openrc = any(file.path.endswith("/init.d/cdigen") for file in files)
        return _Outcome(files=files, left=(_START_OPENRC if has_openrc else _START,))
    if arguments.no_start:
        restart = "systemctl daemon-reload && systemctl try-restart cdigen cdigen-nri cdigen-kubelet"
        left = _START if is_first else restart if has_changed else ""
        return _Outcome(files=files, service=own_service.state(), left=(left,) if left else ())
    if is_first:
        own_service.start()
    elif has_changed:
        own_service.restart()
    state = own_service.state()
    return _Outcome(files=files, service=state, left=() if state == "active" else (_START,))


def _removed(placement: Placement) -> _Outcome:
    if not placement.is_there:
        return _Outcome()
    require_writable(placement)
    files, specs = take_away(placement)
    return _Outcome(files=files, specs=specs, left=("pipx uninstall cdigen",))


def _require_python(path: str) -> None:
    """Raise ConfigError where PATH, which would run the start-up hook, is none that can."""
    try:
        ending = childprocess.run((path, "-I", "-c", _IS_NEW_ENOUGH), deadline_s=_DEADLINE_S)
    except OSError:
        ending = None
    if ending is None or ending.by != "itself" or ending.status != 0:
        raise ConfigError(
            f"{shown(path)}, which would run the start-up hook, is no Python 3.11 or newer",
            hint="name one with hook_python in /etc/cdigen/config.yaml",
        )


def _document(placement: Placement, outcome: _Outcome) -> dict[str, Any]:
    return {
        "changed": outcome.changed,
        "prefix": placement.prefix,
        "command": COMMAND,
        "files": [{"path": file.path, "result": file.result} for file in outcome.files],
        "specs": list(outcome.specs),
        "service": outcome.service,
        "left": list(outcome.left),
    }


def _tell(placement: Placement, outcome: _Outcome, arguments: Namespace) -> None:
    for file in outcome.files:
        if file.result != "unchanged" and (arguments.verbose or not file.path.endswith(".pyc")):
            report.write(sys.stdout, f"{file.result} {shown(file.path)}\n")
    if not outcome.changed:
        there = "nothing to remove" if arguments.remove else "everything is as it should be"
        report.print_note(f"{there} below {shown(placement.destdir + placement.prefix)}", arguments)
    for spec in outcome.specs:
        report.print_note(
            f"{shown(spec)} stays: it is another's, and names the hook, which is gone", arguments
        )
    if outcome.service != "unknown":
        report.print_note(f"the service is {outcome.service}", arguments)
    for step in outcome.left:
        report.print_note(f"left to do: {step}", arguments)
