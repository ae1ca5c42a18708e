"""The file of marks and clears (``cdigen health --mark``, ``--clear``) in the state directory.

    {"schema": 1, "marks": [{"vendor": "nvidia", "address": "0000:65:00.0", ...}], "clears": [...]}

A mark stays after reboots. ``--clear`` removes the mark. The daemon also removes a mark if a different device
is at the same address. A clear of a device's events (``ManualClear``) applies only in the boot in which the
command ran.
"""

from __future__ import annotations

import time

from cdigen.health.state import ManualClear, address_of, is_another
from cdigen.host.root import shown
from cdigen.model.findings import Finding
from cdigen.model.strict import many, typed_record
from cdigen.model.times.timestamps import timestamp
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned
from cdigen.store.lock import exclusive
from cdigen.store.records.state_file import DamagedFile, StateFile
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.store.directory import Directory

FILE = "health-marks.json"
# The limit for a reason in characters. Tables and each line about the device contain the reason.
MAX_REASON = 200


@frozen
class Mark:
    """A mark on a device or on its partition ``instance``. ``since`` is in ISO 8601."""

    vendor: str
    address: str
    uuid: str | None
    device_id: str
    instance: str
    reason: str
    since: str

    def is_on(self, vendor: str, accelerator: Accelerator) -> bool:
        """Return whether the mark is on ACCELERATOR of VENDOR, or on one of its partitions."""
        if vendor != self.vendor:
            return False
        if self.uuid is not None and accelerator.uuid is not None:
            return self.uuid == accelerator.uuid
        return address_of(accelerator) == self.address and not is_another(self, accelerator)


@frozen
class Marks:
    """The marks and the clears, both in the order of the commands."""

    marks: tuple[Mark, ...] = ()
    clears: tuple[ManualClear, ...] = ()


_READERS = {"marks": many(typed_record(Mark)), "clears": many(typed_record(ManualClear))}
_DOCUMENT = StateFile(FILE, _READERS, limit=1 << 20, is_own=True)
# The names of damaged files of marks.
DAMAGED_FILES = _DOCUMENT.aside


def read(state_dir: str) -> tuple[Marks, Finding | None]:
    """Return the marks and clears in STATE_DIR. If the file is damaged, return no marks and a finding.

    Raises StoreError if the file cannot be read.
    """
    with open_existing(state_dir, what=STATE_DIRECTORY) as directory:
        found, reason = _read(directory)
    return found, _damaged(state_dir, reason) if reason else None


def read_marks(state_dir: str) -> tuple[tuple[Mark, ...], Finding | None]:
    """Return only the marks in STATE_DIR, and the finding of ``read``."""
    found, finding = read(state_dir)
    return found.marks, finding


def mark(state_dir: str, vendor: str, accelerator: Accelerator, reason: str, *, instance: str = "") -> Mark:
    """Mark ACCELERATOR of VENDOR, or its partition INSTANCE, as unhealthy for REASON.

    The mark replaces an earlier mark on the same device. Raises ValueError if REASON is not a short line of
    text, and StoreError if the mark cannot be written.
    """
    if not reason.strip() or len(reason) > MAX_REASON:
        raise ValueError(f"has {len(reason)} characters, must be one line of 1 to {MAX_REASON}")
    if not reason.isprintable():
        raise ValueError(f"has an unprintable character or a line break: '{shown(reason)[:80]}'")
    made = Mark(
        vendor=vendor,
        address=address_of(accelerator),
        uuid=accelerator.uuid,
        device_id=accelerator.device_id,
        instance=instance,
        reason=reason,
        since=timestamp(time.time()),
    )

    def with_made(before: Marks) -> Marks:
        others = (
            one for one in before.marks if one.instance != instance or not one.is_on(vendor, accelerator)
        )
        return replace(before, marks=(*others, made))

    _update(state_dir, with_made)
    return made


def clear(state_dir: str, is_meant: Callable[[Mark], bool]) -> tuple[Mark, ...]:
    """Remove and return the marks for which IS_MEANT is true; raise StoreError if the write fails."""
    removed: list[Mark] = []

    def without(before: Marks) -> Marks:
        removed.extend(one for one in before.marks if is_meant(one))
        return replace(before, marks=tuple(one for one in before.marks if not is_meant(one)))

    if any(is_meant(one) for one in read_marks(state_dir)[0]):
        _update(state_dir, without)
    return tuple(removed)


def clear_events(state_dir: str, made: ManualClear) -> None:
    """Add the clear MADE, and remove clears of earlier boots; raise StoreError if the write fails."""

    def with_made(before: Marks) -> Marks:
        others = (
            one
            for one in before.clears
            if one.boot == made.boot
            and (one.vendor, one.address, one.instance) != (made.vendor, made.address, made.instance)
        )
        return replace(before, clears=(*others, made))

    _update(state_dir, with_made)


def outlived(marks: tuple[Mark, ...], inventories: Mapping[str, Inventory]) -> tuple[Mark, ...]:
    """Return the MARKS on devices that were replaced by different devices in INVENTORIES. Pure."""
    return tuple(
        one
        for one in marks
        if one.vendor in inventories and _is_replaced(one, inventories[one.vendor].accelerators)
    )


def _is_replaced(one: Mark, accelerators: tuple[Accelerator, ...]) -> bool:
    if any(one.is_on(one.vendor, accelerator) for accelerator in accelerators):
        return False
    return any(
        address_of(accelerator) == one.address and is_another(one, accelerator)
        for accelerator in accelerators
    )


def _update(state_dir: str, change: Callable[[Marks], Marks]) -> None:
    with open_owned(state_dir, what=STATE_DIRECTORY) as directory, exclusive(directory):
        before, reason = _read(directory)
        if reason:
            _DOCUMENT.move_aside(directory)
        changed = change(before)
        _DOCUMENT.write(directory, marks=changed.marks, clears=changed.clears)


def _read(directory: Directory | None) -> tuple[Marks, str]:
    """Return (marks, "") from the file, or (empty marks, reason) if the file is invalid."""
    try:
        return Marks(**(_DOCUMENT.read(directory) or {})), ""
    except DamagedFile as error:
        return Marks(), str(error)


def _damaged(state_dir: str, reason: str) -> Finding:
    path = f"{state_dir}/{FILE}"
    return Finding(
        severity="warning",
        rule="health-marks-damaged",
        path=path,
        message=f"{shown(path)}: damaged, its marks are ignored ({reason})",
        hint="mark the devices again with 'cdigen health --mark', which renames the damaged file",
    )
