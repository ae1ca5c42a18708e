"""File systems that are full or read-only; they need a mount namespace (fixture `own_mounts`)."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path


@contextmanager
def mounted(path: Path, *arguments: str) -> Iterator[Path]:
    """Make PATH if it is missing, run ``mount ARGUMENTS PATH``, and unmount PATH after the body."""
    path.mkdir(exist_ok=True)
    subprocess.run(["mount", *arguments, str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def tmpfs(path: Path, options: str) -> AbstractContextManager[Path]:
    return mounted(path, "-t", "tmpfs", "-o", f"mode=0755,{options}", "tmpfs")


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    with mounted(path, "--bind", str(path)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(path)], check=True)
        yield


def fill(path: Path) -> None:
    """Write into the file PATH until the file system is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
