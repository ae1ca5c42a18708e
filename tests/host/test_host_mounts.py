"""A live host below a folder, as cdigen in a container has it: mounts that are missing, or read-only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdigen.host.mounts import findings

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).resolve().parents[2]
# A host that is whole: the kernel's file systems, a /run that can be written to.
WHOLE = """
cd "$1"
mkdir -p proc sys dev run/cdi var/lib/cdigen etc
ln -sfn /run var/run
mount --rbind /proc proc
mount --rbind /sys sys
mount --bind /dev dev
mount --bind run run
"""


@pytest.fixture
def told(tmp_path: Path, own_mounts: None) -> Callable[..., str]:  # noqa: ARG001 - it mounts
    """Return what runs a command of cdigen on a live host that steps have changed, and what it prints."""

    def run(steps: str, *command: str) -> str:
        script = f'set -e\n{WHOLE}\n{steps}\ncd {REPOSITORY}\nshift\nexec "$@" || true\n'
        cdigen = (sys.executable, "-m", "cdigen", *command, "--root", str(tmp_path))
        done = subprocess.run(
            [
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                script,
                "sh",
                str(tmp_path),
                *cdigen,
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "mount:" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.mark.process
@pytest.mark.parametrize("command", ["inspect", "doctor"])
@pytest.mark.parametrize("missing", ["proc", "sys"])
def test_a_file_system_of_the_kernel_that_is_not_mounted_is_named_with_the_mount(
    told: Callable[..., str], tmp_path: Path, missing: str, command: str
) -> None:
    text = told(f"umount -l {missing}", command)
    assert f"the host's /{missing} is not mounted at {tmp_path}/{missing}" in text
    assert f"--volume /:{tmp_path}:ro,rslave" in text
    assert f"hostPath / at {tmp_path} with 'mountPropagation: HostToContainer'" in text
    other = {"proc": "sys", "sys": "proc"}[missing]
    assert f"the host's /{other} " not in text


@pytest.mark.process
def test_a_host_that_is_mounted_without_what_is_below_it_lacks_all_of_the_kernels(
    told: Callable[..., str], tmp_path: Path
) -> None:
    alone = 'umount -l proc sys dev run; mount --bind "$1" "$1"'
    text = told(alone, "inspect")
    for folder in ("proc", "sys", "dev"):
        assert f"the host's /{folder} is not mounted at {tmp_path}/{folder}" in text
    assert "is not mounted" not in told("umount -l proc sys dev run", "inspect")


@pytest.mark.process
def test_a_host_that_is_mounted_whole_lacks_nothing(told: Callable[..., str]) -> None:
    assert "mounted at" not in told("", "inspect")


@pytest.mark.process
def test_a_folder_that_is_written_to_and_is_mounted_read_only_is_named_with_the_mount(
    told: Callable[..., str], tmp_path: Path
) -> None:
    closed = "mount -o remount,bind,ro run"
    way = f"mount the host's /run writable: hostPath /run at {tmp_path}/run in a manifest"
    text = told(closed, "doctor")
    assert f"{tmp_path}/run/cdi is on a mount that is read-only" in text
    assert way in text
    text = told(closed, "run")
    assert f"cannot make run directory {tmp_path}/run/cdigen: Read-only file system; {way}" in text


@pytest.mark.process
def test_a_mount_of_a_folder_that_the_host_has_removed_is_told(
    told: Callable[..., str], tmp_path: Path
) -> None:
    steps = """
    mkdir -p source/cdi
    mount --bind source/cdi run/cdi
    rmdir source/cdi
    """
    text = told(steps, "doctor")
    assert f"the folder that is mounted at {tmp_path}/run/cdi was removed on the host" in text


def test_the_tree_of_a_recorded_host_is_none_that_lives(tmp_path: Path) -> None:
    for name in ("proc", "sys", "dev"):
        (tmp_path / name).mkdir()
    assert findings(str(tmp_path), (f"{tmp_path}/run/cdi",)) == ()


def test_this_machine_itself_is_not_looked_at() -> None:
    assert findings("/", ("/run/cdi",)) == findings("", ("/run/cdi",)) == ()


def test_a_mount_table_that_is_rubbish_tells_nothing(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(b"\xff\n1 2\n" + os.urandom(100))
    assert findings(str(tmp_path), (), str(table)) == ()
    assert findings(str(tmp_path), (), str(tmp_path / "none")) == ()
