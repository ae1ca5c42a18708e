"""Work as other users."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cdigen.model.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


ROOT = 0
ALICE = 4201
MALLORY = 4202


def folder(path: Path, owner: int = ROOT, mode: int = 0o1777) -> Path:
    path.mkdir()
    os.chown(path, owner, owner)
    path.chmod(mode)
    return path


def by(uid: int, work: Callable[[], object]) -> str:
    """Do WORK as the user UID, in a process of its own; returns what it was refused with, or nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            os.setresgid(uid, uid, uid)
            os.setgroups([])
            os.setresuid(uid, uid, uid)
            work()
        except StoreError as error:
            said = f"{error.message}; {error.hint}"
        except BaseException as error:  # noqa: BLE001 - it ends this process, and is told to the other
            said = repr(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said
