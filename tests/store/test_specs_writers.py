from __future__ import annotations

import fcntl
import os
import random
import signal
import tempfile
import time
from pathlib import Path

import pytest
from support.store.killing import PATIENCE_S, child, killed_after, moments
from support.waiting import pause

from cdigen.store import specs, tempfiles
from cdigen.store.directory import open_or_create
from cdigen.store.records.owned_specs import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "nvidia.com-gpu.json"
# The contents have different lengths of many pages. An incomplete file would differ from each content.
CONTENTS = tuple(bytes([65 + number]) * (40_000 + 7_000 * number) for number in range(4))
KILLS = 60


def accept(_: bytes) -> None:
    pass


def publish(base: Path, content: bytes) -> specs.PublishedSpec:
    return specs.publish(
        f"{base}/cdi", NAME, content, kind="nvidia.com/gpu", state_dir=f"{base}/state", check=accept
    )


def sweep(path: str) -> tuple[str, ...]:
    with open_or_create(path) as directory:
        before = os.listdir(path)
        tempfiles.sweep(directory)
    return tuple(sorted({*before} - {*os.listdir(path)}))


def is_ours(base: Path) -> bool:
    path = base / "cdi" / NAME
    state, findings = read(f"{base}/state")
    return findings == () and state.owns(str(path), path.read_bytes())


@pytest.fixture(params=["memory", "disk"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "disk":
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as path:
        yield Path(path)


def test_a_kill_of_a_writer_at_any_moment_leaves_a_complete_file_of_cdigen(base: Path) -> None:
    first, second, third, _ = CONTENTS

    def write_for_ever() -> None:
        while True:
            publish(base, first)
            publish(base, second)

    publish(base, third)
    observed: set[bytes] = set()
    rubbish: list[str] = []
    # Temporary files show that a writer was killed while it wrote.
    for moment in moments(KILLS, 0.03, lambda: rubbish and len(observed) > 1):
        before = (base / "cdi" / NAME).read_bytes()
        with killed_after(write_for_ever):
            pause(moment)
        content = (base / "cdi" / NAME).read_bytes()
        assert content in (before, first, second)
        assert is_ours(base)
        observed.add(content)
        names = os.listdir(base / "cdi") + os.listdir(base / "state")
        rubbish.extend(name for name in names if name.endswith(".tmp"))
        publish(base, third)
        assert os.listdir(base / "cdi") == [NAME]
        assert sorted(os.listdir(base / "state")) == ["lock", "state.json"]


def test_a_kill_of_a_withdrawal_at_any_moment_leaves_a_file_of_cdigen_or_no_file(base: Path) -> None:
    def publish_and_withdraw() -> None:
        while True:
            publish(base, CONTENTS[0])
            specs.withdraw(f"{base}/cdi", NAME, state_dir=f"{base}/state")

    for _ in range(20):
        with killed_after(publish_and_withdraw):
            pause(random.uniform(0.002, 0.02))
        publish(base, CONTENTS[1])
        assert is_ours(base)
        assert os.listdir(base / "cdi") == [NAME]


@pytest.mark.parametrize("writers", [2, 4])
def test_readers_get_only_complete_files_while_several_writers_write(base: Path, writers: int) -> None:
    publish(base, CONTENTS[0])
    contents = CONTENTS[:writers]
    enough = base / "enough"

    def write(first: int) -> None:
        number = 0
        while number < 12 or not enough.exists():
            publish(base, contents[(first + number) % writers])
            number += 1

    pids = [child(lambda first=first: write(first)) for first in range(writers)]  # type: ignore[misc]
    observed: set[bytes] = set()
    statuses: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(statuses) < writers:
            observed.add((base / "cdi" / NAME).read_bytes())
            if len(observed) > 1 or time.monotonic() > deadline:
                enough.touch()
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                pids.remove(pid)
                statuses.append(status)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert observed <= set(contents)
    assert statuses == [0] * writers
    assert len(observed) > 1
    assert is_ours(base)
    assert os.listdir(base / "cdi") == [NAME]


def test_only_the_temporary_files_of_ended_writers_are_swept(tmp_path: Path) -> None:
    reader, writer = os.pipe()

    def stage_and_wait() -> None:
        with open_or_create(str(tmp_path)) as directory, tempfiles.staged(directory, NAME, b"content"):
            os.write(writer, b"x")
            signal.pause()

    with killed_after(stage_and_wait):
        os.read(reader, 1)
        left = os.listdir(tmp_path)
        assert sweep(str(tmp_path)) == ()
        assert os.listdir(tmp_path) == left
    os.close(reader)
    os.close(writer)
    assert sweep(str(tmp_path)) == tuple(left)
    assert os.listdir(tmp_path) == []


def test_the_lock_and_not_the_pid_in_its_name_protects_a_temporary_file(tmp_path: Path) -> None:
    alive_here = tmp_path / f".cdigen-a.json.{os.getpid()}.00000000.tmp"
    unknown_here = tmp_path / ".cdigen-b.json.4194305.00000000.tmp"
    for path in (alive_here, unknown_here):
        path.write_bytes(b"")
        os.utime(path, (0, 0))
    with unknown_here.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert sweep(str(tmp_path)) == (alive_here.name,)
    assert sweep(str(tmp_path)) == (unknown_here.name,)


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.json.tmp",
        ".cdigen-x.tmp",
        ".cdigen-x.json.1.0000000g.tmp",
        ".cdigen-x.json.one.00000000.tmp",
        ".cdigen-x.json.1.00000000.json",
    ],
)
def test_a_sweep_removes_only_files_with_temporary_names_of_cdigen(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert sweep(str(tmp_path)) == ()
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("kind", ["symlink", "directory", "fifo"])
def test_a_sweep_removes_only_regular_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ".cdigen-x.json.1.00000000.tmp"
    if kind == "symlink":
        path.symlink_to("/etc/passwd")
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert sweep(str(tmp_path)) == ()
    assert os.path.lexists(path)


def test_a_temporary_file_that_a_sweep_removed_before_it_was_locked_is_not_used(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as file:
        assert tempfiles._claimed(file.fileno())
        os.unlink(tmp_path / "x")
        assert not tempfiles._claimed(file.fileno())


def test_a_concurrent_sweep_without_the_lock_does_not_disturb_a_writer(tmp_path: Path) -> None:
    def sweep_repeatedly() -> None:
        while True:
            sweep(f"{tmp_path}/cdi")

    with killed_after(sweep_repeatedly):
        for number in range(40):
            assert publish(tmp_path, CONTENTS[number % 2]).result == "written"
