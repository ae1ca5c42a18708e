"""Only processes of root outside of containers are daemons of runtimes: tested with real processes."""

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

# A process with the name crio. It is undumpable (prctl(2), PR_SET_DUMPABLE), so root owns its folder in
# /proc.
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
    """Return a program that all users may run. Its process has the name crio."""
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


def test_a_daemon_of_root_is_running_since_its_start(fake: Path) -> None:
    began = time.time()
    with started(fake, "60"):
        assert abs(running()["crio"] - began) < 60


def test_a_process_of_a_user_is_no_daemon(fake: Path) -> None:
    with started(fake, "60", user=4201):
        assert "crio" not in running()


def test_an_undumpable_process_of_a_user_is_no_daemon(fake: Path) -> None:  # noqa: ARG001
    with started("/usr/bin/python3", "-c", HIDDEN, user=4201, ready=True):
        assert "crio" not in running()


def test_a_process_of_a_container_is_no_daemon(fake: Path) -> None:
    with started("unshare", "--pid", "--fork", "--kill-child", fake, "60"):
        assert "crio" not in running()
