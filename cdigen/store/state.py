"""Read and write the state file: which spec files are ours, by path and by digest of their content.

A file is ours only while its content has a digest that is recorded for its path. Before a write the new
digest is added to that of the present content, afterwards the old one is removed: whenever a writer is
killed, the file on the disk is recognised.

    {"schema": 1,
     "home": "/var/lib/cdigen",
     "specs": {"/run/cdi/nvidia.com-gpu.json": {"kind": "nvidia.com/gpu",
                                                "driver": "550.163.01",
                                                "sha256": ["<64 hex digits>"]}}}

``home`` is where the writer saw the state directory. Who sees the host elsewhere (a pod below /host, the
host's own service) finds the directory and the specs moved alike, and reads the paths as its own.
"""

from __future__ import annotations

import json
import os
import posixpath

from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.model.findings import Finding
from cdigen.store.directory import STATE_DIRECTORY, open_existing
from cdigen.store.failures import store_error
from cdigen.store.snapshot import NO_FILE, take_snapshot
from cdigen.store.tempfiles import fsync_directory, replace_file
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cdigen.store.directory import Directory

STATE_FILE = "state.json"
DAMAGED_FILE = "state.json.damaged"
SCHEMA = 1
_USUAL_HOME = "/var/lib/cdigen"


@frozen
class OwnedSpec:
    """A spec file that is ours as long as one of these is the digest of its content.

    ``driver`` is the version that it was made for, if known.
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
    """All spec files that we wrote, sorted by path."""

    specs: tuple[OwnedSpec, ...] = ()

    def of(self, path: str) -> OwnedSpec | None:
        """Return the record of PATH, if there is one."""
        return next((owned for owned in self.specs if owned.path == path), None)

    def owns(self, path: str, content: bytes | None) -> bool:
        """Return whether a regular file at PATH with this CONTENT is ours."""
        owned = self.of(path)
        return owned is not None and content is not None and digest(content) in owned.digests

    def within(self, folder: str) -> tuple[OwnedSpec, ...]:
        """Return the records of files in FOLDER itself, not in folders below."""
        return tuple(owned for owned in self.specs if posixpath.dirname(owned.path) == folder)

    def recording(self, owned: OwnedSpec) -> State:
        """Return the state with OWNED replacing the record of its path."""
        others = self.forgetting(owned.path).specs
        return State(specs=tuple(sorted((*others, owned), key=lambda one: one.path)))

    def forgetting(self, path: str) -> State:
        """Return the state without PATH."""
        return State(specs=tuple(owned for owned in self.specs if owned.path != path))


def digest(content: bytes) -> str:
    """Return the SHA-256 of CONTENT in hex."""
    # Imported here: hashlib loads OpenSSL (5 ms), which a first look at a directory does not need.
    import hashlib  # noqa: PLC0415

    return hashlib.sha256(content, usedforsecurity=False).hexdigest()


def read(state_dir: str) -> tuple[State, tuple[Finding, ...]]:
    """Return the state without changing anything; without a state file nothing is ours.

    A damaged file counts as none, with a finding. StoreError: it cannot be read.
    """
    with open_existing(state_dir, what=STATE_DIRECTORY) as directory:
        return (State(), ()) if directory is None else read_only(directory)


def read_only(directory: Directory) -> tuple[State, tuple[Finding, ...]]:
    """Do as ``read`` does in a state directory that is already open."""
    state, reason = _read(directory)
    if not reason:
        return state, ()
    return state, (_damaged(directory, reason, "the next write moves it aside"),)


def read_for_update(directory: Directory) -> tuple[State, tuple[Finding, ...]]:
    """Return the state and move a damaged state file aside; the caller holds the lock.

    Damage (not JSON, another schema, not a regular file) means only that nothing is ours any more; it is no
    error. StoreError: the file cannot be read or moved.
    """
    state, reason = _read(directory)
    if not reason:
        return state, ()
    aside = _free_name(directory)
    try:
        os.rename(STATE_FILE, aside, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    except OSError as error:
        raise store_error("cannot move aside", directory.file(STATE_FILE), error) from error
    fsync_directory(directory)
    return state, (_damaged(directory, reason, f"moved aside as {aside}"),)


def write(directory: Directory, state: State) -> None:
    """Replace the state file in one step; the caller holds the lock. StoreError: it cannot be written."""
    document = {
        "schema": SCHEMA,
        "home": directory.real,
        "specs": {
            owned.path: {"kind": owned.kind, "driver": owned.driver, "sha256": list(owned.digests)}
            for owned in state.specs
        },
    }
    # ASCII escapes carry file names that are not UTF-8 (surrogateescape) through JSON unharmed.
    content = json.dumps(document, indent=1, ensure_ascii=True).encode("ascii") + b"\n"
    replace_file(directory, STATE_FILE, content)


def _read(directory: Directory) -> tuple[State, str]:
    # The reason is empty for a good file and for no file.
    present = take_snapshot(directory, STATE_FILE)
    if present == NO_FILE:
        return State(), ""
    if present.content is None:
        return State(), f"it is {present.description}"
    try:
        return _state(json.loads(present.content), directory.real), ""
    except (ValueError, RecursionError) as error:
        return State(), str(error)


def _state(document: Any, home: str) -> State:
    # ValueError: the document is not what `write` writes.
    match document:
        case {"schema": number, "specs": dict(specs)} if number == SCHEMA:
            there, here = _roots(str(document.get("home") or _unsaid_home(specs, home)), home)
            moved = ((_moved(path, there, here), entry) for path, entry in specs.items())
            owned = (_owned(path, entry) for path, entry in moved)
            return State(specs=tuple(sorted(owned, key=lambda one: one.path)))
    raise ValueError(f"it is not a document of schema {SCHEMA}")


def _unsaid_home(paths: Iterable[str], here: str) -> str:
    """Return where the writer of an earlier state file, which has no home, saw the directory that is HERE."""
    root = here.removesuffix(_USUAL_HOME)
    # Only a service of the host wrote what is not below the root that we see.
    return here if root == here or any(path.startswith(f"{root}/") for path in paths) else _USUAL_HOME


def _roots(there: str, here: str) -> tuple[str, str]:
    """Return the host's root of who saw the state directory at THERE, and of who sees it HERE."""
    theirs, ours = there.split("/"), here.split("/")
    while len(theirs) > 1 and len(ours) > 1 and theirs[-1] == ours[-1]:
        theirs.pop()
        ours.pop()
    return "/".join(theirs), "/".join(ours)


def _moved(path: str, there: str, here: str) -> str:
    return f"{here}{path.removeprefix(there)}" if path.startswith(f"{there}/") else path


def _owned(path: str, entry: Any) -> OwnedSpec:
    match entry:
        case {"kind": str(kind), "sha256": [*digests]}:
            # Earlier state files have no driver.
            driver = str(entry.get("driver", ""))
            return OwnedSpec(path=path, kind=kind, digests=tuple(map(str, digests)), driver=driver)
    raise ValueError(f"the entry of {path!a} is malformed")


def _free_name(directory: Directory) -> str:
    for number in range(1, 100):
        name = DAMAGED_FILE if number == 1 else f"{DAMAGED_FILE}-{number}"
        if take_snapshot(directory, name) == NO_FILE:
            return name
    raise StoreError(
        f"{shown(directory.file(STATE_FILE))}: damaged, and no name is free to move it aside",
        hint=f"remove {shown(directory.file(DAMAGED_FILE))} and its like",
    )


def _damaged(directory: Directory, reason: str, done: str) -> Finding:
    path = directory.file(STATE_FILE)
    return Finding(
        severity="warning",
        rule="state-damaged",
        path=path,
        message=f"{shown(path)} is damaged ({reason}), so no spec file counts as ours; {done}",
        hint="spec files written before now change only by 'cdigen generate --write --replace-foreign'",
    )
