"""Pure functions: ``annotated`` writes health into inventories, ``lost_devices`` finds missing devices."""

from __future__ import annotations

from cdigen.health.clearing import next_step, rule_of
from cdigen.health.state import LOST, address_of, is_another
from cdigen.model.findings import Finding
from cdigen.model.health import Cause
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.health.marks import Mark
    from cdigen.health.state import ClearingPolicy, DeviceRecord, Evidence, HealthState
    from cdigen.model.health import Health
    from cdigen.model.inventory import Accelerator, Inventory, Partition

# The cause of a device that has a mark (``cdigen health --mark``).
MARKED = "marked"
_CLEARED = "the mark is cleared with 'cdigen health --clear DEVICE'"


def annotated(
    state: HealthState, marks: tuple[Mark, ...], inventories: Mapping[str, Inventory], policy: ClearingPolicy
) -> dict[str, Inventory]:
    """Return INVENTORIES with the health and the causes of each device and partition."""
    records = {(one.vendor, one.address): one for one in state.devices}
    shown = {}
    for vendor, inventory in inventories.items():
        accelerators = tuple(
            _annotated(
                accelerator,
                records.get((vendor, address_of(accelerator))),
                tuple(mark for mark in marks if mark.is_on(vendor, accelerator)),
                policy,
            )
            for accelerator in inventory.accelerators
        )
        shown[vendor] = replace(inventory, accelerators=accelerators)
    return shown


def with_marks(inventories: Mapping[str, Inventory], marks: tuple[Mark, ...]) -> dict[str, Inventory]:
    """Return a daemon's INVENTORIES with MARKS, also with marks that the daemon has not read yet.

    The health of a device whose only cause was a removed mark is unknown until the daemon's next cycle.
    """
    return {
        vendor: replace(
            inventory,
            accelerators=tuple(
                _marked(one, tuple(mark for mark in marks if mark.is_on(vendor, one)))
                for one in inventory.accelerators
            ),
        )
        for vendor, inventory in inventories.items()
    }


def _marked(accelerator: Accelerator, marks: tuple[Mark, ...]) -> Accelerator:
    whole = _mark_causes((mark for mark in marks if not mark.instance), _name(accelerator))
    partitions = []
    for part in accelerator.partitions:
        of_part = (mark for mark in marks if mark.instance and _has_instance(mark.instance, part))
        causes = _remarked(part.causes, (*_mark_causes(of_part, part.uuid), *whole))
        health = _health_of(causes, part.causes, part.health)
        partitions.append(replace(part, causes=causes, health=health))
    causes = _remarked(accelerator.causes, whole)
    health = _health_of(causes, accelerator.causes, accelerator.health)
    return replace(accelerator, causes=causes, health=health, partitions=tuple(partitions))


def _remarked(causes: tuple[Cause, ...], marked: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Return CAUSES with MARKED in place of the present causes of this kind."""
    return _without_repeats((*(cause for cause in causes if cause.cause != MARKED), *marked))


def _health_of(causes: tuple[Cause, ...], before: tuple[Cause, ...], health: Health) -> Health:
    """Return HEALTH, the health with the causes BEFORE, or the health with other CAUSES."""
    return health if bool(causes) == bool(before) else _health(causes, was_checked=False)


def without_unhealthy(inventories: Mapping[str, Inventory]) -> dict[str, Inventory]:
    """Return INVENTORIES with unhealthy devices and partitions set to unusable, and with findings."""
    return {vendor: _without_unhealthy(inventory) for vendor, inventory in inventories.items()}


def _without_unhealthy(inventory: Inventory) -> Inventory:
    left_out = tuple(
        Finding(
            severity="error",
            rule="unhealthy-left-out",
            path=accelerator.address,
            message=f"{accelerator.address} {part.instance if part is not None else ''}".rstrip()
            + f": left out of the specs, {_problem((part or accelerator).causes)}",
            hint="clear the causes as 'cdigen health' shows, or set 'health: {unhealthy_in_spec: true}'",
        )
        for accelerator in inventory.accelerators
        for part in (None, *accelerator.partitions)
        if (part or accelerator).usable and (part or accelerator).health == "unhealthy"
        if part is None or accelerator.health != "unhealthy"
    )
    return replace(
        inventory,
        accelerators=tuple(_unusable_if_unhealthy(one) for one in inventory.accelerators),
        findings=(*inventory.findings, *left_out),
    )


def _unusable_if_unhealthy(accelerator: Accelerator) -> Accelerator:
    partitions = tuple(
        replace(one, usable=False, problem=_problem(one.causes))
        if one.usable and one.health == "unhealthy"
        else one
        for one in accelerator.partitions
    )
    if accelerator.usable and accelerator.health == "unhealthy":
        problem = _problem(accelerator.causes)
        return replace(accelerator, usable=False, problem=problem, partitions=partitions)
    return replace(accelerator, partitions=partitions)


def _problem(causes: tuple[Cause, ...]) -> str:
    return "unhealthy: " + ", ".join(f"{one.cause} ({one.detail})" for one in causes[:3])


def changed_devices(before: Mapping[str, Inventory], now: Mapping[str, Inventory]) -> tuple[str, ...]:
    """Return the addresses of the devices whose health or causes differ in the inventories BEFORE and NOW."""
    known = {
        (vendor, address_of(one)): _health_values(one)
        for vendor, inventory in before.items()
        for one in inventory.accelerators
    }
    return tuple(
        address_of(one)
        for vendor, inventory in now.items()
        for one in inventory.accelerators
        if known.get((vendor, address_of(one)), _health_values(one)) != _health_values(one)
    )


def _health_values(accelerator: Accelerator) -> tuple[object, ...]:
    parts = tuple((one.health, one.causes) for one in accelerator.partitions)
    return accelerator.health, accelerator.causes, parts


def lost_devices(state: HealthState, inventories: Mapping[str, Inventory]) -> tuple[Finding, ...]:
    """Return a finding for each lost device of the vendors in INVENTORIES."""
    present = {
        (vendor, address_of(accelerator))
        for vendor, inventory in inventories.items()
        for accelerator in inventory.accelerators
    }
    return tuple(
        Finding(
            severity="warning",
            rule="device-lost",
            path=record.address,
            message=f"{record.address} ({record.model}): lost since {lost.since}: {lost.detail}"
            + _also(record.evidence),
            hint="run 'dmesg' for the reason; a reboot restores a device that fell off the bus",
        )
        for record in state.devices
        if record.vendor in inventories and (record.vendor, record.address) not in present
        for lost in record.evidence
        if lost.cause == LOST
    )


def _also(evidence: tuple[Evidence, ...]) -> str:
    causes = dict.fromkeys(one.cause for one in evidence if one.cause != LOST)
    return f" (other causes: {', '.join(causes)})" if causes else ""


def _annotated(
    accelerator: Accelerator, record: DeviceRecord | None, marks: tuple[Mark, ...], policy: ClearingPolicy
) -> Accelerator:
    if record is not None and is_another(record, accelerator):
        record = None
    evidence = record.evidence if record is not None else ()
    # The evidence for a partition applies to the device if the device is not partitioned.
    own = [one for one in evidence if not one.instance or not accelerator.partitioned]
    marked = [mark for mark in marks if not mark.instance]
    of_device = _causes(own, marked, record, policy, name=_name(accelerator))
    was_checked = record is not None and record.was_checked
    partitions = []
    for part in accelerator.partitions:
        parts = [one for one in evidence if one.instance and _has_instance(one.instance, part)]
        marked = [mark for mark in marks if mark.instance and _has_instance(mark.instance, part)]
        of_part = _causes(parts, marked, record, policy, name=part.uuid)
        causes = _without_repeats((*of_part, *of_device))
        partitions.append(replace(part, causes=causes, health=_health(causes, was_checked=was_checked)))
    return replace(
        accelerator,
        causes=of_device,
        health=_health(of_device, was_checked=was_checked),
        partitions=tuple(partitions),
    )


def _causes(
    evidence: Iterable[Evidence],
    marks: Iterable[Mark],
    record: DeviceRecord | None,
    policy: ClearingPolicy,
    *,
    name: str | None,
) -> tuple[Cause, ...]:
    """Return the causes from EVIDENCE and MARKS. NAME is the name of the device in commands."""
    found = []
    for one in evidence:
        if one.cause in policy.ignored:
            continue
        rule = rule_of(policy, record.vendor if record else "", one)
        found.append(
            Cause(
                cause=one.cause,
                since=one.since,
                detail=one.detail,
                clears_when=rule.clears_when,
                next_step=next_step(rule),
            )
        )
    found += _mark_causes(marks, name)
    return _without_repeats(sorted(found, key=lambda one: (one.since, one.cause, one.detail)))


def _mark_causes(marks: Iterable[Mark], name: str | None) -> tuple[Cause, ...]:
    return tuple(
        Cause(
            cause=MARKED,
            since=mark.since,
            detail=mark.reason,
            clears_when=_CLEARED,
            next_step=f"if the reason is gone, clear the mark: 'cdigen health --clear {name or 'DEVICE'}'",
        )
        for mark in marks
    )


def _name(accelerator: Accelerator) -> str | None:
    return accelerator.address or accelerator.uuid


def _without_repeats(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return the first of CAUSES for each kind of cause."""
    first: dict[str, Cause] = {}
    for cause in causes:
        first.setdefault(cause.cause, cause)
    return tuple(first.values())


def _health(causes: tuple[Cause, ...], *, was_checked: bool) -> Health:
    if causes:
        return "unhealthy"
    return "healthy" if was_checked else "unknown"


def _has_instance(instance: str, part: Partition) -> bool:
    return part.instance == instance or part.instance.startswith(f"{instance}/")
