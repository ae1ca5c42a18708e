"""A live host that is mounted at a folder, as for cdigen in a container: missing and read-only mounts."""

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
# The mounts of a complete host: the kernel's file systems, and a writable /run.
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
def output_of(tmp_path: Path, own_mounts: None) -> Callable[..., str]:  # noqa: ARG001 - it mounts
    """Return a function that changes a live host, runs a command of cdigen there, and returns its output."""

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
def test_a_missing_kernel_file_system_is_reported_with_a_mount_hint(
    output_of: Callable[..., str], tmp_path: Path, missing: str, command: str
) -> None:
    text = output_of(f"umount -l {missing}", command)
    assert f"the host's /{missing} is not mounted at {tmp_path}/{missing}" in text
    assert f"--volume /:{tmp_path}:ro,rslave" in text
    assert f"hostPath / at {tmp_path} with 'mountPropagation: HostToContainer'" in text
    other = {"proc": "sys", "sys": "proc"}[missing]
    assert f"the host's /{other} " not in text


@pytest.mark.process
def test_a_host_root_without_the_mounts_below_it_lacks_all_kernel_file_systems(
    output_of: Callable[..., str], tmp_path: Path
) -> None:
    alone = 'umount -l proc sys dev run; mount --bind "$1" "$1"'
    text = output_of(alone, "inspect")
    for folder in ("proc", "sys", "dev"):
        assert f"the host's /{folder} is not mounted at {tmp_path}/{folder}" in text
    assert "is not mounted" not in output_of("umount -l proc sys dev run", "inspect")


@pytest.mark.process
def test_a_completely_mounted_host_has_no_finding(output_of: Callable[..., str]) -> None:
    assert "mounted at" not in output_of("", "inspect")


@pytest.mark.process
def test_a_read_only_mount_of_a_writable_folder_is_reported_with_a_mount_hint(
    output_of: Callable[..., str], tmp_path: Path
) -> None:
    closed = "mount -o remount,bind,ro run"
    hint = f"mount the host's /run writable: hostPath /run at {tmp_path}/run in a manifest"
    text = output_of(closed, "doctor")
    assert f"{tmp_path}/run/cdi is on a read-only mount" in text
    assert hint in text
    text = output_of(closed, "run")
    assert f"cannot make run directory {tmp_path}/run/cdigen: Read-only file system; {hint}" in text


@pytest.mark.process
def test_a_mount_of_a_removed_folder_is_reported(output_of: Callable[..., str], tmp_path: Path) -> None:
    steps = """
    mkdir -p source/cdi
    mount --bind source/cdi run/cdi
    rmdir source/cdi
    """
    text = output_of(steps, "doctor")
    assert f"the folder that is mounted at {tmp_path}/run/cdi was removed on the host" in text


def test_the_tree_of_a_recorded_host_is_not_checked(tmp_path: Path) -> None:
    for name in ("proc", "sys", "dev"):
        (tmp_path / name).mkdir()
    assert findings(str(tmp_path), (f"{tmp_path}/run/cdi",)) == ()


def test_this_machine_itself_is_not_checked() -> None:
    assert findings("/", ("/run/cdi",)) == findings("", ("/run/cdi",)) == ()


def test_an_invalid_mount_table_has_no_finding(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(b"\xff\n1 2\n" + os.urandom(100))
    assert findings(str(tmp_path), (), str(table)) == ()
    assert findings(str(tmp_path), (), str(tmp_path / "none")) == ()
