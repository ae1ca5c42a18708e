"""Write files named by the user (``--output``, ``--bundle``), atomically and never through planted links."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress

from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.store import pathwalk, tempfiles
from cdigen.store.directory import Directory, explain_blocked, reopen
from cdigen.store.failures import store_error
from cdigen.store.ownership import copy_ownership, status_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_OWNER_ONLY = 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SPECIAL = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC
_OTHERS_ADD = stat.S_IWOTH | stat.S_IWGRP


def save_file(path: str, content: bytes) -> None:
    """Write CONTENT to the file PATH; missing folders are made.

    A link is followed, as a shell's ``>`` would, but by the kernel's rule for sticky folders (see
    ``store.pathwalk``; for files and FIFOs, fs.protected_regular and fs.protected_fifos), whether the sysctls
    are set or not. An existing file keeps its owner and mode. A file that is not regular (``/dev/stdout``, a
    FIFO) is written to rather than replaced. StoreError: the system refused, or these rules.
    """
    with _found(path, create=True) as (folder, place):
        status = None if place.is_magic else status_of(folder, place.name)
        if status is not None:
            _refuse_others(path, status, os.fstat(folder.fd))
        if place.is_magic or (status is not None and not stat.S_ISREG(status.st_mode)):
            _write_through(path, place, status, content)
            return
        with reopen(folder) as at, tempfiles.staged(at, place.name, content) as staged:
            if status is not None:
                copy_ownership(staged.fd, at, place.name, status)
            tempfiles.rename_into_place(staged, at, place.name)
            tempfiles.fsync_directory(at)


def create(path: str, content: bytes) -> None:
    """Make the new file PATH with CONTENT, for its owner alone; no link in its place is followed.

    StoreError: the name exists already, or the system refused; nothing is left behind.
    """
    with _found(path, create=False, follow=False) as (folder, place):
        try:
            descriptor = os.open(place.name, _NEW, _OWNER_ONLY, dir_fd=folder.fd)
        except FileExistsError:
            raise StoreError(
                f"{shown(path)} exists already, and is not overwritten", hint="name a new file"
            ) from None
        except OSError as error:
            raise store_error("cannot write", path, error) from error
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
        except OSError as error:
            with suppress(OSError):
                os.unlink(place.name, dir_fd=folder.fd)
            raise store_error("cannot write", path, error) from error


@contextmanager
def _found(
    path: str, *, create: bool, follow: bool = True
) -> Iterator[tuple[Directory, pathwalk.FileLocation]]:
    """Walk to the file PATH, and keep its folder open. StoreError: it cannot be reached, or not safely."""
    asked = os.path.join(os.getcwd(), path)
    try:
        place = pathwalk.to_file(asked, create=create, follow=follow)
    except pathwalk.Blocked as blocked:
        raise explain_blocked(blocked, os.path.dirname(asked), what="the folder") from blocked
    except OSError as error:
        raise store_error("cannot write", path, error) from error
    real = os.path.dirname(place.real)
    try:
        yield Directory(path=real, real=real, fd=place.folder), place
    finally:
        os.close(place.folder)


def _refuse_others(path: str, status: os.stat_result, folder: os.stat_result) -> None:
    """Refuse a file that another user has put into a sticky folder (``may_create_in_sticky`` in fs/namei.c).

    And another user's FIFO anywhere: they could make us wait for its reader for ever.
    """
    if stat.S_ISFIFO(status.st_mode) and status.st_uid not in {0, os.geteuid()}:
        raise StoreError(
            f"{shown(path)} is not written: it is a FIFO of uid {status.st_uid}",
            hint="name another file, or write to /dev/stdout",
        )
    is_open = folder.st_mode & stat.S_ISVTX and folder.st_mode & _OTHERS_ADD
    if is_open and status.st_uid not in {os.geteuid(), folder.st_uid}:
        raise StoreError(
            f"{shown(path)} is not written: it belongs to uid {status.st_uid}, in a folder where others may "
            "add files",
            hint="name a new file, or a folder of your own",
        )


def _write_through(
    path: str, place: pathwalk.FileLocation, status: os.stat_result | None, content: bytes
) -> None:
    """Write CONTENT to the device, FIFO or socket with STATUS, or to the target of a magic link of /proc."""
    flags = _SPECIAL | (os.O_TRUNC if status is None else os.O_NOFOLLOW)
    try:
        descriptor = os.open(place.name, flags, dir_fd=place.folder)
        with open(descriptor, "wb") as file:
            if status is not None and not os.path.samestat(os.fstat(descriptor), status):
                raise StoreError(f"{shown(path)} was changed meanwhile", hint="run the command again")
            file.write(content)
    except OSError as error:
        raise store_error("cannot write", path, error) from error
