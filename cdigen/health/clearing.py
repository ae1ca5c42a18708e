"""What clears a cause: ``is_past`` judges by its rule, and by what has been seen since. Pure."""

from __future__ import annotations

import math

from cdigen.health.book import LOST
from cdigen.health.identity import is_another
from cdigen.model.health import CauseRule
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.health.book import Clear, DeviceRecord, Evidence, Policy, Recovered

LOST_RULE = CauseRule(
    cause=LOST,
    cleared_by=("gone",),
    clears_when="the device is found and can be used again, or the host is rebooted",
    meaning="A device that could be used earlier in this boot is gone, or cannot be used any more.",
    reference="",
)
# From what clears it most easily to what clears it hardest.
_EASE = ("quiet", "recovered", "gone", "reload", "reset")


def rule_of(policy: Policy, vendor: str, evidence: Evidence) -> CauseRule:
    """Return the rule of EVIDENCE; of a cause that no table has, one that is on the safe side."""
    if evidence.cause == LOST:
        return LOST_RULE
    return policy.rules.get((vendor, evidence.cause)) or CauseRule(
        cause=evidence.cause,
        cleared_by=("gone", "reset", "reload"),
        clears_when="the device was reset, or its driver loaded anew",
        meaning="",
        reference="",
    )


def is_past(evidence: Evidence, record: DeviceRecord, now_s: float, policy: Policy) -> bool:
    """Return whether EVIDENCE for the device RECORD is cleared by NOW_S."""
    if is_event(evidence) and any(
        one.at_s >= evidence.last_s and is_about(one, evidence, record) for one in policy.clears
    ):
        return True
    is_quiet = now_s - evidence.last_s >= policy.quiet_s
    after = {one.clearance for one in record.recovered if one.at_s > evidence.last_s}
    if not is_event(evidence):
        # What a look shows is gone when the look no longer shows it.
        after.discard("gone")
    if is_quiet:
        after.add("quiet")
    else:
        after.discard("recovered")
    return not after.isdisjoint(rule_of(policy, record.vendor, evidence).cleared_by)


def is_event(evidence: Evidence) -> bool:
    """Return whether EVIDENCE tells what happened once, and not what each look sees as long as it lasts."""
    return evidence.source in {"log", "counter"}


def is_about(word: Clear, evidence: Evidence, record: DeviceRecord) -> bool:
    """Return whether a person's WORD is about EVIDENCE for the device RECORD."""
    if (word.vendor, word.address) != (record.vendor, record.address) or is_another(word, record):
        return False
    return is_of(word.instance, evidence.instance)


def is_of(named: str, instance: str) -> bool:
    """Return whether a person who clears the partition NAMED (empty: the device) means INSTANCE as well."""
    # A GPU instance is cleared with any of its compute instances: it has no name of its own.
    return named in {"", instance} or (bool(instance) and named.startswith(f"{instance}/"))


def settled(record: DeviceRecord, now_s: float, policy: Policy) -> DeviceRecord:
    """Return RECORD without what is past."""
    kept = tuple(one for one in record.evidence if not is_past(one, record, now_s, policy))
    return record if kept == record.evidence else replace(record, evidence=kept)


def latest(known: tuple[Recovered, ...], found: Recovered) -> tuple[Recovered, ...]:
    """Return KNOWN and FOUND: of each clearance the latest."""
    before = next((one for one in known if one.clearance == found.clearance), None)
    if before is not None and before.at_s >= found.at_s:
        return known
    return (*(one for one in known if one.clearance != found.clearance), found)


def without_the_least(evidence: tuple[Evidence, ...], vendor: str, policy: Policy) -> tuple[Evidence, ...]:
    """Return EVIDENCE without the one that is cleared most easily, of those the one seen longest ago."""

    def weight(one: Evidence) -> tuple[int, float]:
        cleared_by = rule_of(policy, vendor, one).cleared_by
        return min((_EASE.index(word) for word in cleared_by), default=len(_EASE)), one.last_s

    least = min(evidence, key=weight)
    return tuple(one for one in evidence if one is not least)


def just_after(at_s: float) -> float:
    """Return the moment after AT_S: what clears then clears what happened at AT_S."""
    return math.nextafter(at_s, math.inf)
