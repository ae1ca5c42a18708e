"""The JSON documents that cdigen keeps for itself: a ``StateFile`` reads and writes one document.

    {"schema": 1, "<member>": ...}

A module that keeps a document lists only the members of the document, with readers of ``model.strict``. A
write replaces the file in one step. A file is damaged if it is not a regular file, is too large, or is not a
document with the schema and the members. ``service.status`` uses ``read_json`` and ``json_content`` for
documents of the run directory.
"""

from __future__ import annotations

import json
import os

from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.model.strict import InvalidValue, as_json, members
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned
from cdigen.store.failures import store_errors
from cdigen.store.snapshot import MAX_BYTES, NO_FILE, take_snapshot
from cdigen.store.tempfiles import MODE, fsync_directory, replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.model.strict import Reader
    from cdigen.store.directory import Directory

SCHEMA = 1
_MAX_REASON = 200


class DamagedFile(ValueError):
    """The error for a file that is not the expected document; the text is the reason, in one line."""


def read_json(directory: Directory, name: str, *, limit: int) -> dict[str, Any] | None:
    """Return the JSON object with the schema number SCHEMA in the file NAME, or None if there is no file.

    Raises DamagedFile if the file has other content or more than LIMIT bytes, and StoreError if the file
    cannot be read.
    """
    content = _content(directory, name, limit)
    return None if content is None else _parsed(content)


def json_content(document: Mapping[str, Any]) -> bytes:
    """Return the content of a file with DOCUMENT.

    File names can contain bytes that are not UTF-8 (surrogateescape). The ASCII escapes of JSON preserve
    these bytes.
    """
    return json.dumps(document, indent=1, ensure_ascii=True).encode("ascii") + b"\n"


class StateFile:
    """The document NAME with the members of READERS, besides ``schema``.

    The file has at most LIMIT bytes and the mode MODE. With IS_OWN, a file of a user other than root and the
    caller is damaged. With IS_CACHED, an unchanged file is not parsed again. ``aside`` are the names of
    damaged files that were moved aside.
    """

    def __init__(  # noqa: PLR0913 - the arguments are independent
        self,
        name: str,
        readers: Mapping[str, Reader],
        *,
        limit: int = MAX_BYTES,
        mode: int = MODE,
        is_own: bool = False,
        is_cached: bool = False,
    ) -> None:
        self.name = name
        self.aside = (f"{name}.damaged", *(f"{name}.damaged-{number}" for number in range(2, 100)))
        self._readers = readers
        self._limit = limit
        self._mode = mode
        self._is_own = is_own
        self._is_cached = is_cached
        self._last: tuple[bytes, dict[str, Any]] = (b"", {})

    def read(self, directory: Directory | None) -> dict[str, Any] | None:
        """Return the members of the document in DIRECTORY, or None if there is no file.

        Raises DamagedFile if the file is damaged, and StoreError if the file cannot be read.
        """
        if directory is None:
            return None
        content = _content(directory, self.name, self._limit, is_own=self._is_own)
        if content is None:
            return None
        last_content, values = self._last
        if self._is_cached and content == last_content:
            return values
        found = _parsed(content)
        try:
            members(found, "$", {"schema", *self._readers})
            values = {name: reader(found[name], f"$.{name}") for name, reader in self._readers.items()}
        except (InvalidValue, RecursionError) as error:
            raise DamagedFile(str(error)[:_MAX_REASON]) from None
        if self._is_cached:
            self._last = (content, values)
        return values

    def read_valid(self, state_dir: str) -> dict[str, Any]:
        """Return the members of the document in STATE_DIR; an empty mapping if there is no valid document."""
        try:
            with open_existing(state_dir, what=STATE_DIRECTORY) as directory:
                return self.read(directory) or {}
        except (StoreError, DamagedFile):
            return {}

    def write(self, directory: Directory, **values: object) -> None:
        """Replace the document in one step by VALUES; raise StoreError if the file cannot be written."""
        document = {"schema": SCHEMA, **{name: as_json(value) for name, value in values.items()}}
        replace_file(directory, self.name, json_content(document), mode=self._mode)

    def save(self, state_dir: str, **values: object) -> None:
        """Replace the document in STATE_DIR as ``write`` does."""
        with open_owned(state_dir, what=STATE_DIRECTORY) as directory:
            self.write(directory, **values)

    def move_aside(self, directory: Directory) -> str:
        """Rename the damaged file, and return its new name; raise StoreError if that fails."""
        name = next((name for name in self.aside if take_snapshot(directory, name) == NO_FILE), "")
        if not name:
            raise StoreError(
                f"{shown(directory.file(self.name))}: damaged, and no name is free to move it aside",
                hint=f"remove {shown(directory.file(self.aside[0]))}*",
            )
        with store_errors("cannot move aside", directory.file(self.name)):
            os.rename(self.name, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
        fsync_directory(directory)
        return name


def _content(directory: Directory, name: str, limit: int, *, is_own: bool = False) -> bytes | None:
    """Return the content of the regular file NAME, or None if there is no file."""
    present = take_snapshot(directory, name, limit=limit)
    if present == NO_FILE:
        return None
    if present.content is None:
        raise DamagedFile(f"it is {present.description}")
    if is_own and present.uid not in {0, os.geteuid()}:
        raise DamagedFile(f"it belongs to uid {present.uid}")
    return present.content


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"it is not JSON ({error})"[:_MAX_REASON]) from None
    number = found.get("schema") if isinstance(found, dict) else None
    if number != SCHEMA or isinstance(number, bool):
        raise DamagedFile(f"its schema is {ascii(number)[:40]}, not {SCHEMA}")
    document: dict[str, Any] = found
    return document
