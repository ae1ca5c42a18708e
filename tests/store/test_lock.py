from __future__ import annotations

import fcntl
import os
import signal

import pytest

from cdigen.model.errors import StoreError
from cdigen.store.directory import open_or_create
from cdigen.store.lock import exclusive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def test_the_lock_names_its_holder_and_outlives_it_as_a_file(tmp_path: Path) -> None:
    with open_or_create(str(tmp_path)) as directory, exclusive(directory):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    assert (tmp_path / "lock").exists()


def test_nobody_else_can_open_the_lock_and_hold_it_against_us(tmp_path: Path) -> None:
    (tmp_path / "lock").touch(0o644)
    with open_or_create(str(tmp_path)) as directory, exclusive(directory):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_second_holder_waits_ten_seconds_and_then_names_the_first(tmp_path: Path) -> None:
    clock = Clock()
    with open_or_create(str(tmp_path)) as directory, exclusive(directory):
        (tmp_path / "lock").write_text("4242\n")
        with (
            pytest.raises(StoreError) as caught,
            exclusive(directory, monotonic=clock.monotonic, sleep=clock.sleep),
        ):
            pass
    assert "held by process 4242 for more than 10 s" in caught.value.message
    assert f"{tmp_path}/lock" in caught.value.message
    assert sum(clock.slept) == pytest.approx(10.0, abs=0.1)


def test_a_lock_file_without_a_pid_gives_a_message_without_one(tmp_path: Path) -> None:
    clock = Clock()
    with open_or_create(str(tmp_path)) as directory, exclusive(directory):
        (tmp_path / "lock").write_bytes(b"\xff\x00 no pid")
        with (
            pytest.raises(StoreError, match="held by another process for more than 1 s"),
            exclusive(directory, timeout_s=1, monotonic=clock.monotonic, sleep=clock.sleep),
        ):
            pass


def test_a_waiter_gets_the_lock_as_soon_as_it_is_free(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with (
        open_or_create(str(tmp_path)) as directory,
        exclusive(directory, timeout_s=5, sleep=lambda _: os.close(fd)),
    ):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_killed_holder_does_not_hold(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with open_or_create(str(tmp_path)) as directory, exclusive(directory):
            os.write(writer, b"x")
            signal.pause()
        os._exit(1)
    os.close(writer)
    try:
        assert os.read(reader, 1) == b"x"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
    with open_or_create(str(tmp_path)) as directory, exclusive(directory, timeout_s=0):
        pass


@pytest.mark.parametrize("kind", ["symlink", "directory", "fifo"])
def test_something_else_in_the_place_of_the_lock_file_is_refused(tmp_path: Path, kind: str) -> None:
    lock = tmp_path / "lock"
    if kind == "symlink":
        lock.symlink_to("/etc/passwd")
    elif kind == "directory":
        lock.mkdir()
    else:
        os.mkfifo(lock)
    with open_or_create(str(tmp_path)) as directory, pytest.raises(StoreError), exclusive(directory):
        pass
