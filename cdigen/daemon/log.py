"""Log a cycle of the daemon in one line: ``cycle``."""

from __future__ import annotations

from itertools import islice

from cdigen.daemon.report import MAX_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from structlog.typing import FilteringBoundLogger

    from cdigen.cdi.compare import Changes
    from cdigen.daemon.report import CycleReport


def cycle(logger: FilteringBoundLogger, report: CycleReport, previous: CycleReport | None = None) -> None:
    """Write the line of the cycle REPORT.

    A failure for another reason than that of the PREVIOUS one has the level error, a cycle that changed a
    spec or a vendor's state info, any other debug.
    """
    facts = _facts(report)
    is_news = previous is None or (previous.result, previous.error) != (report.result, report.error)
    if report.result == "failed" and is_news:
        logger.error("cycle", **facts)
    elif report.result == "changed" or _vendor_states(report) != _vendor_states(previous):
        logger.info("cycle", **facts)
    else:
        logger.debug("cycle", **facts)


def _vendor_states(report: CycleReport | None) -> list[tuple[str, str, str]]:
    vendors = report.vendors if report is not None else ()
    return [(vendor.vendor, vendor.state, vendor.reason) for vendor in vendors]


def _facts(report: CycleReport) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "number": report.number,
        "result": report.result,
        "duration_ms": round(report.duration_s * 1000, 1),
        "events": report.events,
        "reasons": [f"{trigger.source}: {trigger.reason}" for trigger in report.reasons[:MAX_NAMES]],
        "vendors": {
            vendor.vendor: f"{vendor.state}: {vendor.reason}" if vendor.reason else vendor.state
            for vendor in report.vendors
        },
    }
    if specs := [spec for spec in report.specs if spec.result not in {"unchanged", "absent"}]:
        facts["specs"] = [
            {
                "kind": spec.kind,
                "file": spec.file,
                "result": spec.result,
                "reason": spec.reason,
                "devices": spec.served,
            }
            | _named(spec.changes)
            for spec in specs
        ]
    if report.error:
        facts["error"] = report.error
    return facts


def _named(changes: Changes | None) -> dict[str, Any]:
    if changes is None:
        return {}
    lists = (("added", changes.added), ("removed", changes.removed), ("changed", changes.changed()))
    named = {key: list(islice(names, MAX_NAMES)) for key, names in lists if names}
    return {"changes": changes.summary(), **named}
