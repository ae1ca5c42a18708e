"""The command ``cdigen status``: the state of the host and the last cycle of the daemon.

The source is the status file of the daemon.
"""

from __future__ import annotations

import sys
import time

from cdigen import __version__
from cdigen.cli.services.service_text import finding_lines, services_text
from cdigen.cli.shared import options, report, terminal
from cdigen.cli.shared.daemon_files import (
    device_row,
    devices_of,
    excluded_lines,
    running_directory,
    running_status,
)
from cdigen.cli.shared.option_table import add
from cdigen.daemon import status
from cdigen.host.root import shown
from cdigen.kubelet import status as kubelet
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding
from cdigen.model.times.ages import ago
from cdigen.nri import status as nri
from cdigen.pipeline.cause_groups import cause_groups
from cdigen.runtimes.daemon_service import service_of
from cdigen.service.daemon_inventory import read_daemon_inventory
from cdigen.service.rundir import STATUS_FILE
from cdigen.service.status import process_of, read_service

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
  cdigen status           state of the host, last changes of specs, problems
  cdigen status -v        the same with all recorded changes
  cdigen status --json    the same for programs; exit code 3 if no daemon runs
"""

_YELLOW = "33"
_COLOURS = {"ready": "32", "mismatch": "31", "absent": "31"}
_FEW = 5


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    options.add_root_options(parser)
    add(parser, "--run-dir")


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    host, settings, wrong = options.host_and_usable_settings(arguments)
    plugin = read_service(options.outer_directory(host, settings.nri.run_dir), nri.PARTS)
    served = read_service(options.outer_directory(host, settings.kubelet.run_dir), kubelet.PARTS)
    services = ""
    if not arguments.json:
        services = terminal.fit_width(services_text(plugin, served, time.time()))
    try:
        found, shown_text = _daemon(arguments, host, settings, wrong)
    except HostError as error:
        # The other services run without the daemon. Their status is shown in any case.
        report.write(sys.stdout, services)
        if any(finding.severity == "error" for finding in wrong):
            hint = f"the daemon cannot start: {wrong[0].message}; {wrong[0].hint}"
            raise HostError(error.message, hint=hint, kind=error.kind) from None
        raise error from None
    if arguments.json:
        report.print_json({**found, "nri": plugin, "kubelet": served})
    else:
        report.write(sys.stdout, terminal.fit_width(shown_text) + (services and f"\n{services}"))
    return 0


def _daemon(
    arguments: Namespace, host: Root, settings: Settings, wrong: tuple[Finding, ...]
) -> tuple[dict[str, Any], str]:
    """Return the status of the daemon with its devices, and the status as text.

    Raises HostError if no daemon runs.
    """
    run_dir = arguments.run_dir or running_directory(host, settings)
    service = service_of(host)
    try:
        found = running_status(run_dir, host)
        found = _with(found, (*wrong, *_outdated(found, service)))
        devices = devices_of(read_daemon_inventory(run_dir, host), settings)
        shown_text = text(found, time.time(), devices, verbose=arguments.verbose)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        # The document has the right schema number, but another program wrote it.
        raise status.unreadable(
            f"{run_dir}/{STATUS_FILE}", f"{type(error).__name__}, {error}", service
        ) from None
    return {**found, "devices": [device_row(device) for device in devices]}, shown_text


def _with(found: Mapping[str, Any], wrong: tuple[Finding, ...]) -> dict[str, Any]:
    """Return the status FOUND with the findings WRONG, except findings with a rule that FOUND already has."""
    reported = {row.get("rule") for row in found["findings"]}
    rows = [finding.row() for finding in wrong if finding.rule not in reported]
    return {**found, "findings": [*rows, *found["findings"]]}


def _outdated(found: Mapping[str, Any], service: DaemonService) -> tuple[Finding, ...]:
    """Return a finding if the installed version and the running version differ."""
    if found["version"] == __version__:
        return ()
    return (
        Finding(
            severity="warning",
            rule="other-version-runs",
            path="cdigen",
            message=f"cdigen {__version__} is installed, but the running daemon is {found['version']}",
            hint=f"restart the daemon: {service.restart}",
        ),
    )


def text(
    found: Mapping[str, Any],
    now_s: float,
    devices: tuple[KnownDevice, ...] = (),
    *,
    verbose: bool = False,
) -> str:
    """Return the status FOUND and the unhealthy or excluded DEVICES as text; ages are relative to NOW_S.

    The text has the whole journal only if VERBOSE.
    """
    sections = (
        _head(found, now_s),
        _vendors(found, now_s),
        _specs(found, now_s),
        _unhealthy(devices, now_s),
        "".join(f"{shown(line)}\n" for line in excluded_lines(devices)),
        finding_lines(found["findings"]),
        "".join(f"{shown(line)}\n" for line in _last_cycle(found, now_s)),
        _journal(found, now_s, most=len(found["journal"]) if verbose else _FEW),
    )
    return "\n".join(section for section in sections if section)


def _head(found: Mapping[str, Any], now_s: float) -> str:
    state = str(found["state"])
    painted = report.paint(shown(state), _COLOURS.get(state, _YELLOW), sys.stdout)
    return (
        f"{painted}: {shown(_text(found, 'verdict'))}\n"
        f"{shown(state)} for {ago(found['since'], now_s)}; cdigen {shown(found['version'])}, "
        f"{shown(process_of(found))}, running for {ago(found.get('started'), now_s)}\n"
    )


def _vendors(found: Mapping[str, Any], now_s: float) -> str:
    rows = [
        (_text(row, "vendor"), _text(row, "state"), ago(row.get("since"), now_s), _advice(row))
        for row in found["vendors"]
    ]
    return report.table(rows, header=("VENDOR", "STATE", "FOR", "REASON")) if rows else ""


def _specs(found: Mapping[str, Any], now_s: float) -> str:
    if not found["specs"]:
        return "there is no spec\n" if found["last_cycle"] else ""
    rows = []
    for row in found["specs"]:
        devices = row.get("devices", {})
        out = devices.get("left_out")
        left = f" ({out} device{'s' * (out != 1)} left out)" if out else ""
        rows.append(
            (
                _text(row, "kind"),
                f"{devices.get('served', 0)}{left}",
                ago(row["written"], now_s) + " ago" if row.get("written") else "-",
                _text(row, "result") + (f": {row['reason']}" if row.get("reason") else ""),
                _text(row, "file"),
            )
        )
    return report.table(rows, header=("KIND", "NAMES", "WRITTEN", "LAST CYCLE", "FILE"))


def _unhealthy(devices: tuple[KnownDevice, ...], now_s: float) -> str:
    rows = [
        (group.listed, group.first.cause, ago(group.first.since, now_s), group.first.detail)
        for group in cause_groups(devices)
    ]
    if not rows:
        return ""
    table = report.table(rows, header=("UNHEALTHY", "CAUSE", "FOR", "DETAIL"))
    return f"{table}'cdigen health' shows what ends each cause\n"


def _last_cycle(found: Mapping[str, Any], now_s: float) -> Iterator[str]:
    cycle = found["last_cycle"]
    if cycle:
        rows = cycle.get("reasons", ())
        reasons = ", ".join(f"{_text(row, 'source')}: {_text(row, 'reason')}" for row in rows)
        yield (
            f"last cycle: {ago(cycle.get('started'), now_s)} ago, {_text(cycle, 'result')}"
            + (f" ({reasons})" if reasons else "")
        )
        if cycle.get("error"):
            yield f"the cycle failed: {cycle['error']}"
            yield f"last success: {ago(found.get('last_success'), now_s)} ago"
    healthy = [name for name, row in found["sources"].items() if row.get("healthy")]
    if healthy:
        yield f"watching: {', '.join(healthy)}"
    for name, row in found["sources"].items():
        if not row.get("healthy"):
            # A periodic cycle finds the changes of all sources except the kernel log.
            effect = (
                "errors in the kernel log are missed"
                if name == "kernel-log"
                else "only the periodic cycle finds its changes"
            )
            yield f"not watching: {name} ({_text(row, 'problem')}); the daemon retries; until then {effect}"


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
    return report.table(rows, header=("CHANGED", "KIND", "SPEC", "CHANGES")) if rows else ""


def _advice(row: Mapping[str, Any]) -> str:
    hint = row.get("hint")
    return _text(row, "reason") + (f" ({hint})" if hint else "")


def _text(row: Mapping[str, Any], key: str) -> str:
    value: str = row.get(key, "")
    return value
