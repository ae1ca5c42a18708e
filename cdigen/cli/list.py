"""``cdigen list``: list the devices that the runtimes find in the spec directories."""

from __future__ import annotations

import sys

from cdigen.cli import argument_checks, options, report
from cdigen.cli.daemon_files import cause_rows, daemon_inventory, devices_of
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.profile import narrowed
from cdigen.model.view import DEFAULT_KIND
from cdigen.pipeline.device_names import by_name, health_of
from cdigen.runtimes.scan import scan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from cdigen.config import Settings
    from cdigen.pipeline.device_names import KnownDevice
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
    known = by_name(devices_of(daemon_inventory(host, settings), settings))
    if arguments.json:
        report.print_json([_row(row, known.get(row.device, ())) for row in rows])
    else:
        header = ("DEVICE", "STATE", "FILE")
        # Quietly all are listed, since no note names what is left out: the shells' completion asks so.
        shows_all = kinds or arguments.verbose or arguments.quiet
        parts = {} if shows_all else _parts(rows, settings)
        rows = [row for row in rows if row.kind not in parts]
        cells = [(row.device, _state(row, known.get(row.device, ())), row.file) for row in rows]
        report.write(sys.stdout, report.table(cells, header=header, above="FILE"))
        for kind, file in parts.items():
            same = f"{kind} has the devices of {DEFAULT_KIND} with a part of the driver ({shown(file)})"
            report.print_note(f"{same}; --kind shows them", arguments)
    if not rows:
        report.print_note(f"{_nowhere('device', directories)}; {_WRITE}", arguments)
    return 0


def _row(row: Definition, devices: tuple[KnownDevice, ...]) -> dict[str, Any]:
    """Return ROW, by whose name a container gets DEVICES, as JSON shows it."""
    return {
        "device": row.device,
        "kind": row.kind,
        "name": row.name,
        "file": row.file,
        "usable": row.usable,
        "reason": row.reason,
        "health": health_of(devices),
        "causes": cause_rows(dict.fromkeys(cause for device in devices for cause in device.causes)),
    }


def _state(row: Definition, devices: tuple[KnownDevice, ...]) -> str:
    """Return whether a runtime finds ROW, and what is wrong with DEVICES, which a container gets by it."""
    if not row.usable or health_of(devices) != "unhealthy":
        return "usable" if row.usable else row.reason
    ill = [device for device in devices if device.causes]
    causes = ", ".join(dict.fromkeys(cause.cause for device in ill for cause in device.causes))
    return (
        f"unhealthy: {causes}" if len(devices) == 1 else f"unhealthy: {len(ill)} of {len(devices)} ({causes})"
    )


def _parts(rows: list[Definition], settings: Settings) -> dict[str, str]:
    """Return the file of each kind in ROWS that repeats the devices of nvidia.com/gpu (``nri.narrow``)."""
    vendor = DEFAULT_KIND.partition("/")[0]
    parts = [f"{vendor}/{part.device_class}" for part in narrowed(settings.offered_profiles)]
    whole = _told(rows, DEFAULT_KIND)
    files = {row.kind: row.file for row in rows}
    return {kind: files[kind] for kind in parts if kind in files and _told(rows, kind) == whole}


def _told(rows: list[Definition], kind: str) -> list[tuple[str, bool]]:
    return sorted((row.name, row.usable) for row in rows if row.kind == kind)


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
