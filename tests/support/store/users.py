"""Runs functions as other users."""

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
    """Run WORK as the user UID in another process; return the text of its error, or ""."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            os.setresgid(uid, uid, uid)
            os.setgroups([])
            os.setresuid(uid, uid, uid)
            work()
        except StoreError as error:
            text = f"{error.message}; {error.hint}"
        except BaseException as error:  # noqa: BLE001 - it ends this process; the parent gets its text
            text = repr(error)
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text
