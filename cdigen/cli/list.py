"""``cdigen list``: list the devices that the runtimes find in the spec directories."""

from __future__ import annotations

import sys

from cdigen.cli import argument_checks, options, report
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.runtimes.scan import scan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.runtimes.scan import Definition

EXAMPLES = """\
  cdigen list                          the names that --device takes, with their files
  cdigen list --kind nvidia.com/gpu    of one kind
  cdigen list --json                   with the reason why a device is not usable
"""


_WRITE = "'cdigen generate --write' writes them"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "--kind", metavar="KIND", action="append", help="only this kind, such as nvidia.com/gpu"
    )
    options.add_root_options(parser)
    options.add_spec_dir_option(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    host, settings, wrong = options.host_and_usable_settings(arguments)
    kinds = options.kinds(arguments)
    argument_checks.require_spec_directories(arguments)
    directories = options.spec_directories(arguments, host, settings)
    found = scan(directories)
    report.print_findings((*wrong, *found.problems), arguments)
    definitions = found.definitions()
    _require_kinds(kinds, definitions, directories)
    rows = [row for row in definitions if not kinds or row.kind in kinds]
    if arguments.json:
        report.print_json(
            [
                {
                    "device": row.device,
                    "kind": row.kind,
                    "name": row.name,
                    "file": row.file,
                    "usable": row.usable,
                    "reason": row.reason,
                }
                for row in rows
            ]
        )
    else:
        header = ("DEVICE", "STATE", "FILE")
        cells = [(row.device, "usable" if row.usable else row.reason, row.file) for row in rows]
        report.write(sys.stdout, report.table(cells, header=header, above="FILE"))
    if not rows:
        report.print_note(f"{_nowhere('device', directories)}; {_WRITE}", arguments)
    return 0


def _require_kinds(
    kinds: tuple[str, ...], found: tuple[Definition, ...], directories: tuple[str, ...]
) -> None:
    """Raise ConfigError where no spec has a device of one of KINDS, which --kind named."""
    known = dict.fromkeys(row.kind for row in found)
    for kind in kinds:
        if kind not in known:
            raise ConfigError(
                _nowhere(f"device of --kind {kind}", directories),
                hint=f"there are {', '.join(known)}" if known else _WRITE,
                kind="no-such-kind",
            )


def _nowhere(what: str, directories: tuple[str, ...]) -> str:
    return f"no {what} is in {', '.join(map(shown, directories))}"
