"""Files that the user named (``--output``): whole or not at all, but nobody's property."""

from __future__ import annotations

import os
import stat

from cdigen.store import tempfiles
from cdigen.store.directory import made
from cdigen.store.failures import store_error


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
