"""Write the book into inventories: ``annotated``; what is not there any more: ``lost_devices``. Pure."""

from __future__ import annotations

from cdigen.health.book import LOST
from cdigen.health.clearing import rule_of
from cdigen.health.identity import address_of, is_another
from cdigen.model.findings import Finding
from cdigen.model.health import Cause
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.health.book import Book, DeviceRecord, Evidence, Policy
    from cdigen.health.marks import Mark
    from cdigen.model.health import Health
    from cdigen.model.inventory import Accelerator, Inventory, Partition

# The cause of a person's mark.
MARKED = "marked"
_CLEARED = "someone clears it with 'cdigen health --clear'"


def annotated(
    book: Book, marks: tuple[Mark, ...], inventories: Mapping[str, Inventory], policy: Policy
) -> dict[str, Inventory]:
    """Return INVENTORIES with the health and the causes of each device and partition."""
    records = {(one.vendor, one.address): one for one in book.devices}
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


def without_unhealthy(inventories: Mapping[str, Inventory]) -> dict[str, Inventory]:
    """Return INVENTORIES with their unhealthy devices and partitions as ones that cannot be used."""
    return {vendor: _without_unhealthy(inventory) for vendor, inventory in inventories.items()}


def _without_unhealthy(inventory: Inventory) -> Inventory:
    left_out = tuple(
        Finding(
            severity="error",
            rule="unhealthy-left-out",
            path=accelerator.address,
            message=f"{accelerator.address} {part.instance if part is not None else ''}".rstrip()
            + f" is left out: {_problem((part or accelerator).causes)}",
            hint="'cdigen health' says what ends each cause, and 'health: {in_spec: true}' offers it again",
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
    return "it is unhealthy: " + ", ".join(f"{one.cause} ({one.detail})" for one in causes[:3])


def changed_devices(before: Mapping[str, Inventory], now: Mapping[str, Inventory]) -> tuple[str, ...]:
    """Return the addresses of devices that were there BEFORE, and whose health or causes are others NOW."""
    known = {
        (vendor, address_of(one)): _told(one)
        for vendor, inventory in before.items()
        for one in inventory.accelerators
    }
    return tuple(
        address_of(one)
        for vendor, inventory in now.items()
        for one in inventory.accelerators
        if known.get((vendor, address_of(one)), _told(one)) != _told(one)
    )


def _told(accelerator: Accelerator) -> tuple[object, ...]:
    parts = tuple((one.health, one.causes) for one in accelerator.partitions)
    return accelerator.health, accelerator.causes, parts


def lost_devices(book: Book, inventories: Mapping[str, Inventory]) -> tuple[Finding, ...]:
    """Return which devices of the vendors of INVENTORIES were there in this boot, and are not any more."""
    there = {
        (vendor, address_of(accelerator))
        for vendor, inventory in inventories.items()
        for accelerator in inventory.accelerators
    }
    return tuple(
        Finding(
            severity="warning",
            rule="device-lost",
            path=record.address,
            message=f"{record.address} ({record.model}) is gone since {lost.since}: {lost.detail}"
            + _also(record.evidence),
            hint="the kernel's log says why (dmesg); a reboot brings back one that fell off the bus",
        )
        for record in book.devices
        if record.vendor in inventories and (record.vendor, record.address) not in there
        for lost in record.evidence
        if lost.cause == LOST
    )


def _also(evidence: tuple[Evidence, ...]) -> str:
    causes = dict.fromkeys(one.cause for one in evidence if one.cause != LOST)
    return f" (it also had {', '.join(causes)})" if causes else ""


def _annotated(
    accelerator: Accelerator, record: DeviceRecord | None, marks: tuple[Mark, ...], policy: Policy
) -> Accelerator:
    if record is not None and is_another(record, accelerator):
        record = None
    evidence = record.evidence if record is not None else ()
    # Of a partition that is not offered as one, the device is what it harms.
    own = [one for one in evidence if not one.instance or not accelerator.partitioned]
    of_device = _causes(own, [mark for mark in marks if not mark.instance], record, policy)
    is_reached = record is not None and record.is_reached
    partitions = []
    for part in accelerator.partitions:
        parts = [one for one in evidence if one.instance and _is_of(one.instance, part)]
        marked = [mark for mark in marks if mark.instance and _is_of(mark.instance, part)]
        causes = _without_repeats((*_causes(parts, marked, record, policy), *of_device))
        partitions.append(replace(part, causes=causes, health=_health(causes, is_reached=is_reached)))
    return replace(
        accelerator,
        causes=of_device,
        health=_health(of_device, is_reached=is_reached),
        partitions=tuple(partitions),
    )


def _causes(
    evidence: Iterable[Evidence], marks: Iterable[Mark], record: DeviceRecord | None, policy: Policy
) -> tuple[Cause, ...]:
    found = [
        Cause(
            cause=one.cause,
            since=one.since,
            detail=one.detail,
            clears_when=rule_of(policy, record.vendor if record else "", one).clears_when,
        )
        for one in evidence
        if one.cause not in policy.ignored
    ]
    found += [
        Cause(cause=MARKED, since=mark.since, detail=mark.reason, clears_when=_CLEARED) for mark in marks
    ]
    return _without_repeats(sorted(found, key=lambda one: (one.since, one.cause, one.detail)))


def _without_repeats(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Return the first of each of CAUSES."""
    first: dict[str, Cause] = {}
    for cause in causes:
        first.setdefault(cause.cause, cause)
    return tuple(first.values())


def _health(causes: tuple[Cause, ...], *, is_reached: bool) -> Health:
    if causes:
        return "unhealthy"
    return "healthy" if is_reached else "unknown"


def _is_of(instance: str, part: Partition) -> bool:
    return part.instance == instance or part.instance.startswith(f"{instance}/")
