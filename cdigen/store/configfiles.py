"""Change the configuration files of other programs, and restore the originals.

``apply`` checks all changes before it changes the first file. It saves the original in the folder ``<state
directory>/configure/<runtime>/``. It does not save the original beside the configuration file, because a
program can load all files in a drop-in folder. ``record.json`` in the folder of the originals lists the
changed files:

    {"schema": 1, "files": [{"path": "/etc/docker/daemon.json", "before": "<sha256>", "after": ["<sha256>"],
                             "folders": []}]}

``before`` is the digest of the original, and also the name of the saved original. ``before`` is ``"none"`` if
the file did not exist. ``after`` are the digests of all contents that cdigen wrote. If a file has another
digest, another program changed the file. cdigen writes the record before it changes the file. cdigen removes
the record after it restores the file. If the process is killed, the digests show whether cdigen changed the
file.
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
from cdigen.store.directory import (
    Directory,
    open_existing,
    open_or_create,
    open_owned,
    require_owned,
)
from cdigen.store.failures import store_errors
from cdigen.store.lock import exclusive
from cdigen.store.records.config_files import NONE, RecordedFile, read, write
from cdigen.store.records.owned_specs import digest
from cdigen.store.snapshot import NO_FILE, take_snapshot
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.host.root import Root
    from cdigen.model.change import Change

    # Returns the reason why cdigen must not install the content of a file, or "". The argument is a path of
    # this machine.
    Check = Callable[[str], str]

FOLDER = "configure"
# Maximum bytes of a configuration file. The files of runtimes are smaller. host.root has the same limit.
MAX_BYTES = 1 << 20
MODE = 0o644
_SECRET = 0o600  # daemon.json and config.toml may contain the password of a proxy or a registry


@frozen
class ConfiguredFile:
    """A file that ``apply`` changed, with its present content and its original (None if there is no file).

    ``is_ours`` is true if cdigen wrote the present content and can restore the original. ``is_undone`` is
    true if the file has its original content or does not exist. ``is_known`` is true if the original is in
    the file ``backup``, or if the file did not exist.
    """

    path: str
    present: bytes | None
    original: bytes | None
    is_ours: bool
    is_undone: bool
    is_known: bool
    backup: str


def current(host: Root, path: str) -> bytes | None:
    """Return the content of the file PATH of HOST, or None if there is no file.

    Raises StoreError if the file cannot be read.
    """
    with store_errors("cannot read", path), suppress(FileNotFoundError, NotADirectoryError):
        return host.read(path, limit=MAX_BYTES)
    return None


def require_readable(host: Root, path: str) -> None:
    """Raise StoreError if the file or folder PATH of HOST exists and cannot be read."""
    with store_errors("cannot read", path), suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISDIR(host.stat(path).st_mode):
            host.listdir(path)
    current(host, path)


def apply(
    runtime: str, changes: tuple[Change, ...], *, host: Root, state_dir: str, check: Check | None = None
) -> None:
    """Save the originals, and then make CHANGES to the configuration of RUNTIME.

    CHECK checks all new contents before the first file is changed. Raises ConfigError if CHECK rejects a new
    content. Raises StoreError if another process changed a file at the same time, or another user can change
    a file or a folder on its path, or a system call failed.
    """
    with _home(state_dir, runtime) as home, ExitStack() as open_files:
        pending_files = [open_files.enter_context(_pending_file(host, change)) for change in changes]
        for pending_file in pending_files:
            pending_file.verify(check)
        entries = {entry.path: entry for entry in read(home)}
        for pending_file in pending_files:
            entry = _recorded(entries.get(pending_file.change.path), pending_file)
            if pending_file.change.before is not None and entry.before == digest(pending_file.change.before):
                tempfiles.replace_file(home, entry.before, pending_file.change.before, mode=_SECRET)
            entries[entry.path] = entry
        write(home, tuple(entries.values()))
        for pending_file in pending_files:
            pending_file.put()
        _remove_backups(home, frozenset(entry.before for entry in entries.values()))


def configured(runtime: str, *, host: Root, state_dir: str) -> tuple[ConfiguredFile, ...]:
    """Return the present state of the files of RUNTIME's configuration that ``apply`` has changed.

    Raises StoreError if the record or one of the files cannot be read.
    """
    with open_existing(_home_path(state_dir, runtime), what="the folder") as home:
        if home is None:
            return ()
        require_owned(home, what="the folder")
        return tuple(_configured(home, host, entry) for entry in read(home))


def revert(runtime: str, changes: tuple[Change, ...], *, host: Root, state_dir: str) -> None:
    """Make CHANGES, which restore the recorded files of RUNTIME, and then remove the record.

    The function also removes the folders that cdigen made for the files, if the folders are empty. Raises the
    same errors as ``apply``.
    """
    with _home(state_dir, runtime) as home, ExitStack() as open_files:
        entries = read(home)
        pending_files = [open_files.enter_context(_pending_file(host, change)) for change in changes]
        for pending_file in pending_files:
            pending_file.verify(None)
        for pending_file in pending_files:
            pending_file.put()
        for entry in entries:
            _sweep(host, entry.path)
            _remove_empty(host, entry.folders)
        write(home, ())
        _remove_backups(home, frozenset())


def _recorded(old: RecordedFile | None, pending_file: _PendingFile) -> RecordedFile:
    """Return the entry to write to the record before the change of PENDING_FILE is made."""
    change = pending_file.change
    present, after = _digest(change.before), _digest(change.after)
    folders = (*(old.folders if old else ()), *pending_file.folders)
    if old is None or present in {old.before, NONE}:
        # The file has no changes of cdigen, or cdigen recorded an earlier change but did not make the change.
        return RecordedFile(path=change.path, before=present, after=(after,), folders=folders)
    # If another program changed the file, cdigen must not restore the original later. Therefore, the new
    # digest is not recorded.
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


def _remove_backups(home: Directory, keep: frozenset[str]) -> None:
    """Remove the backups whose names are not in KEEP."""
    for name in os.listdir(home.fd):
        if len(name) == 64 and name not in keep:
            with suppress(OSError):
                os.unlink(name, dir_fd=home.fd)


def _home_path(state_dir: str, runtime: str) -> str:
    return posixpath.join(state_dir, FOLDER, runtime)


@contextmanager
def _home(state_dir: str, runtime: str) -> Iterator[Directory]:
    """Yield the folder of RUNTIME's backups, and hold the lock of the folder."""
    with (
        open_owned(state_dir, what="the folder"),
        open_owned(posixpath.join(state_dir, FOLDER), what="the folder"),
        # A user who can write to the folder of the backups can change the runtime's configuration.
        open_owned(_home_path(state_dir, runtime), what="the folder") as home,
        exclusive(home),
    ):
        tempfiles.sweep(home)
        yield home


class _PendingFile:
    """A file to change: its folder, and its new content under a temporary name."""

    def __init__(
        self, change: Change, folder: Directory, name: str, staged: tuple[Directory, tempfiles.Staged] | None
    ) -> None:
        self.change = change
        self.folders: tuple[str, ...] = ()
        self._folder = folder
        self._name = name
        self._staged = staged

    def verify(self, check: Check | None) -> None:
        """Raise StoreError if the file was changed meanwhile; ConfigError if CHECK rejects the new file."""
        found = take_snapshot(self._folder, self._name, limit=MAX_BYTES)
        path = shown(self._folder.file(self._name))
        if found != NO_FILE and found.content is None:
            raise StoreError(f"{path} is {found.description}", hint="move it away")
        if found.content != self.change.before:
            raise StoreError(f"{path} was changed by another process meanwhile", hint="run the command again")
        if check is None or self._staged is None:
            return
        at, staged = self._staged
        if problem := check(at.file(staged.name)):
            hint = f"no file was changed; check whether the present {path} is valid"
            raise ConfigError(f"the new {path} is invalid: {problem}", hint=hint, kind="broken-file")

    def put(self) -> None:
        """Install the new content of the file, or remove the file."""
        path = self._folder.file(self._name)
        with store_errors("cannot change", path):
            if self._staged is None:
                os.unlink(self._name, dir_fd=self._folder.fd)
            else:
                at, staged = self._staged
                os.rename(staged.name, self._name, src_dir_fd=at.fd, dst_dir_fd=self._folder.fd)
        tempfiles.fsync_directory(self._folder)


@contextmanager
def _pending_file(host: Root, change: Change) -> Iterator[_PendingFile]:
    """Yield the file of CHANGE with its open folder and the new content in a temporary file.

    The function makes missing folders. It follows a link within the host, and the change is made to the
    target.
    """
    real = _resolved(host, change.path)
    _refuse_untrusted(host, change.path)
    folder, name = posixpath.split(real)
    missing = _missing(host, folder)
    with ExitStack() as stack:
        # If the new file is not installed, the new folders are empty and are removed.
        stack.callback(_remove_empty, host, missing)
        at = stack.enter_context(open_or_create(host.outer_path(folder), what="the folder"))
        staged_file = None
        if change.after is not None:
            temporary = stack.enter_context(_temporary_folder(host, folder, at))
            tempfiles.sweep(temporary)
            status = tempfiles.status_of(at, name)
            mode = stat.S_IMODE(status.st_mode) if status else MODE
            staged = stack.enter_context(tempfiles.staged(temporary, name, change.after, mode=mode))
            if status:
                tempfiles.copy_ownership(staged.fd, at, name, status)
            staged_file = (temporary, staged)
        pending_file = _PendingFile(change, at, name, staged_file)
        pending_file.folders = missing
        yield pending_file


@contextmanager
def _temporary_folder(host: Root, folder: str, at: Directory) -> Iterator[Directory]:
    """Yield the folder for the temporary file.

    The temporary file of a file in a drop-in folder is in the parent of the drop-in folder if both folders
    are on one file system. CRI-O loads all files in a drop-in folder.
    """
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
                with _temporary_folder(host, folder, at) as temporary:
                    tempfiles.sweep(temporary)


def _refuse_untrusted(host: Root, path: str) -> None:
    """Raise StoreError if users other than root can change or replace the file."""
    existing = path
    while existing != "/" and not host.exists(existing):
        existing = posixpath.dirname(existing)
    if problem := untrusted(existing, base=host.outer):
        raise StoreError(
            f"{shown(path)} is not changed: {problem}",
            hint="only root may have write access to the configuration of root's programs",
        )


def _resolved(host: Root, path: str) -> str:
    """Return PATH of the host without links. The file can be missing. A dangling link is a StoreError."""
    try:
        real = host.resolve_new(path)
        if not host.exists(path) and posixpath.basename(path) in host.names(posixpath.dirname(path)):
            raise StoreError(f"{shown(path)} is a dangling symlink", hint="fix the link or remove it")
    except OSError as error:
        raise StoreError(f"{shown(path)}: {reason(error)}", hint="fix the link") from error
    return real


def _remove_empty(host: Root, folders: tuple[str, ...]) -> None:
    """Remove the empty folders in FOLDERS.

    The order of FOLDERS is from the innermost folder to the outermost.
    """
    for folder in folders:
        with suppress(OSError):
            os.rmdir(host.outer_path(host.resolve_new(folder)))


def _missing(host: Root, folder: str) -> tuple[str, ...]:
    """Return the missing folders on the path of FOLDER, the innermost folder first."""
    missing = []
    while folder != "/" and not os.path.lexists(host.outer_path(folder)):
        missing.append(folder)
        folder = posixpath.dirname(folder)
    return tuple(missing)
