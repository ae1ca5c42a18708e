"""What people say of devices' health (``cdigen health --mark``, ``--clear``), in the state directory.

    {"schema": 1, "marks": [{"vendor": "nvidia", "address": "0000:65:00.0", ...}], "clears": [...]}

A mark lasts over reboots until a person clears it, or until another device is in its device's place. That a
person has cleared what happened to a device (``Clear``) counts in the boot in which it was said.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

from cdigen.health.book import Clear
from cdigen.health.identity import address_of, is_another
from cdigen.host.root import shown
from cdigen.model.findings import Finding
from cdigen.model.strict import as_json, many, members, optional, record, seconds, text
from cdigen.model.timestamps import timestamp
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned
from cdigen.store.failures import store_error
from cdigen.store.lock import exclusive
from cdigen.store.snapshot import NO_FILE, take_snapshot
from cdigen.store.tempfiles import replace_file
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.store.directory import Directory

FILE = "health-marks.json"
DAMAGED = "health-marks.json.damaged"
SCHEMA = 1
MAX_BYTES = 1 << 20
# What a reason may be long; it stands in tables and in every line about the device.
MAX_REASON = 200


@frozen
class Mark:
    """A person's mark on a device, or on its partition ``instance``; ``since`` is in ISO 8601."""

    vendor: str
    address: str
    uuid: str | None
    device_id: str
    instance: str
    reason: str
    since: str

    def is_on(self, vendor: str, accelerator: Accelerator) -> bool:
        """Return whether ACCELERATOR of VENDOR is the device that it marks, or whose partition."""
        if vendor != self.vendor:
            return False
        if self.uuid is not None and accelerator.uuid is not None:
            return self.uuid == accelerator.uuid
        return address_of(accelerator) == self.address and not is_another(self, accelerator)


@frozen
class Words:
    """What people have said, each in the order in which it was said."""

    marks: tuple[Mark, ...] = ()
    clears: tuple[Clear, ...] = ()


_MARKS = many(
    record(
        Mark,
        vendor=text,
        address=text,
        uuid=optional(text),
        device_id=text,
        instance=text,
        reason=text,
        since=text,
    )
)
_CLEARS = many(
    record(
        Clear,
        vendor=text,
        address=text,
        uuid=optional(text),
        device_id=text,
        instance=text,
        boot=text,
        at_s=seconds,
    )
)


def read(state_dir: str) -> tuple[Words, Finding | None]:
    """Return what people have said in STATE_DIR, and what is wrong with its file: then it is nothing.

    StoreError: it cannot be read.
    """
    with open_existing(state_dir, what=STATE_DIRECTORY) as directory:
        if directory is None:
            return Words(), None
        words, reason = _read(directory)
    return words, _damaged(state_dir, reason) if reason else None


def read_marks(state_dir: str) -> tuple[tuple[Mark, ...], Finding | None]:
    """Return the marks alone; see ``read``."""
    words, finding = read(state_dir)
    return words.marks, finding


def mark(state_dir: str, vendor: str, accelerator: Accelerator, reason: str, *, instance: str = "") -> Mark:
    """Mark ACCELERATOR of VENDOR, or its partition INSTANCE, as not to be used, for REASON.

    An earlier mark on the same is replaced. ValueError: REASON is no short line of text. StoreError: the mark
    cannot be written.
    """
    if not reason.strip() or len(reason) > MAX_REASON:
        raise ValueError(f"has {len(reason)} characters, and has to be one line of 1 to {MAX_REASON}")
    if not reason.isprintable():
        raise ValueError(f"has a character that cannot be printed, or a line break: '{shown(reason)[:80]}'")
    made = Mark(
        vendor=vendor,
        address=address_of(accelerator),
        uuid=accelerator.uuid,
        device_id=accelerator.device_id,
        instance=instance,
        reason=reason,
        since=timestamp(time.time()),
    )

    def with_made(words: Words) -> Words:
        others = (
            one for one in words.marks if one.instance != instance or not one.is_on(vendor, accelerator)
        )
        return replace(words, marks=(*others, made))

    _update(state_dir, with_made)
    return made


def clear(state_dir: str, is_meant: Callable[[Mark], bool]) -> tuple[Mark, ...]:
    """Remove the marks that ARE meant, and return them. StoreError: they cannot be removed."""
    removed: list[Mark] = []

    def without(words: Words) -> Words:
        removed.extend(one for one in words.marks if is_meant(one))
        return replace(words, marks=tuple(one for one in words.marks if not is_meant(one)))

    if any(is_meant(one) for one in read_marks(state_dir)[0]):
        _update(state_dir, without)
    return tuple(removed)


def clear_events(state_dir: str, word: Clear) -> None:
    """Add WORD, and forget those of earlier boots. StoreError: it cannot be written."""

    def with_made(words: Words) -> Words:
        others = (
            one
            for one in words.clears
            if one.boot == word.boot
            and (one.vendor, one.address, one.instance) != (word.vendor, word.address, word.instance)
        )
        return replace(words, clears=(*others, word))

    _update(state_dir, with_made)


def outlived(marks: tuple[Mark, ...], inventories: Mapping[str, Inventory]) -> tuple[Mark, ...]:
    """Return which of MARKS are on devices in whose place INVENTORIES have another. Pure."""
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


def _update(state_dir: str, change: Callable[[Words], Words]) -> None:
    with open_owned(state_dir, what=STATE_DIRECTORY) as directory, exclusive(directory):
        words, reason = _read(directory)
        if reason:
            _move_aside(directory)
        document = {"schema": SCHEMA, **as_json(change(words))}
        replace_file(directory, FILE, json.dumps(document, indent=1).encode("ascii") + b"\n")


def _read(directory: Directory) -> tuple[Words, str]:
    """Return what the file says, and why it is nothing: "" for a good file, and for no file."""
    present = take_snapshot(directory, FILE, limit=MAX_BYTES)
    if present == NO_FILE:
        return Words(), ""
    if present.content is None:
        return Words(), f"it is {present.description}"
    if present.uid not in {0, os.geteuid()}:
        return Words(), f"it belongs to uid {present.uid}"
    try:
        top = members(json.loads(present.content), "$", {"schema", "marks", "clears"})
        if top["schema"] != SCHEMA:
            return Words(), f"its schema is {ascii(top['schema'])[:40]}, not {SCHEMA}"
        marks, clears = _MARKS(top["marks"], "$.marks"), _CLEARS(top["clears"], "$.clears")
        return Words(marks=marks, clears=clears), ""
    except (ValueError, RecursionError) as error:
        return Words(), str(error)[:200]


def _move_aside(directory: Directory) -> None:
    try:
        os.rename(FILE, DAMAGED, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    except IsADirectoryError as error:
        raise store_error("cannot move aside", directory.file(FILE), error) from error
    except OSError:
        # It will be replaced; what is damaged has no marks to lose.
        with suppress(OSError):
            os.unlink(FILE, dir_fd=directory.fd)


def _damaged(state_dir: str, reason: str) -> Finding:
    path = f"{state_dir}/{FILE}"
    return Finding(
        severity="warning",
        rule="health-marks-damaged",
        path=path,
        message=f"{shown(path)} is damaged ({reason}), so it marks no device",
        hint="mark the devices again with 'cdigen health --mark', which moves the file aside",
    )
