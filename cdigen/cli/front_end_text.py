"""What ``cdigen status`` says of the processes beside the daemon: ``front_end_text``."""

from __future__ import annotations

from cdigen import __version__
from cdigen.cli import report
from cdigen.frontend.status import owner_of
from cdigen.host.root import shown
from cdigen.kubelet import status as kubelet
from cdigen.model.ages import ago
from cdigen.model.findings import Finding
from cdigen.nri import status as nri

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any


def front_end_text(plugin: Mapping[str, Any] | None, served: Mapping[str, Any] | None, now_s: float) -> str:
    """Return how the NRI plugin stands by its document PLUGIN, and `cdigen kubelet` by SERVED, at NOW_S.

    Of what is None nothing is said.
    """
    parts = [nri_text(plugin, now_s)] if plugin is not None else []
    if served is not None:
        try:
            parts.append(kubelet_text(served, now_s))
        except (LookupError, TypeError, AttributeError, ValueError):
            # Of our schema number, and not written by cdigen.
            parts.append("kubelet: its status cannot be read\n")
    return "\n".join(parts)


def nri_text(plugin: Mapping[str, Any], now_s: float) -> str:
    """Return how the NRI plugin stands, of which PLUGIN is the document, as of NOW_S."""
    counts, runtime = plugin["counts"], plugin["runtime"]
    whom = f" with {runtime.get('name')} {runtime.get('version')}" if runtime else ""
    why = f" ({plugin['reason']})" if plugin["reason"] else ""
    did = f"{counts.get('inject', 0)} containers given devices, {counts.get('refuse', 0)} refused"
    if plugin["state"] == nri.ENDED:
        means = "containers start without the devices that they ask for, unless the runtime requires it"
        lines = [f"NRI plugin: not running{why}: {means}", f"  it was there{whom}, {did}"]
    else:
        lines = [f"NRI plugin: {plugin['state']}{whom} for {ago(plugin['since'], now_s)}{why}, {did}"]
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
    lines += [f"  {line}" for line in finding_lines(plugin["problems"]).splitlines()]
    return "".join(f"{shown(line)}\n" for line in lines)


def kubelet_text(served: Mapping[str, Any], now_s: float) -> str:
    """Return how `cdigen kubelet` stands, of which SERVED is the document, as of NOW_S."""
    why = f" ({served['reason']})" if served["reason"] else ""
    rows = served["resources"]
    if served["state"] == kubelet.ENDED:
        offered = ", ".join(f"{row['resource']} ({row['count']})" for row in rows)
        means = "new pods get no devices, those that have some keep them"
        lines = [f"kubelet: cdigen does not serve it{why}: {means}", f"  it offered {offered or 'nothing'}"]
        return "".join(f"{shown(line)}\n" for line in lines)
    by = f", by {owner}" if (owner := owner_of(served)) else ""
    lines = [f"kubelet: {served['state']} for {ago(served['since'], now_s)}{why}{by}"]
    if served["version"] != __version__:
        lines.append(f"  cdigen {__version__} is installed, and {served['version']} runs: restart it")
    lines += [f"  the last known state counts: {reason}" for reason in served["stale"]]
    lines += [f"  {line}" for line in finding_lines(served["problems"]).splitlines()]
    lines += [f"  {line}" for line in _shares(served.get("shares"))]
    lines += [f"  {line}" for line in _labels(served.get("labels"))]
    text = "".join(f"{shown(line)}\n" for line in lines)
    header = ("RESOURCE", "STATE", "DEVICES", "IN USE", "REFUSED")
    return text + (report.table([_resource(row) for row in rows], header=header) if rows else "")


def _shares(found: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield how shares by memory stand, of which FOUND is the part of the document; nothing without."""
    if not found:
        return
    done = found["outcomes"]
    yield (
        f"shares of node {found['node']}: {found['pods']} pods ask, {found['served']} containers served and "
        f"{found['waiting']} waiting; {done['promised']} as promised, {done['moved']} moved, "
        f"{done['exchanged']} exchanged, {done['refused']} refused, {found['repaired']} repaired"
    )
    for key in ("problem", "node_problem", "promise_problem"):
        if found[key]:
            yield f"shares: {found[key]}"


def _labels(found: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield how the file of the node's labels stands, by the document's part FOUND; nothing without."""
    if not found:
        return
    more = f", no room for {found['left_out']}" if found["left_out"] else ""
    count = f"{len(found['labels'])} in {found['file']}{more}"
    yield f"labels: {found['reason'] or count}"


def _resource(row: Mapping[str, Any]) -> tuple[str, ...]:
    sick = row["health"]["unhealthy"]
    refused = ", ".join(f"{count} {cause}" for cause, count in row["refused"].items())
    return (
        str(row["resource"]),
        f"{row['state']}: {row['reason']}" if row["reason"] else str(row["state"]),
        f"{row['count']}" + (f" ({sick} unhealthy)" if sick else ""),
        "-" if row["allocated"] is None else str(row["allocated"]),
        refused or "-",
    )


def finding_lines(found: Iterable[object]) -> str:
    """Return the errors and warnings among the rows FOUND, a line for each."""
    lines = [
        Finding(
            severity=row["severity"],
            rule=row.get("rule", ""),
            path=row.get("path", ""),
            message=row.get("message", ""),
            hint=row.get("hint", ""),
        ).line()
        for row in found
        if isinstance(row, dict) and row.get("severity") in {"error", "warning"}
    ]
    return "".join(f"{shown(line)}\n" for line in dict.fromkeys(lines))
