"""How the book goes on: ``advance`` takes in one event, ``due_s`` says when time alone changes it. Pure.

The order in which events come does not matter where their times differ: what clears causes is remembered, so
it clears what happened before it, and nothing that happened after it, whenever that is heard of.
"""

from __future__ import annotations

from cdigen.health import clearing
from cdigen.health.book import (
    LOST,
    Baseline,
    DeviceRecord,
    Evidence,
    Heard,
    KnownPartition,
    Loaded,
    Looked,
    Recovered,
    Said,
    Seen,
)
from cdigen.health.identity import address_of, is_another
from cdigen.model.health import Recovery, Symptom
from cdigen.model.partition_names import disputed
from cdigen.model.timestamps import timestamp
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.health.book import Book, Event, Moment, Policy, VendorRecord
    from cdigen.model.health import Look, Measurement
    from cdigen.model.inventory import Accelerator, Inventory

    _Devices = dict[tuple[str, str], DeviceRecord]

# More than a machine has; a log may name addresses that no device has.
MAX_DEVICES = 1024
MAX_ADDRESS = 64
MAX_DETAIL = 200
# More than a table of causes has for the partitions of a device, so that only nonsense reaches it.
MAX_EVIDENCE = 256
MAX_BASELINES = MAX_SAID = 64
_GONE_AWAY = "it was there earlier in this boot, and is not found any more"


def advance(book: Book, event: Event, now: Moment, policy: Policy) -> Book:
    """Return BOOK after EVENT, of which it is told at NOW."""
    course = _Course(book, now, policy)
    if isinstance(event, Seen):
        for vendor, inventory in event.inventories.items():
            course.see(vendor, inventory, event.given_away)
    elif isinstance(event, Looked):
        course.look(event.vendor, event.look, event.began_s)
    elif isinstance(event, Heard):
        course.hear(event)
    elif isinstance(event, Loaded):
        course.load(event.vendor, event.load)
    return course.settled()


def due_s(book: Book, policy: Policy, now_s: float) -> float | None:
    """Return when after NOW_S time alone may clear a cause, if it may, by CLOCK_BOOTTIME."""
    times = (evidence.last_s + policy.quiet_s for _, evidence in _cleared_in_time(book, policy))
    return min((time_s for time_s in times if time_s > now_s), default=None)


def awaited(book: Book, policy: Policy) -> dict[str, float]:
    """Return which vendors have causes that wait for a probe to say that all is well.

    The time of each is that before which its word does not clear the first of them.
    """
    times: dict[str, float] = {}
    for device, evidence in _cleared_in_time(book, policy):
        if "recovered" in clearing.rule_of(policy, device.vendor, evidence).cleared_by and not any(
            one.clearance == "recovered" and one.at_s > evidence.last_s for one in device.recovered
        ):
            due = evidence.last_s + policy.quiet_s
            times[device.vendor] = min(due, times.get(device.vendor, due))
    return times


def _cleared_in_time(book: Book, policy: Policy) -> Iterator[tuple[DeviceRecord, Evidence]]:
    for device in book.devices:
        for evidence in device.evidence:
            if not {"quiet", "recovered"}.isdisjoint(
                clearing.rule_of(policy, device.vendor, evidence).cleared_by
            ):
                yield device, evidence


class _Course:
    """The book as one event changes it."""

    def __init__(self, book: Book, now: Moment, policy: Policy) -> None:
        self._book = book
        self._now = now
        self._policy = policy
        self._vendors = {one.vendor: one for one in book.vendors}
        self._devices: _Devices = {(one.vendor, one.address): one for one in book.devices}

    def settled(self) -> Book:
        """Return the book without the causes that are cleared by now."""
        devices = tuple(
            clearing.settled(device, self._now.boot_s, self._policy) for device in self._devices.values()
        )
        vendors = tuple(self._vendors.values())
        if (vendors, devices) == (self._book.vendors, self._book.devices):
            return self._book
        return replace(self._book, vendors=vendors, devices=devices)

    # Discovery.

    def see(self, vendor: str, inventory: Inventory, given_away: tuple[str, ...]) -> None:
        known = self._vendor(vendor)
        present = set()
        unclear = disputed(inventory)
        for accelerator in inventory.accelerators:
            address = address_of(accelerator)
            present.add((vendor, address))
            record = self._devices.get((vendor, address))
            if record is None:
                record = self._new(vendor, address)
            elif is_another(record, accelerator):
                record = replace(self._new(vendor, address), begins_s=known.seen_s)
            is_clear = accelerator.address not in unclear
            self._put(self._as_seen(record, accelerator, is_clear=is_clear))
        for key, record in list(self._devices.items()):
            if record.vendor != vendor or key in present:
                continue
            if record.address in given_away:
                self._put(replace(record, was_usable=False, evidence=_without_loss(record)))
            elif record.was_usable:
                self._put(self._lost(record, _GONE_AWAY))
        self._vendors[vendor] = replace(known, seen_s=self._now.boot_s)

    def _as_seen(self, record: DeviceRecord, accelerator: Accelerator, *, is_clear: bool) -> DeviceRecord:
        """Return RECORD with ACCELERATOR; where it IS_CLEAR which partitions there are, others are gone."""
        partitions = tuple(
            KnownPartition(instance=part.instance, address=part.address) for part in accelerator.partitions
        )
        if not is_clear:
            there = {one.instance for one in partitions}
            partitions += tuple(one for one in record.partitions if one.instance not in there)
        gone = {one.instance for one in record.partitions} - {one.instance for one in partitions}
        kept = {one.instance for one in partitions}
        record = replace(
            record,
            uuid=accelerator.uuid if accelerator.uuid is not None else record.uuid,
            device_id=accelerator.device_id or record.device_id,
            model=accelerator.model,
            partitions=partitions,
            evidence=tuple(one for one in record.evidence if not _went(one.instance, gone, kept)),
            was_usable=record.was_usable or accelerator.usable,
        )
        if accelerator.usable:
            return replace(record, evidence=_without_loss(record))
        return self._lost(record, accelerator.problem) if record.was_usable else record

    def _lost(self, record: DeviceRecord, why: str) -> DeviceRecord:
        return self._with_evidence(record, self._evidence(LOST, "files", "", why, self._now.boot_s))

    # Looks and probes.

    def look(self, vendor: str, look: Look, began_s: float) -> None:
        began_s = min(began_s, self._now.boot_s)
        symptoms = (*look.symptoms, *self._measured(vendor, look))
        for address in look.covered:
            record = self._devices.get((vendor, address))
            if record is not None:
                self._put(replace(record, is_reached=True))
        for symptom in symptoms:
            self._tell(vendor, symptom, look.source)
        self._clear_gone(vendor, look, symptoms, began_s)
        for recovery in look.recoveries:
            self._recover(vendor, recovery, began_s)

    def _clear_gone(self, vendor: str, look: Look, symptoms: Iterable[Symptom], began_s: float) -> None:
        """Clear what LOOK would have seen, had it lasted."""
        seen = set()
        for symptom in symptoms:
            record, instance = self._place(vendor, symptom)
            if record is not None:
                seen.add((record.address, symptom.cause, instance))
        for address in dict.fromkeys(look.covered):
            record = self._devices.get((vendor, address))
            if record is None:
                continue
            kept = tuple(
                one
                for one in record.evidence
                if one.source != look.source
                or one.cause == LOST
                or (look.only and one.cause not in look.only)
                or (address, one.cause, one.instance) in seen
                or "gone" not in clearing.rule_of(self._policy, vendor, one).cleared_by
                or one.last_s >= began_s
            )
            if kept != record.evidence:
                self._put(replace(record, evidence=kept))

    def _measured(self, vendor: str, look: Look) -> tuple[Symptom, ...]:
        """Take in the measurements of LOOK; returns the symptoms of those that hold as long as it is so."""
        symptoms: list[Symptom] = []
        for one in look.measurements:
            record = self._devices.get((vendor, one.address))
            if record is None:
                continue
            before = next((base for base in record.baselines if base.what == one.what), None)
            if before is not None and one.worse == "higher" and one.value > before.value:
                record = self._risen(record, one, before)
            if before is not None and one.worse == "lower" and one.value < before.value:
                detail = f"{one.value} {one.what}, {before.value} earlier in this boot"
                symptoms.append(Symptom(cause=one.cause, address=one.address, detail=detail))
                continue
            others = tuple(base for base in record.baselines if base.what != one.what)
            if len(others) < MAX_BASELINES:
                baseline = Baseline(what=one.what, value=one.value, at_s=self._now.boot_s)
                record = replace(record, baselines=(*others, baseline))
            self._put(record)
        return tuple(symptoms)

    def _risen(self, record: DeviceRecord, one: Measurement, before: Baseline) -> DeviceRecord:
        """Return RECORD with the evidence that ONE is, unless the log has told of it since BEFORE was read.

        The log knows when it was, and so whether before or after a reset.
        """
        if any(said.cause == one.cause and said.at_s >= before.at_s for said in record.said):
            return record
        detail = f"{one.value - before.value} more {one.what}"
        evidence = self._evidence(one.cause, "counter", "", detail, self._now.boot_s)
        return self._with_evidence(record, replace(evidence, first_s=before.at_s))

    def _said(self, record: DeviceRecord, cause: str, at_s: float) -> DeviceRecord:
        """Return RECORD after the log told of CAUSE at AT_S: what a counter told of it was that."""
        evidence = tuple(
            one
            for one in record.evidence
            if one.source != "counter" or one.cause != cause or not one.first_s <= at_s <= one.last_s
        )
        before = next((said.at_s for said in record.said if said.cause == cause), at_s)
        others = tuple(said for said in record.said if said.cause != cause)[-MAX_SAID + 1 :]
        said = (*others, Said(cause=cause, at_s=max(before, at_s)))
        return replace(record, evidence=evidence, said=said)

    # The log, and the driver.

    def hear(self, heard: Heard) -> None:
        known = self._vendor(heard.vendor)
        if heard.sequence > known.sequence:
            self._vendors[heard.vendor] = replace(known, sequence=heard.sequence)
        for one in heard.told:
            if isinstance(one, Symptom):
                self._tell(heard.vendor, one, "log")
            else:
                self._recover(heard.vendor, one, self._now.boot_s)

    def load(self, vendor: str, load: str) -> None:
        known = self._vendor(vendor)
        if load and known.load is not None and load != known.load:
            # When exactly is not known, so what happened since the other one was last seen stays.
            recovery = Recovery(clearance="reload", address="", detail="", at_s=known.loaded_s)
            self._recover(vendor, recovery, known.loaded_s, is_inclusive=True)
            known = self._vendor(vendor)
        self._vendors[vendor] = replace(known, load=load, loaded_s=self._now.boot_s)

    # What both have.

    def _tell(self, vendor: str, symptom: Symptom, source: str) -> None:
        """Take in SYMPTOM, unless it happened to an earlier device, or is cleared already."""
        record, instance = self._place(vendor, symptom)
        now_s = self._now.boot_s
        at_s = now_s if symptom.at_s is None else min(symptom.at_s, now_s)
        if record is None or at_s < record.begins_s:
            return
        if source == "log":
            record = self._said(record, symptom.cause, at_s)
            self._put(record)
        evidence = self._evidence(symptom.cause, source, instance, symptom.detail, at_s)
        if not clearing.is_past(evidence, record, now_s, self._policy):
            self._put(self._with_evidence(record, evidence))

    def _recover(
        self, vendor: str, recovery: Recovery, default_s: float, *, is_inclusive: bool = False
    ) -> None:
        at_s = min(default_s if recovery.at_s is None else recovery.at_s, self._now.boot_s)
        if is_inclusive:
            at_s = clearing.just_after(at_s)
        found = Recovered(clearance=recovery.clearance, at_s=at_s)
        if not recovery.address:
            known = self._vendor(vendor)
            self._vendors[vendor] = replace(known, recovered=clearing.latest(known.recovered, found))
        for record in list(self._devices.values()):
            if record.vendor == vendor and recovery.address in {"", record.address}:
                self._put(self._recovered(record, found))

    def _recovered(self, record: DeviceRecord, found: Recovered) -> DeviceRecord:
        """Return RECORD with FOUND: what was seen before and after it began after it."""
        evidence = tuple(
            replace(one, first_s=one.last_s, since=self._time(one.last_s))
            if one.first_s < found.at_s < one.last_s
            and found.clearance not in {"recovered", "quiet"}
            and found.clearance in clearing.rule_of(self._policy, record.vendor, one).cleared_by
            else one
            for one in record.evidence
        )
        return replace(record, evidence=evidence, recovered=clearing.latest(record.recovered, found))

    def _place(self, vendor: str, symptom: Symptom) -> tuple[DeviceRecord | None, str]:
        """Return the device that SYMPTOM is about, and its partition; None if there is no room for it."""
        record = self._devices.get((vendor, symptom.address))
        if record is not None:
            return record, symptom.instance
        for other in self._devices.values():
            for part in other.partitions:
                if other.vendor == vendor and part.address and part.address == symptom.address:
                    return other, symptom.instance or part.instance
        address = symptom.address
        is_one = 0 < len(address) <= MAX_ADDRESS and address.isprintable()
        if not is_one or len(self._devices) >= MAX_DEVICES:
            return None, ""
        return self._new(vendor, address), symptom.instance

    def _with_evidence(self, record: DeviceRecord, new: Evidence) -> DeviceRecord:
        others = tuple(one for one in record.evidence if _key(one) != _key(new))
        before = next((one for one in record.evidence if _key(one) == _key(new)), None)
        if before is not None:
            new = _merged(before, new)
            if new == before:
                return record
        evidence = (*others, new)
        if len(evidence) > MAX_EVIDENCE:
            evidence = clearing.without_the_least(evidence, record.vendor, self._policy)
        return replace(record, evidence=evidence)

    def _evidence(self, cause: str, source: str, instance: str, detail: str, at_s: float) -> Evidence:
        return Evidence(
            cause=cause,
            source=source,
            instance=instance,
            since=self._time(at_s),
            first_s=at_s,
            last_s=at_s,
            detail=_line(detail),
        )

    def _time(self, at_s: float) -> str:
        return timestamp(max(0.0, self._now.wall_s - (self._now.boot_s - at_s)))

    def _new(self, vendor: str, address: str) -> DeviceRecord:
        recovered = self._vendor(vendor).recovered
        return DeviceRecord(
            vendor=vendor, address=address, uuid=None, device_id="", model="", recovered=recovered
        )

    def _vendor(self, name: str) -> VendorRecord:
        return self._vendors.get(name) or self._book.vendor(name)

    def _put(self, record: DeviceRecord) -> None:
        self._devices[record.vendor, record.address] = record


def _without_loss(record: DeviceRecord) -> tuple[Evidence, ...]:
    return tuple(one for one in record.evidence if one.cause != LOST)


def _key(evidence: Evidence) -> tuple[str, str, str]:
    return evidence.cause, evidence.source, evidence.instance


def _merged(before: Evidence, new: Evidence) -> Evidence:
    """Return what both are evidence of: since the first, until the last.

    Of lines in the log the first one is shown, so that a flood of them changes nothing that others read.
    """
    first, last = sorted((before, new), key=lambda one: (one.first_s, one.last_s))
    shown = first if new.source in {"log", "counter"} else (before if before.last_s > new.last_s else new)
    return replace(first, last_s=max(before.last_s, last.last_s, first.last_s), detail=shown.detail)


def _went(instance: str, gone: set[str], kept: set[str]) -> bool:
    """Return whether the partition INSTANCE, or all that it stands for, is among those GONE, none KEPT."""

    def has(names: set[str]) -> bool:
        return any(name == instance or name.startswith(f"{instance}/") for name in names)

    return bool(instance) and has(gone) and not has(kept)


def _line(text: str) -> str:
    """Return TEXT as one short line that a file of ours may hold."""
    plain = " ".join(text.split())
    plain = plain if plain.isprintable() else ascii(plain)[1:-1]
    return plain if len(plain) <= MAX_DETAIL else f"{plain[: MAX_DETAIL - 3]}..."
