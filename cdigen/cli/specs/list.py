"""The command ``cdigen list``: list the devices that the runtimes find in the spec directories."""

from __future__ import annotations

import sys

from cdigen.cli.shared import argument_checks, options, report
from cdigen.cli.shared.daemon_files import daemon_inventory, devices_of, excluded_lines
from cdigen.cli.shared.option_table import add
from cdigen.host.containers import hint_without_host
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.profile import capability_profiles
from cdigen.model.strict import as_json
from cdigen.model.view import DEFAULT_KIND
from cdigen.pipeline.device_names import devices_by_name, health_of
from cdigen.runtimes.scan import scan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.runtimes.scan import Definition

EXAMPLES = """\
  cdigen list                          print the names for --device, with their files
  cdigen list --kind nvidia.com/gpu    print the devices of one kind
  cdigen list --json                   print JSON, with the reason why a device is not usable
"""


_WRITE = "'cdigen generate --write' writes the specs"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    add(parser, "--kind")
    options.add_root_options(parser)
    add(parser, "--spec-dir")


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    host, settings, wrong = options.host_and_usable_settings(arguments)
    kinds = options.kinds(arguments)
    argument_checks.require_spec_directories(arguments)
    directories = options.spec_directories(arguments, host, settings)
    found = scan(directories)
    report.print_findings((*wrong, *found.problems), arguments)
    definitions = found.definitions()
    _require_kinds(kinds, definitions, directories, host)
    rows = [row for row in definitions if not kinds or row.kind in kinds]
    devices = devices_of(daemon_inventory(host, settings), settings)
    known = devices_by_name(devices)
    if arguments.json:
        report.print_json([_row(row, known.get(row.device, ())) for row in rows])
    else:
        header = ("DEVICE", "STATE", "FILE")
        # With --quiet, the list has all kinds, because no note can name the omitted kinds. The shell
        # completions use --quiet and need all kinds.
        shows_all = kinds or arguments.verbose or arguments.quiet
        capability_kinds = {} if shows_all else _capability_kinds(rows, settings)
        rows = [row for row in rows if row.kind not in capability_kinds]
        cells = [(row.device, _state(row, known.get(row.device, ())), row.file) for row in rows]
        report.write(sys.stdout, report.table(cells, header=header, above="FILE"))
        for kind, file in capability_kinds.items():
            same = f"{kind} has the devices of {DEFAULT_KIND} with fewer driver files ({shown(file)})"
            report.print_note(f"{same}; --kind prints them", arguments)
    for line in excluded_lines(devices):
        report.print_note(line, arguments)
    if not rows:
        report.print_note(f"{_nowhere('device', directories)}; {_write_hint(host)}", arguments)
    return 0


def _row(row: Definition, devices: tuple[KnownDevice, ...]) -> dict[str, Any]:
    """Return ROW as a JSON object, with the health of DEVICES, which have the name of ROW."""
    return {
        **as_json(row),
        "health": health_of(devices),
        "causes": as_json(tuple(dict.fromkeys(cause for device in devices for cause in device.causes))),
    }


def _state(row: Definition, devices: tuple[KnownDevice, ...]) -> str:
    """Return the state of ROW, with the causes of its unhealthy devices; DEVICES have the name of ROW."""
    if not row.usable or health_of(devices) != "unhealthy":
        return "usable" if row.usable else row.reason
    unhealthy = [device for device in devices if device.causes]
    causes = ", ".join(dict.fromkeys(cause.cause for device in unhealthy for cause in device.causes))
    if len(devices) == 1:
        return f"unhealthy: {causes}"
    return f"unhealthy: {len(unhealthy)} of {len(devices)} ({causes})"


def _capability_kinds(rows: list[Definition], settings: Settings) -> dict[str, str]:
    """Return, by kind, the file of each capability kind in ROWS with the same devices as nvidia.com/gpu.

    ``nri.restrict_driver_files`` adds the capability kinds.
    """
    vendor = DEFAULT_KIND.partition("/")[0]
    profiles = capability_profiles(settings.effective_profiles)
    kinds = [f"{vendor}/{profile.device_class}" for profile in profiles]
    whole = _devices(rows, DEFAULT_KIND)
    files = {row.kind: row.file for row in rows}
    return {kind: files[kind] for kind in kinds if kind in files and _devices(rows, kind) == whole}


def _devices(rows: list[Definition], kind: str) -> list[tuple[str, bool]]:
    return sorted((row.name, row.usable) for row in rows if row.kind == kind)


def _require_kinds(
    kinds: tuple[str, ...], found: tuple[Definition, ...], directories: tuple[str, ...], host: Root
) -> None:
    """Raise ConfigError if one of KINDS (the values of --kind) has no device in any spec."""
    known = dict.fromkeys(row.kind for row in found)
    for kind in kinds:
        if kind not in known:
            raise ConfigError(
                _nowhere(f"device of --kind {kind}", directories),
                hint=f"available kinds: {', '.join(known)}" if known else _write_hint(host),
                kind="no-such-kind",
            )


def _write_hint(host: Root) -> str:
    """Return the step that writes the specs of HOST. In a container, no runtime reads the written specs."""
    return hint_without_host(host) or _WRITE


def _nowhere(subject: str, directories: tuple[str, ...]) -> str:
    return f"no {subject} is in {', '.join(map(shown, directories))}"
