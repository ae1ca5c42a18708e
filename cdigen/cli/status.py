"""``cdigen status``: what the daemon last did, and the state of the host, from the daemon's status file."""

from __future__ import annotations

import sys
import time

from cdigen import __version__
from cdigen.cli import options, report, terminal
from cdigen.daemon import status
from cdigen.frontend.rundir import STATUS_FILE
from cdigen.frontend.status import reason_not_running
from cdigen.host.root import shown
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding
from cdigen.nri import status as nri
from cdigen.runtimes.daemon_service import service_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cdigen.runtimes.daemon_service import DaemonService

EXAMPLES = """\
  cdigen status           how the host stands, what was written last, what is wrong
  cdigen status -v        with all that is kept of what changed
  cdigen status --json    the same for programs; exit 3 where no daemon runs
"""

# What each state means for whoever starts a container now, and what has to be done about it.
MEANINGS = {
    "starting": "the daemon has not looked yet",
    "ready": "containers can use the devices below",
    "settling": "the host is being changed; the daemon waits for that to end and looks again by itself",
    "degraded": "containers can use the devices below; some GPUs are left out, see the findings",
    "mismatch": "the running driver and its files are of different versions: reload the modules or reboot",
    "absent": "there is nothing to offer: no GPU, or its driver is not loaded",
}
_YELLOW = "33"
_COLOURS = {"ready": "32", "mismatch": "31", "absent": "31"}
_FEW = 5
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


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
    run_dir = arguments.run_dir or options.outer_directory(host, settings.daemon.run_dir)
    service = service_of(host)
    try:
        found = status.read(run_dir, service)
        if problem := reason_not_running(run_dir, found):
            raise _dead(found, problem, service)
        found = _with(found, (*wrong, *_outdated(found, service)))
        shown_text = text(found, time.time(), verbose=arguments.verbose)
    except HostError as error:
        is_unstartable = any(finding.severity == "error" for finding in wrong)
        raise (_unstartable(error, wrong[0]) if is_unstartable else error) from None
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        # Of our schema number, and not written by a daemon.
        raise status.unreadable(
            f"{run_dir}/{STATUS_FILE}", f"{type(error).__name__}, {error}", service
        ) from None
    plugin = nri.read(options.outer_directory(host, settings.nri.run_dir))
    if arguments.json:
        report.print_json({**found, "nri": plugin})
        return 0
    report.write(sys.stdout, terminal.fit_width(shown_text))
    if plugin is not None:
        report.write(sys.stdout, terminal.fit_width(f"\n{plugin_text(plugin, time.time())}"))
    return 0


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


def _dead(found: Mapping[str, Any], problem: str, service: DaemonService) -> HostError:
    last = found["last_cycle"].get("started")
    did = f", which last looked at {last} and found the host {found['state']}" if last else ""
    return HostError(
        f"the cdigen daemon is not running{did}: {problem}",
        hint=f"the specs stay as they are until it is started again; {service.started()}",
        kind="no-daemon",
    )


def text(found: Mapping[str, Any], now_s: float, *, verbose: bool = False) -> str:
    """Return the status FOUND for people, as of NOW_S; only with VERBOSE all of the journal."""
    sections = (
        _head(found, now_s),
        _vendors(found, now_s),
        _specs(found, now_s),
        _findings(found),
        _last_cycle(found, now_s),
        _journal(found, now_s, most=len(found["journal"]) if verbose else _FEW),
    )
    return "\n".join(section for section in sections if section)


def plugin_text(plugin: Mapping[str, Any], now_s: float) -> str:
    """Return how the NRI plugin stands, of which PLUGIN is the document, as of NOW_S."""
    counts, runtime = plugin["counts"], plugin["runtime"]
    whom = f" with {runtime.get('name')} {runtime.get('version')}" if runtime else ""
    why = f" ({plugin['reason']})" if plugin["reason"] else ""
    did = f"{counts.get('inject', 0)} containers given devices, {counts.get('refuse', 0)} refused"
    lines = [f"NRI plugin: {plugin['state']}{whom} for {_ago(plugin['since'], now_s)}{why}, {did}"]
    lines += [f"  refused {count} times: {cause}" for cause, count in plugin["refused"].items()]
    if runtime and runtime.get("cdi") != "injects":
        lines.append(f"  the runtime injects no CDI devices of plugins; {runtime.get('remedy')}")
    if plugin["missed_count"]:
        lines.append(
            f"  {plugin['missed_count']} running containers asked and have not got devices, see "
            "'cdigen status --json'"
        )
    if plugin["version"] != __version__:
        lines.append(f"  cdigen {__version__} is installed, and {plugin['version']} runs: restart it")
    return "".join(f"{shown(line)}\n" for line in lines)


def _head(found: Mapping[str, Any], now_s: float) -> str:
    state = str(found["state"])
    word = report.paint(shown(state), _COLOURS.get(state, _YELLOW), sys.stdout)
    meaning = MEANINGS.get(state, "see the reasons below")
    return (
        f"{word} for {_ago(found['since'], now_s)}: {meaning}\n"
        f"cdigen {shown(found['version'])}, process {found['pid']}, "
        f"running for {_ago(found.get('started'), now_s)}\n"
    )


def _vendors(found: Mapping[str, Any], now_s: float) -> str:
    rows = [
        (_text(row, "vendor"), _text(row, "state"), _ago(row.get("since"), now_s), _advice(row))
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
                _ago(row["written"], now_s) + " ago" if row.get("written") else "-",
                _text(row, "result") + (f": {row['reason']}" if row.get("reason") else ""),
                _text(row, "file"),
            )
        )
    return report.table(rows, header=("KIND", "DEVICES", "WRITTEN", "LAST CYCLE", "FILE"))


def _findings(found: Mapping[str, Any]) -> str:
    lines = [
        Finding(
            severity=row["severity"],
            rule=_text(row, "rule"),
            path=_text(row, "path"),
            message=_text(row, "message"),
            hint=_text(row, "hint"),
        ).line()
        for row in found["findings"]
        if row.get("severity") in {"error", "warning"}
    ]
    return "".join(f"{shown(line)}\n" for line in dict.fromkeys(lines))


def _last_cycle(found: Mapping[str, Any], now_s: float) -> str:
    return "".join(f"{shown(line)}\n" for line in _lines(found, now_s))


def _lines(found: Mapping[str, Any], now_s: float) -> Iterator[str]:
    cycle = found["last_cycle"]
    if cycle:
        rows = cycle.get("reasons", ())
        reasons = ", ".join(f"{_text(row, 'source')}: {_text(row, 'reason')}" for row in rows)
        yield (
            f"last look: {_ago(cycle.get('started'), now_s)} ago, {_text(cycle, 'result')}"
            + (f" ({reasons})" if reasons else "")
        )
        if cycle.get("error"):
            yield f"it failed: {cycle['error']}"
            yield f"last success: {_ago(found.get('last_success'), now_s)} ago"
    well = [name for name, row in found["sources"].items() if row.get("healthy")]
    if well:
        yield f"watching: {', '.join(well)}"
    for name, row in found["sources"].items():
        if not row.get("healthy"):
            yield (
                f"not watching: {name} ({_text(row, 'problem')}); the daemon tries again, and until then "
                "sees such changes only when it looks by itself"
            )


def _journal(found: Mapping[str, Any], now_s: float, *, most: int) -> str:
    entries = found["journal"][-most:] if most else []
    rows = [
        (
            f"{_ago(row.get('at'), now_s)} ago",
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


def _ago(stamp: object, now_s: float) -> str:
    """Return how long ago the time STAMP was, in the largest unit that fits."""
    seconds = _seconds(stamp)
    if seconds is None:
        return "an unknown time"
    # A clock that was set back since: then it was just now.
    passed = max(0, int(now_s - seconds))
    size, name = next(((size, name) for size, name in _UNITS if passed >= size), _UNITS[-1])
    count = passed // size
    return f"{count} {name}" + ("" if count == 1 else "s")


def _seconds(stamp: object) -> float | None:
    from calendar import timegm  # noqa: PLC0415 - not for --json

    try:
        return timegm(time.strptime(str(stamp)[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
