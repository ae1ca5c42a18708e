"""The file of the health state in the state directory, for a restart of the daemon: ``HealthStateWriter``.

    {"schema": 1, "boot": "<the kernel's id of the boot>", "vendors": [...], "devices": [...]}

The file is valid only in the boot in which it was written. A disk may be slow or full. A thread that saves
the state does not hold the tracker's lock. So other threads can process and show events at the same time.
"""

from __future__ import annotations

import threading

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
from cdigen.model.strict import many, one_of, text, typed_record, whole
from cdigen.store.directory import STATE_DIRECTORY, open_existing
from cdigen.store.records.state_file import DamagedFile, StateFile
from cdigen.value import fields, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FILE = "health.json"
# Seconds between saves if ``essence`` does not change, and seconds before a failed save is retried.
SAVE_AGAIN_S, RETRY_S = 300.0, 5.0


class HealthStateWriter:
    """Reads and writes the state file; CLOCK returns CLOCK_BOOTTIME."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._saved: HealthState | None = None
        self._tried_s = 0.0
        self._read_error: Finding | None = None
        self._save_error: Finding | None = None

    def read(self, state_dir: str, boot: str) -> HealthState:
        """Return the state of BOOT in STATE_DIR, or an empty state."""
        self._saved, self._read_error = read(state_dir, boot, self._clock())
        return self._saved

    def findings(self) -> tuple[Finding, ...]:
        """Return the errors of the file."""
        return tuple(one for one in (self._read_error, self._save_error) if one is not None)

    def save(
        self, state_dir: str, newest: Callable[[], HealthState | None], *, at_once: bool = False
    ) -> None:
        """Write the NEWEST state if it has changed and ``_wait_s`` has elapsed; with AT_ONCE, do not wait."""
        with self._lock:
            # The state is read under the lock, so no thread replaces a newer state with an older state.
            state = newest()
            if state is None or self._saved is None or state == self._saved:
                return
            if at_once or self._clock() - self._tried_s >= self._wait_s(state, self._saved):
                self._write(state_dir, state)

    def _wait_s(self, state: HealthState, saved: HealthState) -> float:
        """Return the minimum seconds between the last attempt and a save of STATE."""
        if essence(state) == essence(saved):
            return SAVE_AGAIN_S
        return RETRY_S if self._save_error is not None else 0.0

    def _write(self, state_dir: str, state: HealthState) -> None:
        self._tried_s = self._clock()
        try:
            save(state_dir, state)
        except StoreError as error:
            self._save_error = finding_of(error, f"{state_dir}/{FILE}")
        else:
            self._saved, self._read_error, self._save_error = state, None, None


def read(state_dir: str, boot: str, now_s: float) -> tuple[HealthState, Finding | None]:
    """Return the state of BOOT in STATE_DIR, or an empty state; return a finding if the file is damaged.

    Times later than NOW_S (CLOCK_BOOTTIME) become NOW_S.
    """
    new = HealthState(boot=boot)
    try:
        with open_existing(state_dir, what=STATE_DIRECTORY) as directory:
            found = _DOCUMENT.read(directory)
    except StoreError as error:
        return new, finding_of(error, f"{state_dir}/{FILE}")
    except DamagedFile as error:
        return new, _damaged(f"{state_dir}/{FILE}", str(error))
    if not found or not boot or found["boot"] != boot:
        return new, None
    state: HealthState = _not_after(HealthState(**found), now_s)
    return state, None


def save(state_dir: str, state: HealthState) -> None:
    """Replace the file in STATE_DIR atomically with STATE; raise StoreError if the write fails."""
    _DOCUMENT.save(state_dir, boot=state.boot, vendors=state.vendors, devices=state.devices)


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


_WHOLE = whole(-1, (1 << 63) - 1)
_RECOVERIES = many(
    typed_record(LastRecovery, clearance=one_of("gone", "reset", "reload", "recovered", "clear_after"))
)
_VENDOR = typed_record(VendorRecord, log_sequence=_WHOLE, recoveries=_RECOVERIES)
_DEVICE = typed_record(
    DeviceRecord,
    partitions=many(typed_record(KnownPartition)),
    evidence=many(typed_record(Evidence, source=one_of("files", "probe", "log", "counter"))),
    recoveries=_RECOVERIES,
    baselines=many(typed_record(Baseline, value=_WHOLE)),
    log_reports=many(typed_record(LastLogReport)),
)
_DOCUMENT = StateFile(
    FILE, {"boot": text, "vendors": many(_VENDOR), "devices": many(_DEVICE)}, limit=16 << 20, is_own=True
)


def _not_after(value: Any, now_s: float) -> Any:
    """Return VALUE with all its times (``*_s``) at most NOW_S.

    In another time namespace, the clock starts at another time (time_namespaces(7)).
    """
    if isinstance(value, tuple):
        return tuple(_not_after(item, now_s) for item in value)
    changes: dict[str, object] = {
        name: min(item, now_s) if name.endswith("_s") else _not_after(item, now_s)
        for name in fields(value)
        if (item := getattr(value, name)) is not None
    }
    return replace(value, **changes) if changes else value


def _damaged(path: str, reason: str) -> Finding:
    return Finding(
        severity="warning",
        rule="health-damaged",
        path=path,
        message=f"{shown(path)}: damaged, the health state is rebuilt ({reason})",
        hint="no action is needed: cdigen reads the kernel log again from its beginning",
    )
