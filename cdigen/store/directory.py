"""Open a directory once, and reach everything in it by its descriptor, never again by its path.

``open_or_create``, ``open_existing`` and ``open_owned`` give a ``Directory``. They refuse a last component
that is a symlink, and a link on the path that another user may have planted (``store.pathwalk``);
``open_owned`` also refuses a directory in which others could replace our files.
"""

from __future__ import annotations

import os
import posixpath
import stat
from contextlib import ExitStack, contextmanager

from cdigen.host.root import shown
from cdigen.host.trust import ACCESS_LIST
from cdigen.model.errors import ConfigError, StoreError
from cdigen.store import pathwalk
from cdigen.store.failures import store_error
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC_DIRECTORY = "spec directory"
STATE_DIRECTORY = "state directory"

_LAST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@frozen
class Directory:
    """An open directory: its path as given, its path without symlinks, its descriptor."""

    path: str
    real: str
    fd: int

    def file(self, name: str) -> str:
        """Return the path of NAME in it, for messages."""
        return posixpath.join(self.path, name)

    def record(self, name: str) -> str:
        """Return the path of NAME in the state file, whichever link led here."""
        return posixpath.join(self.real, name)


def clean_path(path: str, *, what: str = SPEC_DIRECTORY) -> str:
    """Return absolute PATH without ``.``, ``..`` and doubled slashes, without reading links.

    The CDI libraries do the same to their directories (filepath.Clean in pkg/cdi, WithSpecDirs).
    ConfigError: PATH is relative or holds a NUL.
    """
    if not path.startswith("/") or "\0" in path:
        raise ConfigError(f"{what} {path!a}: not an absolute path", hint="give a path from / on")
    return "/" + posixpath.normpath(path).lstrip("/")


@contextmanager
def open_or_create(path: str, *, what: str = SPEC_DIRECTORY) -> Iterator[Directory]:
    """Open the directory PATH, making missing folders with mode 0755.

    StoreError: a component is not a directory, or cannot be made or opened; the last one is a symlink.
    """
    path = clean_path(path, what=what)
    with _opened(path, what=what, create=True) as directory:
        yield directory


@contextmanager
def open_existing(path: str, *, what: str = SPEC_DIRECTORY) -> Iterator[Directory | None]:
    """Open the directory PATH as ``open_or_create`` does, but give None where it does not exist."""
    path = clean_path(path, what=what)
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(_opened(path, what=what, create=False))
        except FileNotFoundError:
            yield None
            return
        yield directory


@contextmanager
def open_owned(path: str, *, what: str) -> Iterator[Directory]:
    """Open the directory PATH as ``open_or_create`` does; StoreError if others may write to it."""
    with open_or_create(path, what=what) as directory:
        require_owned(directory, what=what)
        yield directory


def require_owned(directory: Directory, *, what: str) -> None:
    """Raise StoreError if others may write to DIRECTORY: by its owner, or its mode.

    They could replace its files: we would wait for their FIFO, hold their lock, answer on their socket, mount
    their libraries.
    """
    if problem := writable_by_others(directory):
        hint = f"choose another directory, or 'chmod go-w {shown(directory.path)}'"
        if "belongs" in problem:
            hint = "choose a directory whose parent only root may write to, such as one in /run"
        raise StoreError(f"{what} {shown(directory.path)} {problem}", hint=hint)


def writable_by_others(directory: Directory) -> str:
    """Return who besides root and us may write to DIRECTORY ("is writable by everyone"), or "".

    A user's own group counts as having no other members (useradd(8), USERGROUPS_ENAB).
    """
    status = os.fstat(directory.fd)
    if status.st_uid not in {0, os.geteuid()}:
        return f"belongs to uid {status.st_uid}"
    if status.st_mode & stat.S_IWOTH:
        return "is writable by everyone"
    groups = {0} if os.geteuid() == 0 else {0, os.getegid()}
    if status.st_mode & stat.S_IWGRP and (status.st_gid not in groups or _has_access_list(directory)):
        return "is writable by others (its group, or see getfacl)"
    return ""


def _has_access_list(directory: Directory) -> bool:
    # The group's bits then limit every entry of the list (acl(5)).
    try:
        return bool(os.getxattr(directory.fd, ACCESS_LIST))
    except OSError:
        return False  # it has no access list, or the file system has none


@contextmanager
def reopen(directory: Directory, *, what: str = "the folder") -> Iterator[Directory]:
    """Open DIRECTORY, known by an O_PATH descriptor, for listing and syncing. StoreError: refused."""
    try:
        fd = os.open(".", _LAST, dir_fd=directory.fd)
    except OSError as error:
        raise store_error(f"cannot open {what}", directory.path, error) from error
    try:
        yield Directory(path=directory.path, real=directory.real, fd=fd)
    finally:
        os.close(fd)


@contextmanager
def _opened(path: str, *, what: str, create: bool) -> Iterator[Directory]:
    # FileNotFoundError is raised only if nothing is to be created; all else becomes a StoreError.
    try:
        way, real = pathwalk.to_folder(path, create=create)
    except pathwalk.Blocked as blocked:
        raise explain_blocked(blocked, path, what=what) from blocked
    try:
        at = Directory(path=path, real=real, fd=way)
        with reopen(at, what=what) as directory:
            yield directory
    finally:
        os.close(way)


def explain_blocked(blocked: pathwalk.Blocked, path: str, *, what: str) -> StoreError:
    """Return the error for the walk to PATH that BLOCKED ended; WHAT describes PATH ("the folder")."""
    error, at = blocked.error, blocked.at
    subject = f"{what} {shown(path)}:" if at == path else f"{what} {shown(path)}: {shown(at)}"
    if blocked.target is not None:
        target = shown(blocked.target)
        if at != path:
            return StoreError(f"{subject} is a symlink to {target}, which leads to no directory")
        if what == SPEC_DIRECTORY:
            return StoreError(
                f"{subject} is a symlink (to {target}), and the CDI libraries in runtimes do not follow it",
                hint="make it a directory, or name the directory that it points to",
            )
        return StoreError(f"{subject} is a symlink (to {target})", hint="name the directory it points to")
    if isinstance(error, NotADirectoryError):
        return StoreError(f"{subject} is not a directory", hint="move it away, or choose another directory")
    doing = "cannot make" if blocked.is_new else "cannot open"
    return store_error(f"{doing} {what}" + ("" if at == path else f" {shown(path)}:"), at, error)
