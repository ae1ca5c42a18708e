"""The record of the configuration files that cdigen changed (see store.configfiles)."""

from __future__ import annotations

import json
import os

from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.model.strict import as_json
from cdigen.store import tempfiles
from cdigen.store.failures import store_error
from cdigen.store.snapshot import NO_FILE, take_snapshot
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.store.directory import Directory

FILE = "record.json"
SCHEMA = 1
NONE = "none"
_MODE = 0o600


@frozen
class RecordedFile:
    """A configuration file that cdigen changed.

    ``before`` is the digest of the original. ``after`` are the digests of all contents that cdigen wrote.
    ``folders`` are the folders that cdigen made for the file, the innermost folder first.
    """

    path: str
    before: str
    after: tuple[str, ...]
    folders: tuple[str, ...] = ()


def read(home: Directory) -> tuple[RecordedFile, ...]:
    """Return the entries of the record in HOME.

    Without a record, the result is empty. Raises StoreError if the record is damaged.
    """
    found = take_snapshot(home, FILE)
    if found == NO_FILE:
        return ()
    path = shown(home.file(FILE))
    try:
        match json.loads(found.content or b""):
            case {"schema": number, "files": [*entries]} if number == SCHEMA:
                return tuple(map(_entry, entries))
        raise ValueError(f"it is not a document of schema {SCHEMA}")
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"{path} is damaged ({error}): the changed files are unknown",
            hint=f"examine the backups in {shown(home.path)}, then move that folder away",
        ) from None


def write(home: Directory, entries: tuple[RecordedFile, ...]) -> None:
    """Replace the record in one step, or remove the record if ENTRIES is empty.

    Raises StoreError if a system call failed.
    """
    if not entries:
        try:
            os.unlink(FILE, dir_fd=home.fd)
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error("cannot remove", home.file(FILE), error) from error
        tempfiles.fsync_directory(home)
        return
    document = {"schema": SCHEMA, "files": [as_json(entry) for entry in entries]}
    content = json.dumps(document, indent=1).encode("ascii") + b"\n"
    tempfiles.replace_file(home, FILE, content, mode=_MODE)


def _entry(row: Any) -> RecordedFile:
    match row:
        case {"path": str(path), "before": str(before), "after": [*after], "folders": [*folders]}:
            if all(isinstance(text, str) for text in (*after, *folders)):
                return RecordedFile(path=path, before=before, after=tuple(after), folders=tuple(folders))
    raise ValueError(f"an entry is invalid: {row!a:.60}")
