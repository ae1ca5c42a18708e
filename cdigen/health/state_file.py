"""The file of the health state in the state directory (``read``, ``save``), for a restart of the daemon.

    {"schema": 1, "boot": "<the kernel's id of the boot>", "vendors": [...], "devices": [...]}

The file is valid only in the boot in which it was written.
"""

from __future__ import annotations

import json
import os

from cdigen.health.state import (
    Baseline,
    DeviceRecord,
    Evidence,
    HealthState,
    KnownPartition,
    LastLogReport,
    LastRecovery,
    VendorRecord,
)
from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.model.findings import Finding, finding_of
from cdigen.model.strict import (
    InvalidValue,
    as_json,
    flag,
    many,
    members,
    one_of,
    optional,
    record,
    seconds,
    text,
)
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned
from cdigen.store.snapshot import NO_FILE, take_snapshot
from cdigen.store.tempfiles import replace_file
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE = "health.json"
SCHEMA = 1
MAX_BYTES = 16 << 20
_MOST = 1 << 63


def read(state_dir: str, boot: str, now_s: float) -> tuple[HealthState, Finding | None]:
    """Return the state of BOOT in STATE_DIR, or an empty state; return a finding if the file is damaged.

    Times later than NOW_S (CLOCK_BOOTTIME) become NOW_S.
    """
    new = HealthState(boot=boot)
    try:
        with open_existing(state_dir, what=STATE_DIRECTORY) as directory:
            present = NO_FILE if directory is None else take_snapshot(directory, FILE, limit=MAX_BYTES)
    except StoreError as error:
        return new, finding_of(error, f"{state_dir}/{FILE}")
    if present == NO_FILE:
        return new, None
    try:
        if present.content is None:
            raise ValueError(f"it is {present.description}")
        if present.uid not in {0, os.geteuid()}:
            raise ValueError(f"it belongs to uid {present.uid}")
        state = _state(json.loads(present.content))
    except (ValueError, RecursionError) as error:
        return new, _damaged(f"{state_dir}/{FILE}", str(error)[:200])
    return (_not_after(state, now_s) if boot and state.boot == boot else new), None


def save(state_dir: str, state: HealthState) -> None:
    """Replace the file in STATE_DIR atomically with STATE; raise StoreError if the write fails."""
    content = json.dumps({"schema": SCHEMA, **as_json(state)}, indent=1).encode("ascii") + b"\n"
    with open_owned(state_dir, what=STATE_DIRECTORY) as directory:
        replace_file(directory, FILE, content)


def essence(state: HealthState) -> HealthState:
    """Return STATE without values that change often and that a restarted daemon reads again."""
    return replace(
        state,
        vendors=tuple(VendorRecord(vendor=one.vendor, load=one.load) for one in state.vendors),
        devices=tuple(
            replace(
                device,
                # A probe reports a recovery once. A present cause may need the recovery.
                recoveries=device.recoveries if device.evidence else (),
                log_reports=(),
                baselines=tuple(replace(one, at_s=0.0) for one in device.baselines),
                evidence=tuple(replace(one, last_s=0.0) for one in device.evidence),
            )
            for device in state.devices
        ),
    )


def _whole(value: object, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < _MOST:
        raise InvalidValue(path, "a whole number")
    return value


_CLEARANCE = one_of("gone", "reset", "reload", "recovered", "clear_after")
_RECOVERIES = many(record(LastRecovery, clearance=_CLEARANCE, at_s=seconds))
_VENDORS = many(
    record(
        VendorRecord,
        vendor=text,
        load=optional(text),
        load_read_s=seconds,
        discovered_s=seconds,
        log_sequence=_whole,
        recoveries=_RECOVERIES,
    )
)
_DEVICES = many(
    record(
        DeviceRecord,
        vendor=text,
        address=text,
        uuid=optional(text),
        device_id=text,
        model=text,
        valid_from_s=seconds,
        was_checked=flag,
        was_usable=flag,
        partitions=many(record(KnownPartition, instance=text, address=text)),
        evidence=many(
            record(
                Evidence,
                cause=text,
                source=one_of("files", "probe", "log", "counter"),
                instance=text,
                since=text,
                first_s=seconds,
                last_s=seconds,
                detail=text,
            )
        ),
        recoveries=_RECOVERIES,
        baselines=many(record(Baseline, what=text, value=_whole, at_s=seconds)),
        log_reports=many(record(LastLogReport, cause=text, at_s=seconds)),
    )
)


def _state(document: Any) -> HealthState:
    top = members(document, "$", {"schema", "boot", "vendors", "devices"})
    if top["schema"] != SCHEMA or isinstance(top["schema"], bool):
        raise InvalidValue("$.schema", str(SCHEMA))
    return HealthState(
        boot=text(top["boot"], "$.boot"),
        vendors=_VENDORS(top["vendors"], "$.vendors"),
        devices=_DEVICES(top["devices"], "$.devices"),
    )


def _not_after(state: HealthState, now_s: float) -> HealthState:
    # In another time namespace, the clock starts at another time (time_namespaces(7)).
    def not_after(found: tuple[LastRecovery, ...]) -> tuple[LastRecovery, ...]:
        return tuple(replace(one, at_s=min(one.at_s, now_s)) for one in found)

    return replace(
        state,
        vendors=tuple(
            replace(
                one,
                load_read_s=min(one.load_read_s, now_s),
                discovered_s=min(one.discovered_s, now_s),
                recoveries=not_after(one.recoveries),
            )
            for one in state.vendors
        ),
        devices=tuple(
            replace(
                device,
                valid_from_s=min(device.valid_from_s, now_s),
                baselines=tuple(replace(one, at_s=min(one.at_s, now_s)) for one in device.baselines),
                log_reports=tuple(replace(one, at_s=min(one.at_s, now_s)) for one in device.log_reports),
                recoveries=not_after(device.recoveries),
                evidence=tuple(
                    replace(one, first_s=min(one.first_s, now_s), last_s=min(one.last_s, now_s))
                    for one in device.evidence
                ),
            )
            for device in state.devices
        ),
    )


def _damaged(path: str, reason: str) -> Finding:
    return Finding(
        severity="warning",
        rule="health-damaged",
        path=path,
        message=f"{shown(path)}: damaged, the health state is rebuilt ({reason})",
        hint="no action is needed: cdigen reads the kernel log again from its beginning",
    )
