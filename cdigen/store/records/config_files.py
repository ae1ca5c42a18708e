"""The record of the configuration files that cdigen changed (see store.configfiles)."""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.model.strict import many, string, typed_record
from cdigen.store import tempfiles
from cdigen.store.records.state_file import DamagedFile, StateFile
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.store.directory import Directory

FILE = "record.json"
NONE = "none"


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


_ENTRY = typed_record(RecordedFile, path=string, folders=many(string))
_DOCUMENT = StateFile(FILE, {"files": many(_ENTRY)}, mode=0o600)


def read(home: Directory) -> tuple[RecordedFile, ...]:
    """Return the entries of the record in HOME.

    Without a record, the result is empty. Raises StoreError if the record is damaged.
    """
    try:
        found = _DOCUMENT.read(home)
    except DamagedFile as error:
        raise StoreError(
            f"{shown(home.file(FILE))} is damaged ({error}): the changed files are unknown",
            hint=f"examine the backups in {shown(home.path)}, then move that folder away",
        ) from None
    return found["files"] if found else ()


def write(home: Directory, entries: tuple[RecordedFile, ...]) -> None:
    """Replace the record in one step, or remove the record if ENTRIES is empty.

    Raises StoreError if a system call failed.
    """
    if entries:
        _DOCUMENT.write(home, files=entries)
    else:
        tempfiles.remove_file(home, FILE)
