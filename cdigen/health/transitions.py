"""The transitions of the health state: ``apply_event``. Pure.

The order in which events arrive has no effect if their times differ, because the state keeps the last
recoveries. A recovery clears all earlier events and no later event, even if an event arrives late.
"""

from __future__ import annotations

from cdigen.health import clearing
from cdigen.health.state import (
    LOST,
    Baseline,
    DeviceRecord,
    DevicesDiscovered,
    DriverLoaded,
    Evidence,
    HealthChecked,
    KnownPartition,
    LastLogReport,
    LastRecovery,
    LogRecordsReceived,
    address_of,
    is_another,
)
from cdigen.model.health import Recovery, Symptom
from cdigen.model.saved import disputed
from cdigen.model.times.timestamps import timestamp
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.health.state import ClearingPolicy, ClockReading, Event, HealthState, VendorRecord
    from cdigen.model.health import HealthSample, Measurement
    from cdigen.model.inventory import Accelerator, Inventory

    _Devices = dict[tuple[str, str], DeviceRecord]

# The number of devices is limited, because a log may name addresses without a device. No machine has so many.
MAX_DEVICES = 1024
MAX_ADDRESS = 64
MAX_DETAIL = 200
# A device and its partitions together have fewer causes than this. Only invalid input reaches the limit.
MAX_EVIDENCE = 256
MAX_BASELINES = MAX_LOG_REPORTS = 64
_MISSING = "found earlier in this boot, missing now"


def apply_event(state: HealthState, event: Event, now: ClockReading, policy: ClearingPolicy) -> HealthState:
    """Return STATE after EVENT, which arrives at NOW."""
    update = _Update(state, now, policy)
    if isinstance(event, DevicesDiscovered):
        for vendor, inventory in event.inventories.items():
            update.apply_discovery(vendor, inventory, event.passed_through)
    elif isinstance(event, HealthChecked):
        update.apply_sample(event.vendor, event.sample, event.began_s)
    elif isinstance(event, LogRecordsReceived):
        update.apply_log(event)
    elif isinstance(event, DriverLoaded):
        update.apply_load(event.vendor, event.load)
    return update.result()


class _Update:
    """The change of the state by a single event."""

    def __init__(self, state: HealthState, now: ClockReading, policy: ClearingPolicy) -> None:
        self._state = state
        self._now = now
        self._policy = policy
        self._vendors = {one.vendor: one for one in state.vendors}
        self._devices: _Devices = {(one.vendor, one.address): one for one in state.devices}

    def result(self) -> HealthState:
        """Return the new state without the causes that are cleared now."""
        devices = tuple(
            clearing.without_cleared(device, self._now.boot_s, self._policy)
            for device in self._devices.values()
        )
        vendors = tuple(self._vendors.values())
        if (vendors, devices) == (self._state.vendors, self._state.devices):
            return self._state
        return replace(self._state, vendors=vendors, devices=devices)

    # Discovery.

    def apply_discovery(self, vendor: str, inventory: Inventory, passed_through: tuple[str, ...]) -> None:
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
                record = replace(self._new(vendor, address), valid_from_s=known.discovered_s)
            is_clear = accelerator.address not in unclear
            self._put(self._with_accelerator(record, accelerator, is_clear=is_clear))
        for key, record in list(self._devices.items()):
            if record.vendor != vendor or key in present:
                continue
            if record.address in passed_through:
                self._put(replace(record, was_usable=False, evidence=_without_loss(record)))
            elif record.was_usable:
                self._put(self._with_loss(record, _MISSING))
        self._vendors[vendor] = replace(known, discovered_s=self._now.boot_s)

    def _with_accelerator(
        self, record: DeviceRecord, accelerator: Accelerator, *, is_clear: bool
    ) -> DeviceRecord:
        """Return RECORD with ACCELERATOR. With IS_CLEAR, remove the partitions that ACCELERATOR lacks."""
        partitions = tuple(
            KnownPartition(instance=part.instance, address=part.address) for part in accelerator.partitions
        )
        if not is_clear:
            present = {one.instance for one in partitions}
            partitions += tuple(one for one in record.partitions if one.instance not in present)
        gone = {one.instance for one in record.partitions} - {one.instance for one in partitions}
        kept = {one.instance for one in partitions}
        record = replace(
            record,
            uuid=accelerator.uuid if accelerator.uuid is not None else record.uuid,
            device_id=accelerator.device_id or record.device_id,
            model=accelerator.model,
            partitions=partitions,
            evidence=tuple(one for one in record.evidence if not _is_removed(one.instance, gone, kept)),
            was_usable=record.was_usable or accelerator.usable,
        )
        if accelerator.usable:
            return replace(record, evidence=_without_loss(record))
        return self._with_loss(record, accelerator.problem) if record.was_usable else record

    def _with_loss(self, record: DeviceRecord, detail: str) -> DeviceRecord:
        return self._with_evidence(record, self._evidence(LOST, "files", "", detail, self._now.boot_s))

    # Checks and probes.

    def apply_sample(self, vendor: str, sample: HealthSample, began_s: float) -> None:
        began_s = min(began_s, self._now.boot_s)
        symptoms = (*sample.symptoms, *self._measured(vendor, sample))
        for address in sample.covered:
            record = self._devices.get((vendor, address))
            if record is not None:
                self._put(replace(record, was_checked=True))
        for symptom in symptoms:
            self._add_symptom(vendor, symptom, sample.source)
        self._clear_gone(vendor, sample, symptoms, began_s)
        for recovery in sample.recoveries:
            self._add_recovery(vendor, recovery, began_s)

    def _clear_gone(
        self, vendor: str, sample: HealthSample, symptoms: Iterable[Symptom], began_s: float
    ) -> None:
        """Clear the causes that SAMPLE can detect and does not contain."""
        found = set()
        for symptom in symptoms:
            record, instance = self._record_of(vendor, symptom)
            if record is not None:
                found.add((record.address, symptom.cause, instance))
        for address in dict.fromkeys(sample.covered):
            record = self._devices.get((vendor, address))
            if record is None:
                continue
            kept = tuple(
                one
                for one in record.evidence
                if one.source != sample.source
                or one.cause == LOST
                or (sample.only and one.cause not in sample.only)
                or (address, one.cause, one.instance) in found
                or "gone" not in clearing.rule_of(self._policy, vendor, one).cleared_by
                or one.last_s >= began_s
            )
            if kept != record.evidence:
                self._put(replace(record, evidence=kept))

    def _measured(self, vendor: str, sample: HealthSample) -> tuple[Symptom, ...]:
        """Apply the measurements of SAMPLE; return the symptoms of values that are below their baseline."""
        symptoms: list[Symptom] = []
        for one in sample.measurements:
            record = self._devices.get((vendor, one.address))
            if record is None:
                continue
            before = next((base for base in record.baselines if base.what == one.what), None)
            if before is not None and one.worse == "higher" and one.value > before.value:
                record = self._with_rise(record, one, before)
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

    def _with_rise(self, record: DeviceRecord, one: Measurement, before: Baseline) -> DeviceRecord:
        """Return RECORD with evidence for the rise of the counter ONE since the baseline BEFORE.

        If the log reported the event, RECORD is unchanged. The log's exact time shows if a reset was later.
        """
        if any(last.cause == one.cause and last.at_s >= before.at_s for last in record.log_reports):
            return record
        detail = f"{one.value - before.value} more {one.what}"
        evidence = self._evidence(one.cause, "counter", "", detail, self._now.boot_s)
        return self._with_evidence(record, replace(evidence, first_s=before.at_s))

    def _with_log_report(self, record: DeviceRecord, cause: str, at_s: float) -> DeviceRecord:
        """Return RECORD with a log report of CAUSE at AT_S, which replaces the evidence of the counter."""
        evidence = tuple(
            one
            for one in record.evidence
            if one.source != "counter" or one.cause != cause or not one.first_s <= at_s <= one.last_s
        )
        before = next((last.at_s for last in record.log_reports if last.cause == cause), at_s)
        others = tuple(last for last in record.log_reports if last.cause != cause)[-MAX_LOG_REPORTS + 1 :]
        log_reports = (*others, LastLogReport(cause=cause, at_s=max(before, at_s)))
        return replace(record, evidence=evidence, log_reports=log_reports)

    # The log, and the driver.

    def apply_log(self, received: LogRecordsReceived) -> None:
        known = self._vendor(received.vendor)
        if received.sequence > known.log_sequence:
            self._vendors[received.vendor] = replace(known, log_sequence=received.sequence)
        for one in received.reports:
            if isinstance(one, Symptom):
                self._add_symptom(received.vendor, one, "log")
            else:
                self._add_recovery(received.vendor, one, self._now.boot_s)

    def apply_load(self, vendor: str, load: str) -> None:
        known = self._vendor(vendor)
        if load and known.load is not None and load != known.load:
            # The exact time of the reload is unknown. Events after the last read of the old load stay.
            recovery = Recovery(clearance="reload", address="", detail="", at_s=known.load_read_s)
            self._add_recovery(vendor, recovery, known.load_read_s, is_inclusive=True)
            known = self._vendor(vendor)
        self._vendors[vendor] = replace(known, load=load, load_read_s=self._now.boot_s)

    # Symptoms and recoveries.

    def _add_symptom(self, vendor: str, symptom: Symptom, source: str) -> None:
        """Add SYMPTOM. Ignore SYMPTOM if it belongs to an earlier device or is already cleared."""
        record, instance = self._record_of(vendor, symptom)
        now_s = self._now.boot_s
        at_s = now_s if symptom.at_s is None else min(symptom.at_s, now_s)
        if record is None or at_s < record.valid_from_s:
            return
        if source == "log":
            record = self._with_log_report(record, symptom.cause, at_s)
            self._put(record)
        evidence = self._evidence(symptom.cause, source, instance, symptom.detail, at_s)
        if not clearing.is_cleared(evidence, record, now_s, self._policy):
            self._put(self._with_evidence(record, evidence))

    def _add_recovery(
        self, vendor: str, recovery: Recovery, default_s: float, *, is_inclusive: bool = False
    ) -> None:
        at_s = min(default_s if recovery.at_s is None else recovery.at_s, self._now.boot_s)
        if is_inclusive:
            at_s = clearing.just_after(at_s)
        found = LastRecovery(clearance=recovery.clearance, at_s=at_s)
        if not recovery.address:
            known = self._vendor(vendor)
            self._vendors[vendor] = replace(known, recoveries=clearing.latest(known.recoveries, found))
        for record in list(self._devices.values()):
            if record.vendor == vendor and recovery.address in {"", record.address}:
                self._put(self._with_recovery(record, found))

    def _with_recovery(self, record: DeviceRecord, found: LastRecovery) -> DeviceRecord:
        """Return RECORD with the recovery FOUND.

        If evidence has reports before and after FOUND, the result has only the last report.
        """
        evidence = tuple(
            replace(one, first_s=one.last_s, since=self._time(one.last_s))
            if one.first_s < found.at_s < one.last_s
            and found.clearance not in {"recovered", "clear_after"}
            and found.clearance in clearing.rule_of(self._policy, record.vendor, one).cleared_by
            else one
            for one in record.evidence
        )
        return replace(record, evidence=evidence, recoveries=clearing.latest(record.recoveries, found))

    def _record_of(self, vendor: str, symptom: Symptom) -> tuple[DeviceRecord | None, str]:
        """Return the device and the partition of SYMPTOM.

        The device is None if its address is invalid, or if the number of devices has reached the limit.
        """
        record = self._devices.get((vendor, symptom.address))
        if record is not None:
            return record, symptom.instance
        for other in self._devices.values():
            for part in other.partitions:
                if other.vendor == vendor and part.address and part.address == symptom.address:
                    return other, symptom.instance or part.instance
        address = symptom.address
        is_valid = 0 < len(address) <= MAX_ADDRESS and address.isprintable()
        if not is_valid or len(self._devices) >= MAX_DEVICES:
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
            evidence = clearing.without_least_severe(evidence, record.vendor, self._policy)
        return replace(record, evidence=evidence)

    def _evidence(self, cause: str, source: str, instance: str, detail: str, at_s: float) -> Evidence:
        return Evidence(
            cause=cause,
            source=source,
            instance=instance,
            since=self._time(at_s),
            first_s=at_s,
            last_s=at_s,
            detail=_one_line(detail),
        )

    def _time(self, at_s: float) -> str:
        return timestamp(max(0.0, self._now.wall_s - (self._now.boot_s - at_s)))

    def _new(self, vendor: str, address: str) -> DeviceRecord:
        recoveries = self._vendor(vendor).recoveries
        return DeviceRecord(
            vendor=vendor, address=address, uuid=None, device_id="", model="", recoveries=recoveries
        )

    def _vendor(self, name: str) -> VendorRecord:
        return self._vendors.get(name) or self._state.vendor(name)

    def _put(self, record: DeviceRecord) -> None:
        self._devices[record.vendor, record.address] = record


def _without_loss(record: DeviceRecord) -> tuple[Evidence, ...]:
    return tuple(one for one in record.evidence if one.cause != LOST)


def _key(evidence: Evidence) -> tuple[str, str, str]:
    return evidence.cause, evidence.source, evidence.instance


def _merged(before: Evidence, new: Evidence) -> Evidence:
    """Return one evidence for BEFORE and NEW, from the first report to the last report of both.

    For log lines, the detail is the detail of the first line, so a flood of lines does not change the output.
    """
    first, last = sorted((before, new), key=lambda one: (one.first_s, one.last_s))
    shown = first if new.source in {"log", "counter"} else (before if before.last_s > new.last_s else new)
    return replace(first, last_s=max(before.last_s, last.last_s, first.last_s), detail=shown.detail)


def _is_removed(instance: str, gone: set[str], kept: set[str]) -> bool:
    """Return whether the partition INSTANCE or a part of INSTANCE is in GONE, and none of them is in KEPT."""

    def has(names: set[str]) -> bool:
        return any(name == instance or name.startswith(f"{instance}/") for name in names)

    return bool(instance) and has(gone) and not has(kept)


def _one_line(text: str) -> str:
    """Return TEXT as a single short printable line for the state file."""
    plain = " ".join(text.split())
    plain = plain if plain.isprintable() else ascii(plain)[1:-1]
    return plain if len(plain) <= MAX_DETAIL else f"{plain[: MAX_DETAIL - 3]}..."
