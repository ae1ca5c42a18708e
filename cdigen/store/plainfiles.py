"""Write files that the user names (``--output``, ``--bundle``), in one step, through trusted links only."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress

from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.store import pathwalk, tempfiles
from cdigen.store.directory import Directory, explain_blocked, reopen
from cdigen.store.failures import closing, store_error, store_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_OWNER_ONLY = 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SPECIAL = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC
_OTHERS_ADD = stat.S_IWOTH | stat.S_IWGRP


def save_file(path: str, content: bytes) -> None:
    """Write CONTENT to the file PATH, and make missing folders.

    The function follows a link, like ``>`` in a shell. It always applies the kernel's rules for sticky
    folders, even if the sysctls of these rules are not set. ``store.pathwalk`` describes the rule for links.
    For files and FIFOs, the rules of fs.protected_regular and fs.protected_fifos apply. An existing file
    keeps its owner and mode. The function replaces a regular file. It writes to any other file, such as
    ``/dev/stdout``. Raises StoreError if a system call failed, or a rule forbids the write.
    """
    with _found(path, create=True) as (folder, location):
        status = None if location.is_magic else tempfiles.status_of(folder, location.name)
        if status is not None:
            _refuse_others(path, status, os.fstat(folder.fd))
        if location.is_magic or (status is not None and not stat.S_ISREG(status.st_mode)):
            _write_through(path, location, status, content)
            return
        with reopen(folder) as at, tempfiles.staged(at, location.name, content) as staged:
            if status is not None:
                tempfiles.copy_ownership(staged.fd, at, location.name, status)
            tempfiles.rename_into_place(staged, at, location.name)
            tempfiles.fsync_directory(at)


def create(path: str, content: bytes) -> None:
    """Make the new file PATH with CONTENT.

    Only the owner can read the file. The function does not follow a link at PATH.

    Raises StoreError if PATH exists already, or a system call failed. Then no new file remains.
    """
    with _found(path, create=False, follow=False) as (folder, location):
        try:
            descriptor = os.open(location.name, _NEW, _OWNER_ONLY, dir_fd=folder.fd)
        except FileExistsError:
            raise StoreError(
                f"{shown(path)} exists already, and is not overwritten", hint="choose a new file name"
            ) from None
        except OSError as error:
            raise store_error("cannot write", path, error) from error
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
        except OSError as error:
            with suppress(OSError):
                os.unlink(location.name, dir_fd=folder.fd)
            raise store_error("cannot write", path, error) from error


@contextmanager
def _found(
    path: str, *, create: bool, follow: bool = True
) -> Iterator[tuple[Directory, pathwalk.FileLocation]]:
    """Yield the open folder and the location of the file PATH.

    Raises StoreError if a folder cannot be opened, or a link is not trusted.
    """
    absolute = os.path.join(os.getcwd(), path)
    try:
        location = pathwalk.to_file(absolute, create=create, follow=follow)
    except pathwalk.Blocked as blocked:
        raise explain_blocked(blocked, os.path.dirname(absolute), what="the folder") from blocked
    except OSError as error:
        raise store_error("cannot write", path, error) from error
    real = os.path.dirname(location.real)
    with closing(location.folder):
        yield Directory(path=real, real=real, fd=location.folder), location


def _refuse_others(path: str, status: os.stat_result, folder: os.stat_result) -> None:
    """Raise StoreError for another user's file in a sticky folder (``may_create_in_sticky``, fs/namei.c).

    Also raise StoreError, in any folder, for a FIFO of a user other than root and the caller. cdigen could
    wait for a reader of the FIFO forever.
    """
    if stat.S_ISFIFO(status.st_mode) and status.st_uid not in {0, os.geteuid()}:
        raise StoreError(
            f"{shown(path)} is not written: it is a FIFO of uid {status.st_uid}",
            hint="choose another file, or write to /dev/stdout",
        )
    is_open = folder.st_mode & stat.S_ISVTX and folder.st_mode & _OTHERS_ADD
    if is_open and status.st_uid not in {os.geteuid(), folder.st_uid}:
        raise StoreError(
            f"{shown(path)} is not written: it belongs to uid {status.st_uid}, in a folder where others may "
            "add files",
            hint="choose a new file name, or a folder of your own",
        )


def _write_through(
    path: str, location: pathwalk.FileLocation, status: os.stat_result | None, content: bytes
) -> None:
    """Write CONTENT to the device, FIFO or socket with STATUS, or to the target of a magic link of /proc."""
    flags = _SPECIAL | (os.O_TRUNC if status is None else os.O_NOFOLLOW)
    with store_errors("cannot write", path):
        descriptor = os.open(location.name, flags, dir_fd=location.folder)
        with open(descriptor, "wb") as file:
            if status is not None and not os.path.samestat(os.fstat(descriptor), status):
                raise StoreError(f"{shown(path)} was changed meanwhile", hint="run the command again")
            file.write(content)
