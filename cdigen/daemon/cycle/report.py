"""Reports of the daemon: a ``CycleReport`` for each cycle, and the ``DaemonStatus`` after the cycle.

``next_status`` computes the next status from the last status and a report. All outputs of the daemon
(status.json, metrics, log, health) are computed from these values only. Wall-clock times are seconds since
1970, as from ``time.time``.
"""

from __future__ import annotations

from types import MappingProxyType

from cdigen.host.mounts import MISSING as MOUNT_MISSING
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, Literal

    from cdigen.cdi.compare import Changes
    from cdigen.model.findings import Finding
    from cdigen.watch.triggers import Trigger

    VendorState = Literal["ready", "settling", "degraded", "mismatch", "absent"]
    SpecResult = Literal["written", "unchanged", "kept", "withdrawn", "absent", "refused"]
    CycleResult = Literal["changed", "unchanged", "waiting", "failed"]

VENDOR_STATES: tuple[VendorState, ...] = ("ready", "settling", "degraded", "mismatch", "absent")
# The verdict for each state in which no device is usable. The reason of a vendor replaces this verdict.
_VERDICTS = {
    "settling": "the host is changing; the daemon waits until the change ends",
    "mismatch": "the running driver and its files are of different versions: reload the modules or reboot",
    "absent": "there is no GPU, or its driver is not loaded",
}
CYCLE_RESULTS: tuple[CycleResult, ...] = ("changed", "unchanged", "waiting", "failed")
# The state of the host is the first of these states that a vendor has. Absent vendors are ignored if another
# vendor is present.
_WORST_FIRST: tuple[VendorState, ...] = ("mismatch", "settling", "degraded", "ready", "absent")
_SERVING = frozenset({"ready", "degraded"})
# The state and the verdict before the end of the first cycle.
STARTING, STARTING_VERDICT = "starting", "the first cycle has not ended yet"
# Maximum number of reasons in a verdict.
_MAX_REASONS = 3
MAX_JOURNAL = 50
# Maximum number of names in a journal entry. status.json is written in every cycle; 50 entries have at most
# 200 kB.
MAX_NAMES = 16


@frozen
class VendorReport:
    """The state of one vendor on this host, with reason and hint; ``next_status`` sets ``since_s``."""

    vendor: str
    state: VendorState
    reason: str = ""
    hint: str = ""
    since_s: float = 0.0


@frozen
class SpecReport:
    """The result of a cycle for the spec of one kind.

    ``served`` is the number of names in the spec. ``left_out`` is the number of devices of the kind that are
    not in the spec. ``written_s`` is the time of the last write of the file, None if there is no file.
    ``changes`` are the changes of this cycle.
    """

    kind: str
    file: str
    result: SpecResult
    reason: str = ""
    served: int = 0
    left_out: int = 0
    written_s: float | None = None
    changes: Changes | None = None


@frozen
class CycleReport:
    """The reasons, the duration and the results of one cycle.

    ``result`` is ``changed`` if a file was written or removed, ``waiting`` if the host is still changing, and
    ``failed`` if a change could not be made. ``error`` is the reason of a failure. ``events`` is the number
    of events since the last cycle. ``reasons`` are the distinct events. ``devices`` is the number of devices
    that containers could use if all devices were healthy. ``unhealthy`` is the number of unhealthy devices in
    ``devices``. ``is_bare`` is true if the host has no GPU. ``obstacles`` are findings that prevent runtimes
    from using specs on the disk. ``findings`` contains the obstacles as well.
    """

    number: int
    reasons: tuple[Trigger, ...]
    started_s: float
    duration_s: float
    result: CycleResult
    events: int = 0
    vendors: tuple[VendorReport, ...] = ()
    specs: tuple[SpecReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    obstacles: tuple[Finding, ...] = ()
    error: str = ""
    devices: int = 0
    unhealthy: int = 0
    is_bare: bool = False


@frozen
class JournalEntry:
    """A spec that was written or removed: the time, the cycle, its reasons, and the changes.

    Each list has at most ``MAX_NAMES`` names. ``summary`` has the full number of names.
    """

    at_s: float
    cycle: int
    reasons: tuple[str, ...]
    kind: str
    file: str
    result: SpecResult
    summary: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()


@frozen
class DaemonStatus:
    """The state of the daemon and the host after the last cycle.

    ``cycle`` is None before the end of the first cycle. ``state`` and ``verdict`` are the first line of the
    output for people: ``degraded: 8 of 8 devices unhealthy``. ``specs`` are the spec reports of the last
    cycle. If a cycle fails before it reports a spec, the older reports stay. ``sources`` are pairs of a
    source's name and its problem. The problem of a healthy source is "". ``is_configured`` is false if the
    configuration on the disk is invalid. The previous configuration then stays active. ``maintained`` are the
    settings of the last cycle.
    """

    version: str
    started_s: float
    since_s: float
    state: str = STARTING
    verdict: str = STARTING_VERDICT
    vendors: tuple[VendorReport, ...] = ()
    specs: tuple[SpecReport, ...] = ()
    cycle: CycleReport | None = None
    last_success_s: float | None = None
    sources: tuple[tuple[str, str], ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    is_configured: bool = True
    maintained: Mapping[str, Any] = MappingProxyType({})


def next_status(status: DaemonStatus, report: CycleReport, sources: Mapping[str, str]) -> DaemonStatus:
    """Return STATUS updated by the cycle of REPORT and the health of SOURCES. The function is pure."""
    ended_s = report.started_s + report.duration_s
    before = {vendor.vendor: vendor for vendor in status.vendors}
    vendors = tuple(_since(vendor, before.get(vendor.vendor), ended_s) for vendor in report.vendors)
    if vendors:
        state, text = verdict(report)
    else:
        state, text = ("degraded", report.error) if report.error else (status.state, status.verdict)
    return replace(
        status,
        state=state,
        verdict=text,
        since_s=status.since_s if state == status.state else ended_s,
        vendors=vendors or status.vendors,
        specs=status.specs if report.result == "failed" and not report.specs else report.specs,
        cycle=report,
        last_success_s=status.last_success_s if report.result == "failed" else ended_s,
        sources=tuple(sources.items()),
        journal=(*status.journal, *_journaled(report))[-MAX_JOURNAL:],
    )


def overall(vendors: tuple[VendorReport, ...]) -> VendorState:
    """Return the state of the host: the worst state of the present vendors, or ``absent``."""
    states = {vendor.state for vendor in vendors}
    return next((state for state in _WORST_FIRST if state in states), "absent")


def verdict(report: CycleReport) -> tuple[str, str]:
    """Return the state of the host after the cycle of REPORT, and the reason.

    In the state ``ready``, containers can use all devices.
    """
    state = overall(report.vendors)
    if state not in _SERVING:
        reasons = (vendor.reason for vendor in report.vendors if vendor.state == state and vendor.reason)
        return state, _joined((next(reasons, _VERDICTS[state]), *_reasons(report)))
    served = [spec.kind for spec in report.specs if spec.served]
    found = tuple(_reasons(report)) or (() if served else ("no device is in a spec",))
    if found:
        return "degraded", _joined(found)
    # On WSL2 and Tegra boards, the number of devices is unknown.
    usable = _number_of(report.devices) if report.devices else ", ".join(served)
    return "ready", f"containers can use {usable}"


def _reasons(report: CycleReport) -> Iterator[str]:
    """Yield the reasons why containers cannot use devices, the most severe reason first."""
    for obstacle in report.obstacles:
        yield obstacle.message
    refused = [spec for spec in report.specs if spec.result == "refused"]
    for spec in refused:
        yield spec.reason if spec.kind in spec.reason else f"{spec.kind} is not written: {spec.reason}"
    if report.error and not refused:
        yield report.error
    if report.unhealthy:
        yield f"{report.unhealthy} of {_number_of(report.devices)} unhealthy"
    for vendor in report.vendors:
        if vendor.state == "degraded":
            yield vendor.reason if vendor.vendor in vendor.reason else f"{vendor.vendor}: {vendor.reason}"


def _joined(reasons: Iterable[str]) -> str:
    """Return the first REASONS in one line, and the number of further reasons.

    A reason that is contained in another reason is dropped.
    """
    every = tuple(dict.fromkeys(reasons))
    found = [one for one in every if not any(one in other for other in every if other != one)]
    more = f"; and {len(found) - _MAX_REASONS} more" if len(found) > _MAX_REASONS else ""
    return "; ".join(found[:_MAX_REASONS]) + more


def _number_of(count: int) -> str:
    return f"{count} device{'s' * (count != 1)}"


def reason_unready(status: DaemonStatus) -> str:
    """Return the reason why no vendor serves containers; "" if a vendor serves them or the host has no GPU.

    A vendor serves containers if it is ready or degraded, and its spec is on the disk. One serving vendor is
    enough, because a host need not have GPUs of every vendor. A node of a cluster need not have any GPU.
    """
    if status.cycle is None:
        return STARTING_VERDICT
    states = {vendor.state for vendor in status.vendors}
    if states & _SERVING:
        if any(spec.written_s is not None for spec in status.specs):
            return ""
        if status.cycle.error or "ready" in states:
            return status.cycle.error
    missing = [one for one in status.cycle.findings if one.rule == MOUNT_MISSING]
    if missing:
        return missing[0].message
    if status.cycle.is_bare and not status.cycle.error:
        return ""
    return "; ".join(map(_why, status.vendors)) or status.cycle.error or "no vendor is known"


def _why(vendor: VendorReport) -> str:
    return f"{vendor.vendor}: {vendor.state}" + (f", {vendor.reason}" if vendor.reason else "")


def _since(vendor: VendorReport, before: VendorReport | None, now_s: float) -> VendorReport:
    same = before is not None and before.state == vendor.state
    return replace(vendor, since_s=before.since_s if before is not None and same else now_s)


def _journaled(report: CycleReport) -> tuple[JournalEntry, ...]:
    return tuple(
        _entry(report, spec, spec.changes)
        for spec in report.specs
        if spec.result in {"written", "withdrawn"} or (spec.changes is not None and spec.changes.any())
    )


def _entry(report: CycleReport, spec: SpecReport, changes: Changes | None) -> JournalEntry:
    entry = JournalEntry(
        at_s=report.started_s + report.duration_s,
        cycle=report.number,
        reasons=tuple(f"{trigger.source}: {trigger.reason}" for trigger in report.reasons[:MAX_NAMES]),
        kind=spec.kind,
        file=spec.file,
        result=spec.result,
        summary=spec.reason or spec.result,
    )
    if changes is None:
        return entry
    edits = [
        f"{sign} {row['device'] or 'all'}: {name}"
        for row in changes.rows()
        for sign, key in (("+", "added"), ("-", "removed"), ("~", "changed"))
        for name in row[key]
    ]
    return replace(
        entry,
        summary=changes.summary() + (f"; {spec.reason}" if spec.reason else ""),
        added=changes.added[:MAX_NAMES],
        removed=changes.removed[:MAX_NAMES],
        changed=changes.changed()[:MAX_NAMES],
        edits=tuple(edits[:MAX_NAMES]),
    )
