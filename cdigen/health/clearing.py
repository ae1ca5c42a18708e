"""The rules that clear causes, by later recoveries (``is_cleared``) and by elapsed time (``due_s``). Pure."""

from __future__ import annotations

import math

from cdigen.health.state import LOST, is_another
from cdigen.model.health import CauseRule
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.health.state import (
        ClearingPolicy,
        DeviceRecord,
        Evidence,
        HealthState,
        LastRecovery,
        ManualClear,
    )

LOST_RULE = CauseRule(
    cause=LOST,
    cleared_by=("gone",),
    clears_when="the device is found and usable again, or the host is rebooted",
    meaning="A device that was usable earlier in this boot is missing or unusable.",
    reference="",
    next_step="run 'cdigen doctor' to find missing nodes and drivers; if there are none, reboot the host",
)
# Clearances (events that clear a cause), from the easiest to the hardest.
_EASE = ("clear_after", "recovered", "gone", "reload", "reset")


def rule_of(policy: ClearingPolicy, vendor: str, evidence: Evidence) -> CauseRule:
    """Return the rule of EVIDENCE. A cause without a rule gets a strict rule."""
    if evidence.cause == LOST:
        return LOST_RULE
    return policy.rules.get((vendor, evidence.cause)) or CauseRule(
        cause=evidence.cause,
        cleared_by=("gone", "reset", "reload"),
        clears_when="the device is reset, or its driver is reloaded",
        meaning="",
        reference="",
    )


def next_step(rule: CauseRule) -> str:
    """Return the administrator's action that ends a cause with RULE."""
    if rule.next_step:
        return rule.next_step
    if "reset" in rule.cleared_by:
        return "reset the device, or reboot the host"
    if "reload" in rule.cleared_by:
        return "load the driver again, or reboot the host"
    return "reboot the host"


def is_cleared(evidence: Evidence, record: DeviceRecord, now_s: float, policy: ClearingPolicy) -> bool:
    """Return whether EVIDENCE for the device RECORD is cleared at NOW_S."""
    if is_event(evidence) and any(
        one.at_s >= evidence.last_s and applies_to(one, evidence, record) for one in policy.clears
    ):
        return True
    has_elapsed = now_s - evidence.last_s >= policy.clear_after_s
    after = {one.clearance for one in record.recoveries if one.at_s > evidence.last_s}
    if not is_event(evidence):
        # Checks find this cause, so only a check can show that it is gone. A report in the log cannot.
        after.discard("gone")
    if has_elapsed:
        after.add("clear_after")
    else:
        after.discard("recovered")
    return not after.isdisjoint(rule_of(policy, record.vendor, evidence).cleared_by)


def is_event(evidence: Evidence) -> bool:
    """Return whether EVIDENCE is a single event, which later checks do not find again."""
    return evidence.source in {"log", "counter"}


def applies_to(clear: ManualClear, evidence: Evidence, record: DeviceRecord) -> bool:
    """Return whether the command CLEAR applies to EVIDENCE for the device RECORD."""
    if (clear.vendor, clear.address) != (record.vendor, record.address) or is_another(clear, record):
        return False
    return includes(clear.instance, evidence.instance)


def includes(named: str, instance: str) -> bool:
    """Return whether a command that clears the partition NAMED ("" for the device) also clears INSTANCE."""
    # A command cannot name a GPU instance. A clear of a compute instance also clears its GPU instance.
    return named in {"", instance} or (bool(instance) and named.startswith(f"{instance}/"))


def without_cleared(record: DeviceRecord, now_s: float, policy: ClearingPolicy) -> DeviceRecord:
    """Return RECORD without the causes that are cleared at NOW_S."""
    kept = tuple(one for one in record.evidence if not is_cleared(one, record, now_s, policy))
    return record if kept == record.evidence else replace(record, evidence=kept)


def latest(known: tuple[LastRecovery, ...], found: LastRecovery) -> tuple[LastRecovery, ...]:
    """Return KNOWN with FOUND; of two recoveries with the same clearance, only the latest is kept."""
    before = next((one for one in known if one.clearance == found.clearance), None)
    if before is not None and before.at_s >= found.at_s:
        return known
    return (*(one for one in known if one.clearance != found.clearance), found)


def without_least_severe(
    evidence: tuple[Evidence, ...], vendor: str, policy: ClearingPolicy
) -> tuple[Evidence, ...]:
    """Return EVIDENCE without one item: the oldest of the items with the easiest clearance."""

    def weight(one: Evidence) -> tuple[int, float]:
        cleared_by = rule_of(policy, vendor, one).cleared_by
        return min((_EASE.index(word) for word in cleared_by), default=len(_EASE)), one.last_s

    least = min(evidence, key=weight)
    return tuple(one for one in evidence if one is not least)


def just_after(at_s: float) -> float:
    """Return the time directly after AT_S. A recovery at this time clears an event at AT_S."""
    return math.nextafter(at_s, math.inf)


def due_s(state: HealthState, policy: ClearingPolicy, now_s: float) -> float | None:
    """Return the next CLOCK_BOOTTIME after NOW_S at which elapsed time may clear a cause, or None."""
    times = (evidence.last_s + policy.clear_after_s for _, evidence in _timed_causes(state, policy))
    return min((time_s for time_s in times if time_s > now_s), default=None)


def awaited(state: HealthState, policy: ClearingPolicy) -> dict[str, float]:
    """Return the vendors with causes that a probe may clear (clearance ``recovered``).

    The value of a vendor is the earliest time at which a recovery can clear one of these causes.
    """
    times: dict[str, float] = {}
    for device, evidence in _timed_causes(state, policy):
        if "recovered" in rule_of(policy, device.vendor, evidence).cleared_by and not any(
            one.clearance == "recovered" and one.at_s > evidence.last_s for one in device.recoveries
        ):
            due = evidence.last_s + policy.clear_after_s
            times[device.vendor] = min(due, times.get(device.vendor, due))
    return times


def _timed_causes(state: HealthState, policy: ClearingPolicy) -> Iterator[tuple[DeviceRecord, Evidence]]:
    for device in state.devices:
        for evidence in device.evidence:
            if not {"clear_after", "recovered"}.isdisjoint(
                rule_of(policy, device.vendor, evidence).cleared_by
            ):
                yield device, evidence
