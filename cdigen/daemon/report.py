"""What the daemon reports: a ``CycleReport`` of each cycle, and the ``DaemonStatus`` they add up to.

``next_status`` makes the next status from the last one and a report. Everything that shows the daemon
(status.json, metrics, log, health) is made from these values and reads nothing else.
Wall-clock times are seconds since 1970, as ``time.time`` gives them.
"""

from __future__ import annotations

from cdigen.host.mounts import MISSING as MOUNT_MISSING
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from cdigen.cdi.compare import Changes
    from cdigen.model.findings import Finding
    from cdigen.watch.triggers import Trigger

    VendorState = Literal["ready", "settling", "degraded", "mismatch", "absent"]
    SpecResult = Literal["written", "unchanged", "kept", "withdrawn", "absent", "refused"]
    CycleResult = Literal["changed", "unchanged", "waiting", "failed"]

VENDOR_STATES: tuple[VendorState, ...] = ("ready", "settling", "degraded", "mismatch", "absent")
# What each state means for whoever starts a container now, and what has to be done about it.
MEANINGS = {
    "starting": "the daemon has not looked yet",
    "ready": "containers can use the devices below",
    "settling": "the host is being changed; the daemon waits for that to end and looks again by itself",
    "degraded": "containers can use the devices below; some GPUs are left out, see the findings",
    "mismatch": "the running driver and its files are of different versions: reload the modules or reboot",
    "absent": "there is nothing to offer: no GPU, or its driver is not loaded",
}
CYCLE_RESULTS: tuple[CycleResult, ...] = ("changed", "unchanged", "waiting", "failed")
# The state of the host as a whole: the first of these that a vendor is in. An absent vendor does not count as
# long as another is present.
_GRAVEST_FIRST: tuple[VendorState, ...] = ("mismatch", "settling", "degraded", "ready", "absent")
_SERVING = frozenset({"ready", "degraded"})
# Before the first cycle has ended.
STARTING = "starting"
MAX_JOURNAL = 50
# Each entry is bounded as well: status.json is written in every cycle (50 entries: at most 200 kB).
MAX_NAMES = 16


@frozen
class VendorReport:
    """The state of one vendor on this host, why, what to do; ``next_status`` fills in since when."""

    vendor: str
    state: VendorState
    reason: str = ""
    hint: str = ""
    since_s: float = 0.0


@frozen
class SpecReport:
    """What became of one kind's spec.

    ``served`` and ``left_out`` count devices; ``written_s`` is when the file on the disk was written, None
    where there is none; ``changes`` are those of this cycle.
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
    """One cycle: why it ran, how long, what it found and did.

    ``result`` is ``changed`` if a file was written or removed, ``waiting`` if the host is still changing,
    ``failed`` if a wanted change could not be made: ``error`` says which. ``events``
    counts what happened since the last cycle, of which ``reasons`` are the distinct ones. ``is_bare``: the
    host has no GPU.
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
    error: str = ""
    is_bare: bool = False


@frozen
class JournalEntry:
    """A spec that was written or removed: when, in which cycle and why, and what that changed.

    The lists name ``MAX_NAMES`` at most; ``summary`` counts them all.
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
    """The state of daemon and host after the last cycle; ``cycle`` is None before the first.

    ``specs`` are those of the last cycle that reached them; ``sources`` are the names of the sources, each
    with its problem, "" for a healthy one. ``is_configured`` says whether the configuration on the disk is
    used; if it is wrong, the last good one is.
    """

    version: str
    started_s: float
    since_s: float
    state: str = STARTING
    vendors: tuple[VendorReport, ...] = ()
    specs: tuple[SpecReport, ...] = ()
    cycle: CycleReport | None = None
    last_success_s: float | None = None
    sources: tuple[tuple[str, str], ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    is_configured: bool = True


def next_status(status: DaemonStatus, report: CycleReport, sources: Mapping[str, str]) -> DaemonStatus:
    """Return STATUS updated by the cycle of REPORT and the health of SOURCES. Pure."""
    ended_s = report.started_s + report.duration_s
    before = {vendor.vendor: vendor for vendor in status.vendors}
    vendors = tuple(_since(vendor, before.get(vendor.vendor), ended_s) for vendor in report.vendors)
    state = overall(vendors) if vendors else status.state
    return replace(
        status,
        state=state,
        since_s=status.since_s if state == status.state else ended_s,
        vendors=vendors or status.vendors,
        specs=status.specs if report.result == "failed" and not report.specs else report.specs,
        cycle=report,
        last_success_s=status.last_success_s if report.result == "failed" else ended_s,
        sources=tuple(sources.items()),
        journal=(*status.journal, *_journaled(report))[-MAX_JOURNAL:],
    )


def overall(vendors: tuple[VendorReport, ...]) -> VendorState:
    """Return the state of the host as a whole: the gravest state of a vendor that is present."""
    states = {vendor.state for vendor in vendors}
    return next((state for state in _GRAVEST_FIRST if state in states), "absent")


def reason_unready(status: DaemonStatus) -> str:
    """Return why containers cannot count on any vendor now, "" where they can, or the host has no GPU.

    A vendor serves if it is ready or degraded, and its spec is there. One that serves is enough: a host need
    not have GPUs of every vendor, and a node of a cluster none at all.
    """
    if status.cycle is None:
        return "the first cycle has not ended yet"
    if any(vendor.state in _SERVING for vendor in status.vendors):
        has_specs = any(spec.written_s is not None for spec in status.specs)
        return "" if has_specs else status.cycle.error
    unseen = [one for one in status.cycle.findings if one.rule == MOUNT_MISSING]
    if unseen:
        return unseen[0].message
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
