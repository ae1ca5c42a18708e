"""The status of the NRI plugin and of ``cdigen kubelet`` as text, for ``cdigen status``."""

from __future__ import annotations

from cdigen import __version__
from cdigen.cli.shared import report
from cdigen.host.root import shown
from cdigen.model.findings import Finding
from cdigen.model.times.ages import ago
from cdigen.pipeline.cause_groups import finding_groups
from cdigen.service.status import ENDED, instance_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any


def services_text(plugin: Mapping[str, Any] | None, served: Mapping[str, Any] | None, now_s: float) -> str:
    """Return the status of the NRI plugin from the document PLUGIN, and of cdigen kubelet from SERVED.

    A document that is None is omitted. Ages are relative to NOW_S.
    """
    parts = [nri_text(plugin, now_s)] if plugin is not None else []
    if served is not None:
        try:
            parts.append(kubelet_text(served, now_s))
        except (LookupError, TypeError, AttributeError, ValueError):
            # The document has the right schema number, but another program wrote it.
            parts.append("kubelet: the status cannot be read\n")
    return "\n".join(parts)


def nri_text(plugin: Mapping[str, Any], now_s: float) -> str:
    """Return the status of the NRI plugin from the document PLUGIN; ages are relative to NOW_S."""
    counts, runtime = plugin["counts"], plugin["runtime"]
    peer = f" with {runtime.get('name')} {runtime.get('version')}" if runtime else ""
    why = f" ({plugin['reason']})" if plugin["reason"] else ""
    done = f"{counts.get('inject', 0)} containers with injected devices, {counts.get('refuse', 0)} refused"
    if plugin["state"] == ENDED:
        effect = (
            "containers start without the devices that they request, unless the runtime requires the plugin"
        )
        lines = [f"NRI plugin: not running{why}: {effect}", f"  last run{peer}: {done}"]
    else:
        lines = [f"NRI plugin: {plugin['state']}{peer} for {ago(plugin['since'], now_s)}{why}, {done}"]
    lines += [f"  refused {count} times: {cause}" for cause, count in plugin["refused"].items()]
    if runtime and runtime.get("cdi") != "injects":
        lines.append(f"  the runtime does not inject CDI devices for plugins; {runtime.get('remedy')}")
    if plugin["uninjected_count"]:
        lines.append(
            f"  {plugin['uninjected_count']} running containers requested devices and have none, see "
            "'cdigen status --json'"
        )
    if plugin["version"] != __version__:
        lines.append(f"  cdigen {__version__} is installed, but {plugin['version']} runs: restart the plugin")
    lines += [f"  {line}" for line in finding_lines(plugin["problems"]).splitlines()]
    return "".join(f"{shown(line)}\n" for line in lines)


def kubelet_text(served: Mapping[str, Any], now_s: float) -> str:
    """Return the status of cdigen kubelet from the document SERVED; ages are relative to NOW_S."""
    why = f" ({served['reason']})" if served["reason"] else ""
    rows = served["resources"]
    if served["state"] == ENDED:
        advertised = ", ".join(f"{row['resource']} ({row['count']})" for row in rows)
        effect = "new pods get no devices; running pods keep their devices"
        lines = [f"kubelet: cdigen kubelet is not running{why}: {effect}"]
        lines.append(f"  last advertised: {advertised or 'nothing'}")
        return "".join(f"{shown(line)}\n" for line in lines)
    by = f", by {instance}" if (instance := instance_of(served)) else ""
    lines = [f"kubelet: {served['state']} for {ago(served['since'], now_s)}{why}{by}"]
    if served["version"] != __version__:
        lines.append(
            f"  cdigen {__version__} is installed, but {served['version']} runs: restart cdigen kubelet"
        )
    lines += [f"  the last known state is used: {reason}" for reason in served["stale"]]
    lines += [f"  {line}" for line in finding_lines(served["problems"]).splitlines()]
    lines += [f"  {line}" for line in _gpu_memory(served.get("shared_memory"))]
    lines += [f"  {line}" for line in _labels(served.get("labels"))]
    text = "".join(f"{shown(line)}\n" for line in lines)
    header = ("RESOURCE", "STATE", "DEVICES", "IN USE", "REFUSED")
    return text + (report.table([_resource(row) for row in rows], header=header) if rows else "")


def _gpu_memory(found: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the status of shared GPU memory from FOUND (part of the document); nothing if FOUND is empty."""
    if not found:
        return
    done = found["outcomes"]
    yield (
        f"GPU memory of node {found['node']}: {found['pods']} pods request it; containers with units: "
        f"{found['served']}, waiting for units: {found['waiting']}; requests of the kubelet: "
        f"{done['as_reserved']} allocated as reserved, {done['moved']} after a reservation was moved, "
        f"{done['exchanged']} after reservations were exchanged, {done['refused']} refused; "
        f"pods whose reservations were corrected: {found['repaired']}"
    )
    for key in ("problem", "node_problem", "reservation_problem"):
        if found[key]:
            yield f"GPU memory: {found[key]}"


def _labels(found: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the status of the node labels from FOUND (part of the document); nothing if FOUND is empty."""
    if not found:
        return
    more = f", {found['left_out']} left out" if found["left_out"] else ""
    count = f"{len(found['labels'])} in {found['file']}{more}"
    yield f"labels: {found['reason'] or count}"


def _resource(row: Mapping[str, Any]) -> tuple[str, ...]:
    unhealthy = row["health"]["unhealthy"]
    refused = ", ".join(f"{count} {cause}" for cause, count in row["refused"].items())
    return (
        str(row["resource"]),
        f"{row['state']}: {row['reason']}" if row["reason"] else str(row["state"]),
        f"{row['count']}" + (f" ({unhealthy} unhealthy)" if unhealthy else ""),
        "-" if row["allocated"] is None else str(row["allocated"]),
        refused or "-",
    )


def finding_lines(found: Iterable[object]) -> str:
    """Return the errors and warnings in the rows FOUND, with one line for each group of equal findings."""
    findings = [
        Finding(
            severity=row["severity"],
            rule=row.get("rule", ""),
            path=row.get("path", ""),
            message=row.get("message", ""),
            hint=row.get("hint", ""),
        )
        for row in found
        if isinstance(row, dict) and row.get("severity") in {"error", "warning"}
    ]
    return "".join(f"{shown(finding.line())}\n" for finding in finding_groups(findings))
