"""Files that the user named (``--output``, ``--bundle``): whole or not at all, but nobody's property."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.store import tempfiles
from cdigen.store.directory import made
from cdigen.store.failures import store_error

_OWNER_ONLY = 0o600


def save(path: str, content: bytes) -> None:
    """Make CONTENT the content of the file PATH; missing folders are made.

    A link is followed, as a shell's ``>`` would. What is there and no regular file (``/dev/stdout``,
    a FIFO) is written to rather than replaced. StoreError: the system refused.
    """
    real = os.path.realpath(path)
    if _is_special(real):
        _write_through(real, content)
        return
    folder, name = os.path.split(real)
    with made(folder, what="the folder") as place, tempfiles.staged(place, name, content) as staged:
        tempfiles.put(staged, place, name)
        tempfiles.settle(place)


def create(path: str, content: bytes) -> None:
    """Make the new file PATH with CONTENT, for its owner alone; no link in its place is followed.

    StoreError: something has that name already, or the system refused; nothing is left then.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, _OWNER_ONLY)
    except FileExistsError:
        raise StoreError(
            f"{shown(path)} is there already, and is not written over", hint="name a new file"
        ) from None
    except OSError as error:
        raise store_error("cannot write", path, error) from error
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        with suppress(OSError):
            os.unlink(path)
        raise store_error("cannot write", path, error) from error


def _is_special(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _write_through(path: str, content: bytes) -> None:
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(content)
    except OSError as error:
        raise store_error("cannot write", path, error) from error
