"""Open a directory once, and use its descriptor to access its files.

``open_or_create``, ``open_existing`` and ``open_owned`` yield a ``Directory``. These functions reject a path
whose last component is a symlink, and a path with a link that is not trusted (``store.pathwalk``).
``open_owned`` also rejects a directory in which other users can replace cdigen's files.
"""

from __future__ import annotations

import os
import posixpath
import stat
from contextlib import ExitStack, contextmanager

from cdigen.host.root import shown
from cdigen.host.trust import has_access_list
from cdigen.model.errors import ConfigError, StoreError
from cdigen.store import pathwalk
from cdigen.store.failures import closing, store_error, store_errors
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

SPEC_DIRECTORY = "spec directory"
STATE_DIRECTORY = "state directory"
RUN_DIRECTORY = "run directory"
# Options and configuration keys set the paths of these directories.
_CHOSEN = (SPEC_DIRECTORY, STATE_DIRECTORY, RUN_DIRECTORY)

_LAST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@frozen
class Directory:
    """An open directory: the caller's path, the path without symlinks, and the descriptor."""

    path: str
    real: str
    fd: int

    def file(self, name: str) -> str:
        """Return the path of NAME in the directory, for messages."""
        return posixpath.join(self.path, name)

    def record(self, name: str) -> str:
        """Return the path of NAME without symlinks, for the state file."""
        return posixpath.join(self.real, name)


def clean_path(path: str, *, what: str = SPEC_DIRECTORY) -> str:
    """Return the absolute PATH without ``.``, ``..`` and double slashes. Links are not resolved.

    The CDI libraries clean the paths of spec directories in the same way (filepath.Clean in pkg/cdi,
    WithSpecDirs). Raises ConfigError if PATH is relative or contains a NUL.
    """
    if not path.startswith("/") or "\0" in path:
        raise ConfigError(f"{what} {path!a}: not an absolute path", hint="set an absolute path")
    return "/" + posixpath.normpath(path).lstrip("/")


def open_or_create(path: str, *, what: str = SPEC_DIRECTORY) -> AbstractContextManager[Directory]:
    """Return the context of the open directory PATH, and make missing folders with mode 0755.

    Raises StoreError if a component is not a directory, or cannot be made or opened, or the last component is
    a symlink.
    """
    return _opened(path, what=what, create=True)


@contextmanager
def open_existing(path: str, *, what: str = SPEC_DIRECTORY) -> Iterator[Directory | None]:
    """Yield the open directory PATH, or None if the directory does not exist.

    Raises the same errors as ``open_or_create``.
    """
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(_opened(path, what=what, create=False))
        except FileNotFoundError:
            yield None
            return
        yield directory


@contextmanager
def open_owned(path: str, *, what: str) -> Iterator[Directory]:
    """Yield the open directory PATH as ``open_or_create`` does.

    Raises StoreError if other users may write to the directory.
    """
    with open_or_create(path, what=what) as directory:
        require_owned(directory, what=what)
        yield directory


def require_owned(directory: Directory, *, what: str) -> None:
    """Raise StoreError if the owner or mode of DIRECTORY permits other users to write.

    Other users could replace the files of the directory. Then cdigen could block on a FIFO, lock the wrong
    file, use the wrong socket, or mount the wrong libraries.
    """
    if problem := writable_by_others(directory):
        hint = f"choose another directory, or 'chmod go-w {shown(directory.path)}'"
        if "belongs" in problem:
            hint = "choose a directory in a folder to which only root may write, such as /run"
        raise StoreError(f"{what} {shown(directory.path)} {problem}", hint=hint)


def writable_by_others(directory: Directory) -> str:
    """Return the reason why users other than root and the caller may write to DIRECTORY, or "".

    A user's own group is treated as a group without other members (useradd(8), USERGROUPS_ENAB).
    """
    status = os.fstat(directory.fd)
    if status.st_uid not in {0, os.geteuid()}:
        return f"belongs to uid {status.st_uid}"
    if status.st_mode & stat.S_IWOTH:
        return "is writable by everyone"
    groups = {0} if os.geteuid() == 0 else {0, os.getegid()}
    if status.st_mode & stat.S_IWGRP and (status.st_gid not in groups or has_access_list(directory.fd)):
        return "is writable by others (its group, or see getfacl)"
    return ""


@contextmanager
def reopen(directory: Directory, *, what: str = "the folder") -> Iterator[Directory]:
    """Yield DIRECTORY with a descriptor that can list and sync the directory.

    DIRECTORY has an O_PATH descriptor. Raises StoreError if a system call failed.
    """
    with store_errors(f"cannot open {what}", directory.path, is_chosen=what in _CHOSEN):
        fd = os.open(".", _LAST, dir_fd=directory.fd)
    with closing(fd):
        yield Directory(path=directory.path, real=directory.real, fd=fd)


@contextmanager
def _opened(path: str, *, what: str, create: bool) -> Iterator[Directory]:
    # FileNotFoundError is raised only if CREATE is false. All other errors of the system become a StoreError.
    path = clean_path(path, what=what)
    try:
        fd, real = pathwalk.to_folder(path, create=create)
    except pathwalk.Blocked as blocked:
        raise explain_blocked(blocked, path, what=what) from blocked
    with closing(fd), reopen(Directory(path=path, real=real, fd=fd), what=what) as directory:
        yield directory


def explain_blocked(blocked: pathwalk.Blocked, path: str, *, what: str) -> StoreError:
    """Return the error for the walk to PATH that ended with BLOCKED. WHAT describes PATH ("the folder")."""
    error, at = blocked.error, blocked.at
    subject = f"{what} {shown(path)}:" if at == path else f"{what} {shown(path)}: {shown(at)}"
    if blocked.target is not None:
        target = shown(blocked.target)
        if at != path:
            return StoreError(f"{subject} is a symlink to {target}, which leads to no directory")
        if what == SPEC_DIRECTORY:
            return StoreError(
                f"{subject} is a symlink (to {target}), and the CDI libraries in runtimes do not follow it",
                hint="use the path of the target, or replace the symlink with a directory",
            )
        return StoreError(f"{subject} is a symlink (to {target})", hint="use the path of the target")
    if isinstance(error, NotADirectoryError):
        return StoreError(f"{subject} is not a directory", hint="move it away, or choose another directory")
    doing = "cannot make" if blocked.is_new else "cannot open"
    subject = f"{doing} {what}" + ("" if at == path else f" {shown(path)}:")
    return store_error(subject, at, error, is_chosen=what in _CHOSEN)
