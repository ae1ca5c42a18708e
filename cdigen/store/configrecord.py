"""The record of the changed configuration files: ``read`` and ``write`` it (see store.configfiles)."""

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
_MIXED = "mixed"
_MODE = 0o600
_HEX = frozenset("0123456789abcdef")


@frozen
class RecordedFile:
    """A file that was changed: the digest of its original, and those of all that was written since.

    ``folders`` were made for the file, the innermost first.
    """

    path: str
    before: str
    after: tuple[str, ...]
    folders: tuple[str, ...] = ()


def read(home: Directory) -> tuple[RecordedFile, ...]:
    """Return the entries of the record in HOME, none without one. StoreError: it is damaged."""
    found = take_snapshot(home, FILE)
    if found == NO_FILE:
        return ()
    path = shown(home.file(FILE))
    try:
        document = json.loads(found.content) if found.content is not None else None
        return tuple(_entry(entry) for entry in _entries(document))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreError(
            f"{path} is damaged ({error}), so it is not known what was changed",
            hint=f"see what is in {shown(home.path)}, then move it away",
        ) from None


def write(home: Directory, entries: tuple[RecordedFile, ...]) -> None:
    """Replace the record in one step, remove it where there are no ENTRIES. StoreError: that was refused."""
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


def _entries(document: Any) -> list[Any]:
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"it is not a document of schema {SCHEMA}")
    entries: list[Any] = document["files"]
    return entries


def _entry(row: Any) -> RecordedFile:
    # The first release recorded keys as well, and "mixed" for an original that it did not have.
    path, before = row["path"], row["before"]
    if not isinstance(path, str) or not path.startswith("/"):
        raise ValueError(f"{path!a} is not a path")
    return RecordedFile(
        path=path,
        before=before if before == _MIXED else _digest(before),
        after=tuple(map(_digest, row["after"])),
        folders=tuple(map(_text, row["folders"])),
    )


def _digest(value: Any) -> str:
    text = _text(value)
    if text != NONE and (len(text) != 64 or not _HEX.issuperset(text)):
        raise ValueError(f"{text!a} is not a digest")
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!a} is not a text")
    return value
