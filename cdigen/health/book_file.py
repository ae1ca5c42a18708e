"""Keep the book in the state directory (``read``, ``save``), for a daemon that is started again.

    {"schema": 1, "boot": "<the kernel's id of the boot>", "vendors": [...], "devices": [...]}

It is valid in the boot in which it was written.
"""

from __future__ import annotations

import json
import os

from cdigen.health.book import (
    Baseline,
    Book,
    DeviceRecord,
    Evidence,
    KnownPartition,
    Recovered,
    Said,
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


def read(state_dir: str, boot: str, now_s: float) -> tuple[Book, Finding | None]:
    """Return the book of this BOOT in STATE_DIR, else an empty one; and what is wrong with its file.

    No time in it is later than NOW_S, which is CLOCK_BOOTTIME's.
    """
    new = Book(boot=boot)
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
        book = _book(json.loads(present.content))
    except (ValueError, RecursionError) as error:
        return new, _damaged(f"{state_dir}/{FILE}", str(error)[:200])
    return (_not_after(book, now_s) if boot and book.boot == boot else new), None


def save(state_dir: str, book: Book) -> None:
    """Replace the book in STATE_DIR by BOOK, in one step. StoreError: it cannot be written."""
    content = json.dumps({"schema": SCHEMA, **as_json(book)}, indent=1).encode("ascii") + b"\n"
    with open_owned(state_dir, what=STATE_DIRECTORY) as directory:
        replace_file(directory, FILE, content)


def essence(book: Book) -> Book:
    """Return BOOK without what changes all the time, and is heard or seen again after a restart."""
    return replace(
        book,
        vendors=tuple(VendorRecord(vendor=one.vendor, load=one.load) for one in book.vendors),
        devices=tuple(
            replace(
                device,
                # What a probe says is not said again, and a cause may wait for it.
                recovered=device.recovered if device.evidence else (),
                said=(),
                baselines=tuple(replace(one, at_s=0.0) for one in device.baselines),
                evidence=tuple(replace(one, last_s=0.0) for one in device.evidence),
            )
            for device in book.devices
        ),
    )


def _whole(value: object, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < _MOST:
        raise InvalidValue(path, "a whole number")
    return value


_CLEARANCE = one_of("gone", "reset", "reload", "recovered", "quiet")
_RECOVERED = many(record(Recovered, clearance=_CLEARANCE, at_s=seconds))
_VENDORS = many(
    record(
        VendorRecord,
        vendor=text,
        load=optional(text),
        loaded_s=seconds,
        seen_s=seconds,
        sequence=_whole,
        recovered=_RECOVERED,
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
        begins_s=seconds,
        is_reached=flag,
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
        recovered=_RECOVERED,
        baselines=many(record(Baseline, what=text, value=_whole, at_s=seconds)),
        said=many(record(Said, cause=text, at_s=seconds)),
    )
)


def _book(document: Any) -> Book:
    top = members(document, "$", {"schema", "boot", "vendors", "devices"})
    if top["schema"] != SCHEMA or isinstance(top["schema"], bool):
        raise InvalidValue("$.schema", str(SCHEMA))
    return Book(
        boot=text(top["boot"], "$.boot"),
        vendors=_VENDORS(top["vendors"], "$.vendors"),
        devices=_DEVICES(top["devices"], "$.devices"),
    )


def _not_after(book: Book, now_s: float) -> Book:
    # A daemon in another time namespace counts from another zero (time_namespaces(7)).
    def recovered(found: tuple[Recovered, ...]) -> tuple[Recovered, ...]:
        return tuple(replace(one, at_s=min(one.at_s, now_s)) for one in found)

    return replace(
        book,
        vendors=tuple(
            replace(
                one,
                loaded_s=min(one.loaded_s, now_s),
                seen_s=min(one.seen_s, now_s),
                recovered=recovered(one.recovered),
            )
            for one in book.vendors
        ),
        devices=tuple(
            replace(
                device,
                begins_s=min(device.begins_s, now_s),
                baselines=tuple(replace(one, at_s=min(one.at_s, now_s)) for one in device.baselines),
                said=tuple(replace(one, at_s=min(one.at_s, now_s)) for one in device.said),
                recovered=recovered(device.recovered),
                evidence=tuple(
                    replace(one, first_s=min(one.first_s, now_s), last_s=min(one.last_s, now_s))
                    for one in device.evidence
                ),
            )
            for device in book.devices
        ),
    )


def _damaged(path: str, reason: str) -> Finding:
    return Finding(
        severity="warning",
        rule="health-damaged",
        path=path,
        message=f"{shown(path)} is damaged ({reason}); what was wrong with devices is looked for anew",
        hint="nothing has to be done: the kernel's log is read again from its beginning",
    )
