"""``cdigen status``: what the daemon last did, and the state of the host, from the daemon's status file."""

from __future__ import annotations

import sys
import time

from cdigen import __version__
from cdigen.cli import options, report, terminal
from cdigen.cli.daemon_files import device_row, devices_of, running_status
from cdigen.cli.front_end_text import finding_lines, front_end_text
from cdigen.daemon import status
from cdigen.daemon.report import MEANINGS
from cdigen.frontend.daemon_inventory import read_daemon_inventory
from cdigen.frontend.rundir import STATUS_FILE
from cdigen.frontend.status import process_of
from cdigen.host.root import shown
from cdigen.kubelet import status as kubelet
from cdigen.model.ages import ago
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding
from cdigen.nri import status as nri
from cdigen.runtimes.daemon_service import service_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.runtimes.daemon_service import DaemonService

EXAMPLES = """\
  cdigen status           how the host stands, what was written last, what is wrong
  cdigen status -v        with all that is kept of what changed
  cdigen status --json    the same for programs; exit 3 where no daemon runs
"""

_YELLOW = "33"
_COLOURS = {"ready": "32", "mismatch": "31", "absent": "31"}
_FEW = 5


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    options.add_root_options(parser)
    parser.add_argument(
        "--run-dir", metavar="DIR", type=options.not_empty, help="where the daemon keeps its status"
    )
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    host, settings, wrong = options.host_and_usable_settings(arguments)
    plugin = nri.read(options.outer_directory(host, settings.nri.run_dir))
    served = kubelet.read(options.outer_directory(host, settings.kubelet.run_dir))
    told = ""
    if not arguments.json:
        told = terminal.fit_width(front_end_text(plugin, served, time.time()))
    try:
        found, shown_text = _daemon(arguments, host, settings, wrong)
    except HostError as error:
        # The front ends are processes of their own, of which somebody may want to know.
        report.write(sys.stdout, told)
        is_unstartable = any(finding.severity == "error" for finding in wrong)
        raise (_unstartable(error, wrong[0]) if is_unstartable else error) from None
    if arguments.json:
        report.print_json({**found, "nri": plugin, "kubelet": served})
    else:
        report.write(sys.stdout, terminal.fit_width(shown_text) + (told and f"\n{told}"))
    return 0


def _daemon(
    arguments: Namespace, host: Root, settings: Settings, wrong: tuple[Finding, ...]
) -> tuple[dict[str, Any], str]:
    """Return the status of the daemon with its devices, and as text. HostError: no daemon runs."""
    run_dir = arguments.run_dir or options.outer_directory(host, settings.daemon.run_dir)
    service = service_of(host)
    try:
        found = running_status(run_dir, service)
        found = _with(found, (*wrong, *_outdated(found, service)))
        devices = devices_of(read_daemon_inventory(run_dir, host), settings)
        shown_text = text(found, time.time(), devices, verbose=arguments.verbose)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        # Of our schema number, and not written by a daemon.
        raise status.unreadable(
            f"{run_dir}/{STATUS_FILE}", f"{type(error).__name__}, {error}", service
        ) from None
    return {**found, "devices": [device_row(device) for device in devices]}, shown_text


def _with(found: Mapping[str, Any], wrong: tuple[Finding, ...]) -> dict[str, Any]:
    """Return the status FOUND with what else is WRONG, unless the daemon says that itself."""
    said = {row.get("rule") for row in found["findings"]}
    rows = [finding.row() for finding in wrong if finding.rule not in said]
    return {**found, "findings": [*rows, *found["findings"]]}


def _unstartable(error: HostError, wrong: Finding) -> HostError:
    hint = f"it does not start while {wrong.message}; {wrong.hint}"
    return HostError(error.message, hint=hint, kind=error.kind)


def _outdated(found: Mapping[str, Any], service: DaemonService) -> tuple[Finding, ...]:
    """Return that another version is installed than the one that runs, if that is so."""
    if found["version"] == __version__:
        return ()
    return (
        Finding(
            severity="warning",
            rule="other-version-runs",
            path="cdigen",
            message=f"cdigen {__version__} is installed, and the daemon that runs is {found['version']}",
            hint=f"restart it: {service.restart}",
        ),
    )


def text(
    found: Mapping[str, Any],
    now_s: float,
    devices: tuple[KnownDevice, ...] = (),
    *,
    verbose: bool = False,
) -> str:
    """Return the status FOUND for people, as of NOW_S; only with VERBOSE all of the journal.

    Of DEVICES those that are unhealthy are shown.
    """
    sections = (
        _head(found, now_s),
        _vendors(found, now_s),
        _specs(found, now_s),
        _unhealthy(devices, now_s),
        finding_lines(found["findings"]),
        _last_cycle(found, now_s),
        _journal(found, now_s, most=len(found["journal"]) if verbose else _FEW),
    )
    return "\n".join(section for section in sections if section)


def _head(found: Mapping[str, Any], now_s: float) -> str:
    state = str(found["state"])
    word = report.paint(shown(state), _COLOURS.get(state, _YELLOW), sys.stdout)
    meaning = MEANINGS.get(state, "see the reasons below")
    return (
        f"{word} for {ago(found['since'], now_s)}: {meaning}\n"
        f"cdigen {shown(found['version'])}, {shown(process_of(found))}, "
        f"running for {ago(found.get('started'), now_s)}\n"
    )


def _vendors(found: Mapping[str, Any], now_s: float) -> str:
    rows = [
        (_text(row, "vendor"), _text(row, "state"), ago(row.get("since"), now_s), _advice(row))
        for row in found["vendors"]
    ]
    return report.table(rows, header=("VENDOR", "STATE", "FOR", "WHY")) if rows else ""


def _specs(found: Mapping[str, Any], now_s: float) -> str:
    if not found["specs"]:
        return "no spec is kept\n" if found["last_cycle"] else ""
    rows = []
    for row in found["specs"]:
        devices = row.get("devices", {})
        out = devices.get("left_out")
        rows.append(
            (
                _text(row, "kind"),
                f"{devices.get('served', 0)}" + (f" ({out} left out)" if out else ""),
                ago(row["written"], now_s) + " ago" if row.get("written") else "-",
                _text(row, "result") + (f": {row['reason']}" if row.get("reason") else ""),
                _text(row, "file"),
            )
        )
    return report.table(rows, header=("KIND", "DEVICES", "WRITTEN", "LAST CYCLE", "FILE"))


def _unhealthy(devices: tuple[KnownDevice, ...], now_s: float) -> str:
    rows = [
        (device.name if place == 0 else "", cause.cause, ago(cause.since, now_s), cause.detail)
        for device in devices
        for place, cause in enumerate(device.own_causes)
    ]
    if not rows:
        return ""
    # The causes of a GPU are those of its partitions, of which there may be many.
    told = report.table(rows, header=("UNHEALTHY", "CAUSE", "FOR", "WHAT WAS SEEN"))
    return f"{told}'cdigen health' says what ends each cause\n"


def _last_cycle(found: Mapping[str, Any], now_s: float) -> str:
    return "".join(f"{shown(line)}\n" for line in _lines(found, now_s))


def _lines(found: Mapping[str, Any], now_s: float) -> Iterator[str]:
    cycle = found["last_cycle"]
    if cycle:
        rows = cycle.get("reasons", ())
        reasons = ", ".join(f"{_text(row, 'source')}: {_text(row, 'reason')}" for row in rows)
        yield (
            f"last look: {ago(cycle.get('started'), now_s)} ago, {_text(cycle, 'result')}"
            + (f" ({reasons})" if reasons else "")
        )
        if cycle.get("error"):
            yield f"it failed: {cycle['error']}"
            yield f"last success: {ago(found.get('last_success'), now_s)} ago"
    well = [name for name, row in found["sources"].items() if row.get("healthy")]
    if well:
        yield f"watching: {', '.join(well)}"
    for name, row in found["sources"].items():
        if not row.get("healthy"):
            # The other sources' changes a look finds as well.
            misses = (
                "hears of no error" if name == "kernel-log" else "sees changes only when it looks by itself"
            )
            yield (
                f"not watching: {name} ({_text(row, 'problem')}); "
                f"the daemon tries again, and until then {misses}"
            )


def _journal(found: Mapping[str, Any], now_s: float, *, most: int) -> str:
    entries = found["journal"][-most:] if most else []
    rows = [
        (
            f"{ago(row.get('at'), now_s)} ago",
            _text(row, "kind"),
            _text(row, "result"),
            _text(row, "summary"),
        )
        for row in reversed(entries)
    ]
    return report.table(rows, header=("CHANGED", "KIND", "SPEC", "WHAT")) if rows else ""


def _advice(row: Mapping[str, Any], key: str = "reason") -> str:
    hint = row.get("hint")
    return _text(row, key) + (f" ({hint})" if hint else "")


def _text(row: Mapping[str, Any], key: str) -> str:
    value: str = row.get(key, "")
    return value
