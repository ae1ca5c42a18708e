"""Log each cycle in one line (``cycle``), and each change of a device's health (``health``)."""

from __future__ import annotations

from itertools import islice

from cdigen.daemon.cycle.report import MAX_NAMES
from cdigen.host.mounts import MISSING, READ_ONLY, REMOVED
from cdigen.runtimes.unread_specs import RULE as UNREAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.cdi.compare import Changes
    from cdigen.daemon.cycle.report import CycleReport
    from cdigen.pipeline.device_names import KnownDevice
    from cdigen.service.process.buffered_log import Logger


MOUNT_RULES = frozenset((MISSING, READ_ONLY, REMOVED))
_HINT = "'cdigen health' shows what ends each cause"


def cycle(logger: Logger, report: CycleReport, previous: CycleReport | None = None) -> None:
    """Log the cycle REPORT in one line.

    - Level error: the cycle failed, and its result or error differs from the PREVIOUS cycle.
    - Level info: a spec, the state of a vendor or the reason of the state changed.
    - Level debug: any other cycle.

    New findings about mounts of the host, and about runtimes that cannot read a spec, have separate lines.
    """
    facts = _facts(report)
    is_new = previous is None or (previous.result, previous.error) != (report.result, report.error)
    if report.result == "failed" and is_new:
        logger.error("cycle", **facts)
    elif report.result == "changed" or _vendor_states(report) != _vendor_states(previous):
        logger.info("cycle", **facts)
    else:
        logger.debug("cycle", **facts)
    known = previous.findings if previous is not None else ()
    for one in report.findings:
        # A user who runs the daemon in a container reads the log first. Other users run 'cdigen status'.
        if one.rule in MOUNT_RULES and one not in known:
            logger.error("finding", rule=one.rule, path=one.path, message=one.message, hint=one.hint)
        elif one.rule == UNREAD and one not in known:
            logger.warning("finding", rule=one.rule, path=one.path, message=one.message, hint=one.hint)


def health(logger: Logger, devices: tuple[KnownDevice, ...], previous: tuple[KnownDevice, ...] = ()) -> None:
    """Log each of DEVICES that became unhealthy, whose causes changed, or that is no longer unhealthy.

    PREVIOUS are the devices of the previous cycle. A new device is logged only if it is unhealthy.
    """
    before = {_identity(device): device for device in previous}
    for device in devices:
        old = before.get(_identity(device))
        was = ("", ()) if old is None else (old.health, _names(old))
        is_changed = (device.health, _names(device)) != was
        if device.health == "unhealthy" and is_changed:
            what = ", ".join(f"{cause.cause} ({cause.detail})" for cause in device.causes[:MAX_NAMES])
            message = f"{device.name} is unhealthy: {what}"
            logger.warning("health", message=message, hint=_HINT, **_health_facts(device))
        elif old is not None and old.health == "unhealthy" and is_changed:
            logger.info("health", **_health_facts(device), ended=list(_names(old)))


def _identity(device: KnownDevice) -> tuple[str | None, ...]:
    return device.vendor, device.accelerator.address, device.accelerator.uuid, device.instance


def _names(device: KnownDevice) -> tuple[str, ...]:
    return tuple(cause.cause for cause in device.causes[:MAX_NAMES])


def _health_facts(device: KnownDevice) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "device": device.name,
        "address": device.accelerator.address,
        "uuid": device.uuid,
        "health": device.health,
    }
    if device.causes:
        facts["causes"] = [
            {"cause": cause.cause, "since": cause.since, "detail": cause.detail} for cause in device.causes
        ]
    return facts


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
