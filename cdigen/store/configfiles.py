"""Change configuration files of other programs, whole or not at all, and put the originals back.

``apply`` keeps the original in ``<state directory>/configure/<runtime>/``, never beside the file: a copy
beside a drop-in may be loaded. ``record.json`` there says which files were changed:

    {"schema": 1, "files": [{"path": "/etc/docker/daemon.json", "before": "<sha256>", "after": ["<sha256>"],
                             "folders": []}]}

``before`` is the digest of the original, and the name of its copy; ``"none"`` if there was no file. ``after``
are the digests of what was written since: a file with any other content was changed by others. The record is
written before the file is changed, and removed after it is restored: whenever the process is killed, the
digests show whether the file had been changed yet.
"""

from __future__ import annotations

import os
import posixpath
import stat
from contextlib import ExitStack, contextmanager, suppress

from cdigen.host.root import reason, shown
from cdigen.host.trust import untrusted
from cdigen.model.errors import ConfigError, StoreError
from cdigen.store import tempfiles
from cdigen.store.configrecord import NONE, RecordedFile, read, write
from cdigen.store.directory import (
    STATE_DIRECTORY,
    Directory,
    open_existing,
    open_or_create,
    open_owned,
    require_owned,
)
from cdigen.store.failures import store_error
from cdigen.store.lock import exclusive
from cdigen.store.ownership import copy_ownership, status_of
from cdigen.store.snapshot import NO_FILE, take_snapshot
from cdigen.store.state import digest
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.host.root import Root
    from cdigen.model.change import Change

    # Returns why the content in this file (a path of the machine) must not be installed, or nothing.
    Check = Callable[[str], str]

FOLDER = "configure"
# No runtime's configuration file is longer; host.root has the same limit.
MAX_BYTES = 1 << 20
MODE = 0o644
_SECRET = 0o600  # daemon.json may hold a proxy's password, config.toml a registry's


@frozen
class ConfiguredFile:
    """A file that ``apply`` has changed: its content now and its original, None for no file.

    ``is_ours``: nobody has changed it since, so that the original can be restored. ``is_undone``: it has no
    changes of ours. ``is_known``: there is an original, kept at ``backup``, or there was no file.
    """

    path: str
    present: bytes | None
    original: bytes | None
    is_ours: bool
    is_undone: bool
    is_known: bool
    backup: str


def current(host: Root, path: str) -> bytes | None:
    """Return the content of the file PATH of HOST, None for no file. StoreError: it cannot be read."""
    try:
        return host.read(path, limit=MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise store_error("cannot read", path, error) from error


def apply(
    runtime: str, changes: tuple[Change, ...], *, host: Root, state_dir: str, check: Check | None = None
) -> None:
    """Make CHANGES to the configuration of RUNTIME, after saving the originals.

    CHECK checks each new content before anything is changed; ConfigError if it refuses one. StoreError: a
    file was changed meanwhile, others could change it or a folder on its path, or the system refuses.
    """
    with _home(state_dir, runtime) as home, ExitStack() as open_files:
        places = [open_files.enter_context(_place(host, change)) for change in changes]
        for place in places:
            place.verify(check)
        entries = {entry.path: entry for entry in read(home)}
        for place in places:
            entry = _recorded(entries.get(place.change.path), place)
            if place.change.before is not None and entry.before == digest(place.change.before):
                tempfiles.replace_file(home, entry.before, place.change.before, mode=_SECRET)
            entries[entry.path] = entry
        write(home, tuple(entries.values()))
        for place in places:
            place.put()
        _forget(home, frozenset(entry.before for entry in entries.values()))


def configured(runtime: str, *, host: Root, state_dir: str) -> tuple[ConfiguredFile, ...]:
    """Return the files of RUNTIME's configuration that ``apply`` has changed, as they are now.

    StoreError: the record or one of the files cannot be read.
    """
    with open_existing(_home_path(state_dir, runtime), what="the folder") as home:
        if home is None:
            return ()
        require_owned(home, what="the folder")
        return tuple(_configured(home, host, entry) for entry in read(home))


def revert(runtime: str, changes: tuple[Change, ...], *, host: Root, state_dir: str) -> None:
    """Make CHANGES, which restore what was recorded for RUNTIME, and remove the record.

    Folders that were made for the files go with them. StoreError as ``apply``.
    """
    with _home(state_dir, runtime) as home, ExitStack() as open_files:
        entries = read(home)
        places = [open_files.enter_context(_place(host, change)) for change in changes]
        for place in places:
            place.verify(None)
        for place in places:
            place.put()
        for entry in entries:
            _sweep(host, entry.path)
            _remove_empty(host, entry.folders)
        write(home, ())
        _forget(home, frozenset())


def _recorded(old: RecordedFile | None, place: _Place) -> RecordedFile:
    """Return the record to be written before a change is made."""
    change = place.change
    present, after = _digest(change.before), _digest(change.after)
    folders = (*(old.folders if old else ()), *place.folders)
    if old is None or present in {old.before, NONE}:
        # It has no changes of ours, or an earlier change was recorded but never made.
        return RecordedFile(path=change.path, before=present, after=(after,), folders=folders)
    # If others wrote meanwhile, the original must not be restored: the new content stays unknown.
    known = (*old.after, after) if present in old.after else old.after
    return replace(old, after=tuple(dict.fromkeys(known)), folders=folders)


def _configured(home: Directory, host: Root, entry: RecordedFile) -> ConfiguredFile:
    present = current(host, entry.path)
    original = take_snapshot(home, entry.before).content if entry.before != NONE else None
    if original is not None and digest(original) != entry.before:
        original = None
    now = _digest(present)
    is_known = entry.before == NONE or original is not None
    return ConfiguredFile(
        path=entry.path,
        present=present,
        original=original,
        is_ours=now in entry.after and is_known,
        is_undone=now in {entry.before, NONE},
        is_known=is_known,
        backup=home.file(entry.before) if original is not None else "",
    )


def _digest(content: bytes | None) -> str:
    return NONE if content is None else digest(content)


def _forget(home: Directory, wanted: frozenset[str]) -> None:
    """Remove the backups that are not WANTED."""
    for name in os.listdir(home.fd):
        if len(name) == 64 and name not in wanted:
            with suppress(OSError):
                os.unlink(name, dir_fd=home.fd)


def _home_path(state_dir: str, runtime: str) -> str:
    return posixpath.join(state_dir, FOLDER, runtime)


@contextmanager
def _home(state_dir: str, runtime: str) -> Iterator[Directory]:
    """Hold the folder of RUNTIME's backups, alone."""
    with (
        open_owned(state_dir, what=STATE_DIRECTORY),
        open_owned(posixpath.join(state_dir, FOLDER), what="the folder"),
        # Anyone who could put a backup there could change the runtime's configuration.
        open_owned(_home_path(state_dir, runtime), what="the folder") as home,
        exclusive(home),
    ):
        tempfiles.sweep(home)
        yield home


class _Place:
    """A file to be changed: its folder, and its new content under another name, waiting."""

    def __init__(
        self, change: Change, folder: Directory, name: str, waiting: tuple[Directory, tempfiles.Staged] | None
    ) -> None:
        self.change = change
        self.folders: tuple[str, ...] = ()
        self._folder = folder
        self._name = name
        self._waiting = waiting

    def verify(self, check: Check | None) -> None:
        """Raise StoreError if the file is not the one the change was computed from, or CHECK refuses it."""
        found = take_snapshot(self._folder, self._name, limit=MAX_BYTES)
        path = shown(self._folder.file(self._name))
        if found != NO_FILE and found.content is None:
            raise StoreError(f"{path} is {found.description}", hint="move it away")
        if found.content != self.change.before:
            raise StoreError(f"{path} was changed by another process meanwhile", hint="run the command again")
        if check is None or self._waiting is None:
            return
        at, staged = self._waiting
        if problem := check(at.file(staged.name)):
            hint = f"nothing was changed; check whether {path} was valid before"
            raise ConfigError(f"the new {path} is refused: {problem}", hint=hint, kind="broken-file")

    def put(self) -> None:
        """Give the file its new content, or remove it."""
        path = self._folder.file(self._name)
        try:
            if self._waiting is None:
                os.unlink(self._name, dir_fd=self._folder.fd)
            else:
                at, staged = self._waiting
                os.rename(staged.name, self._name, src_dir_fd=at.fd, dst_dir_fd=self._folder.fd)
        except OSError as error:
            raise store_error("cannot change", path, error) from error
        tempfiles.fsync_directory(self._folder)


@contextmanager
def _place(host: Root, change: Change) -> Iterator[_Place]:
    """Open the folder for CHANGE, with the new content on the disk; missing folders are made.

    A link is followed within the host, so that the file itself is changed.
    """
    real = _resolved(host, change.path)
    _refuse_untrusted(host, change.path)
    folder, name = posixpath.split(real)
    missing = _missing(host, folder)
    with ExitStack() as stack:
        # Unless the file is installed there, none of our files stay.
        stack.callback(_remove_empty, host, missing)
        at = stack.enter_context(open_or_create(host.outer_path(folder), what="the folder"))
        waiting = None
        if change.after is not None:
            room = stack.enter_context(_waiting_room(host, folder, at))
            tempfiles.sweep(room)
            status = status_of(at, name)
            mode = stat.S_IMODE(status.st_mode) if status else MODE
            staged = stack.enter_context(tempfiles.staged(room, name, change.after, mode=mode))
            if status:
                copy_ownership(staged.fd, at, name, status)
            waiting = (room, staged)
        place = _Place(change, at, name, waiting)
        place.folders = missing
        yield place


@contextmanager
def _waiting_room(host: Root, folder: str, at: Directory) -> Iterator[Directory]:
    """Return the folder for the temporary file: above a drop-in folder, where CRI-O loads every file."""
    if not folder.endswith(".d"):
        yield at
        return
    with open_or_create(host.outer_path(posixpath.dirname(folder)), what="the folder") as above:
        is_same = os.fstat(above.fd).st_dev == os.fstat(at.fd).st_dev
        yield above if is_same else at


def _sweep(host: Root, path: str) -> None:
    """Remove temporary files that a killed writer left for the file PATH."""
    with suppress(OSError):
        folder = posixpath.dirname(host.resolve_new(path))
        with open_existing(host.outer_path(folder), what="the folder") as at:
            if at is not None:
                with _waiting_room(host, folder, at) as room:
                    tempfiles.sweep(room)


def _refuse_untrusted(host: Root, path: str) -> None:
    """Raise StoreError if others than root could change or replace the file."""
    there = path
    while there != "/" and not host.exists(there):
        there = posixpath.dirname(there)
    if problem := untrusted(there, base=host.outer):
        raise StoreError(
            f"{shown(path)} is not changed: {problem}",
            hint="only root may be able to write what configures root's programs",
        )


def _resolved(host: Root, path: str) -> str:
    """Return where PATH leads within the host, or will lead once it exists."""
    try:
        real = host.resolve_new(path)
        if not host.exists(path) and posixpath.basename(path) in host.names(posixpath.dirname(path)):
            raise StoreError(f"{shown(path)} is a symlink to nothing", hint="fix it or remove it")
    except OSError as error:
        raise StoreError(f"{shown(path)}: {reason(error)}", hint="fix the link") from error
    return real


def _remove_empty(host: Root, folders: tuple[str, ...]) -> None:
    """Remove FOLDERS, the innermost first; those with files of others stay."""
    for folder in folders:
        with suppress(OSError):
            os.rmdir(host.outer_path(host.resolve_new(folder)))


def _missing(host: Root, folder: str) -> tuple[str, ...]:
    """Return the folders that have to be made for FOLDER, the innermost first."""
    missing = []
    while folder != "/" and not os.path.lexists(host.outer_path(folder)):
        missing.append(folder)
        folder = posixpath.dirname(folder)
    return tuple(missing)
