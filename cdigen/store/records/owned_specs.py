"""Read and write the state file: the spec files that cdigen wrote, by path and by digest of their content.

cdigen owns a file only if the state file has an entry for the path of the file, and the entry contains the
digest of the file's content. Before a write, cdigen adds the new digest to the entry. After the write, cdigen
removes the old digest. Therefore, cdigen recognises the file on the disk even if a writer was killed.

    {"schema": 1,
     "home": "/var/lib/cdigen",
     "specs": {"/run/cdi/nvidia.com-gpu.json": {"kind": "nvidia.com/gpu",
                                                "driver": "550.163.01",
                                                "sha256": ["<64 hex digits>"]}}}

``home`` is the path of the state directory in the mount namespace of the writer. In a pod, the host's files
are below /host. For the service of the host, the files are below /. If the reader finds the state directory
at another path than ``home``, it replaces the path of the host's root in the paths of the specs.
"""

from __future__ import annotations

import posixpath

from cdigen.host.root import shown
from cdigen.model.findings import Finding
from cdigen.model.strict import InvalidValue, mapping, string
from cdigen.store.directory import STATE_DIRECTORY, open_existing
from cdigen.store.records.state_file import DamagedFile, StateFile
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.store.directory import Directory

STATE_FILE = "state.json"


@frozen
class OwnedSpec:
    """A spec file that cdigen owns if the digest of its content is one of ``digests``.

    ``driver`` is the driver version of the spec, or "" if the spec has no driver version.
    """

    path: str
    kind: str
    digests: tuple[str, ...]
    driver: str = ""

    @property
    def name(self) -> str:
        """The file's name in its directory."""
        return posixpath.basename(self.path)


@frozen
class State:
    """All spec files that cdigen wrote, sorted by path."""

    specs: tuple[OwnedSpec, ...] = ()

    def of(self, path: str) -> OwnedSpec | None:
        """Return the record of PATH, or None if the state has no record of PATH."""
        return next((owned for owned in self.specs if owned.path == path), None)

    def owns(self, path: str, content: bytes | None) -> bool:
        """Return whether cdigen wrote a regular file at PATH with this CONTENT."""
        owned = self.of(path)
        return owned is not None and content is not None and digest(content) in owned.digests

    def within(self, folder: str) -> tuple[OwnedSpec, ...]:
        """Return the records of the files in FOLDER, without the files in its subfolders."""
        return tuple(owned for owned in self.specs if posixpath.dirname(owned.path) == folder)

    def recording(self, owned: OwnedSpec) -> State:
        """Return the state with OWNED instead of the old record of the same path."""
        others = self.forgetting(owned.path).specs
        return State(specs=tuple(sorted((*others, owned), key=lambda one: one.path)))

    def forgetting(self, path: str) -> State:
        """Return the state without the record of PATH."""
        return State(specs=tuple(owned for owned in self.specs if owned.path != path))


def digest(content: bytes) -> str:
    """Return the SHA-256 of CONTENT in hex."""
    # Imported here: hashlib loads OpenSSL (5 ms), and most commands compute no digest.
    import hashlib  # noqa: PLC0415

    return hashlib.sha256(content, usedforsecurity=False).hexdigest()


def read(state_dir: str) -> tuple[State, tuple[Finding, ...]]:
    """Return the state and change nothing. Without a state file, the state is empty.

    If the file is damaged, the state is also empty, and the result has a finding. Raises StoreError if the
    file cannot be read.
    """
    with open_existing(state_dir, what=STATE_DIRECTORY) as directory:
        return (State(), ()) if directory is None else read_only(directory)


def read_only(directory: Directory) -> tuple[State, tuple[Finding, ...]]:
    """Return the same as ``read`` for a state directory that is already open."""
    return _read(directory, lambda: "the next write moves it aside")


def read_for_update(directory: Directory) -> tuple[State, tuple[Finding, ...]]:
    """Return the state and move a damaged state file aside. The caller holds the lock.

    A damaged file is not JSON, has another schema, or is not a regular file. Then the state is empty. Raises
    StoreError if the file cannot be read or moved.
    """
    return _read(directory, lambda: f"moved aside as {_DOCUMENT.move_aside(directory)}")


def write(directory: Directory, state: State) -> None:
    """Replace the state file in one step.

    The caller holds the lock. Raises StoreError if the file cannot be written.
    """
    specs = {
        owned.path: {"kind": owned.kind, "driver": owned.driver, "sha256": list(owned.digests)}
        for owned in state.specs
    }
    _DOCUMENT.write(directory, home=directory.real, specs=specs)


def _read(directory: Directory, treat: Callable[[], str]) -> tuple[State, tuple[Finding, ...]]:
    # TREAT returns the text about the treatment of a damaged file.
    try:
        found = _DOCUMENT.read(directory)
    except DamagedFile as error:
        return State(), (_damaged(directory, str(error), treat()),)
    return _state(found, directory.real) if found else State(), ()


def _state(found: Mapping[str, Any], home: str) -> State:
    writer, reader = _roots(found["home"], home)
    owned = (OwnedSpec(path=_moved(path, writer, reader), **entry) for path, entry in found["specs"].items())
    return State(specs=tuple(sorted(owned, key=lambda one: one.path)))


def _roots(writer_home: str, reader_home: str) -> tuple[str, str]:
    """Return the paths of the host's root for the writer and the reader, from their state directories."""
    writer, reader = writer_home.split("/"), reader_home.split("/")
    while len(writer) > 1 and len(reader) > 1 and writer[-1] == reader[-1]:
        writer.pop()
        reader.pop()
    return "/".join(writer), "/".join(reader)


def _moved(path: str, writer: str, reader: str) -> str:
    return f"{reader}{path.removeprefix(writer)}" if path.startswith(f"{writer}/") else path


def _entry(value: object, path: str) -> dict[str, Any]:
    match value:
        case {"kind": str(kind), "driver": str(driver), "sha256": [*digests]}:
            return {"kind": kind, "driver": driver, "digests": tuple(map(str, digests))}
    raise InvalidValue(path, "the entry of a spec file")


_DOCUMENT = StateFile(STATE_FILE, {"home": string, "specs": mapping(_entry)})
# The names of damaged state files.
DAMAGED_FILES = _DOCUMENT.aside


def _damaged(directory: Directory, reason: str, done: str) -> Finding:
    path = directory.file(STATE_FILE)
    return Finding(
        severity="warning",
        rule="state-damaged",
        path=path,
        message=f"{shown(path)} is damaged ({reason}), so all present spec files are foreign; {done}",
        hint="to replace the present spec files: 'cdigen generate --write --replace-foreign'",
    )
