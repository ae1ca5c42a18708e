"""Which processes count as a runtime's daemon: real processes, of root, of users and of containers."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run
from support.waiting import until

from cdigen.doctor.examined import running

if TYPE_CHECKING:
    from collections.abc import Iterator

# May not be dumped (prctl(2), PR_SET_DUMPABLE), so that its folder in /proc belongs to root; called crio.
HIDDEN = """
import ctypes, sys, time
libc = ctypes.CDLL(None)
libc.prctl(4, 0, 0, 0, 0)
libc.prctl(15, b"crio", 0, 0, 0)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def fake(other_users: None) -> Iterator[Path]:  # noqa: ARG001 - other users start it
    """Return a program that everybody may start, whose process is called crio."""
    if "crio" in running():
        cannot_run("a CRI-O runs here")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(shutil.copy2("/bin/sleep", f"{folder}/crio"))


@contextmanager
def started(*command: str | Path, user: int = 0, ready: bool = False) -> Iterator[None]:
    with subprocess.Popen([*map(str, command)], user=user, stdout=subprocess.PIPE) as process:
        try:
            if ready:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
            assert until(lambda: "crio" in names())
            yield
        finally:
            process.kill()


def names() -> set[str]:
    """Return the names of all processes."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.add(Path(f"/proc/{pid}/comm").read_text().rstrip("\n"))
        except OSError:
            continue
    return found


def test_roots_daemon_counts_from_when_it_began(fake: Path) -> None:
    began = time.time()
    with started(fake, "60"):
        assert abs(running()["crio"] - began) < 60


def test_a_users_process_of_that_name_is_no_daemon(fake: Path) -> None:
    with started(fake, "60", user=4201):
        assert "crio" not in running()


def test_nor_is_one_whose_folder_in_proc_is_roots(fake: Path) -> None:  # noqa: ARG001
    with started("/usr/bin/python3", "-c", HIDDEN, user=4201, ready=True):
        assert "crio" not in running()


def test_nor_is_a_containers(fake: Path) -> None:
    with started("unshare", "--pid", "--fork", "--kill-child", fake, "60"):
        assert "crio" not in running()
