from __future__ import annotations

import fcntl
import os
import signal
import threading
import time

import pytest

from cdigen.model.errors import StoreError
from cdigen.store.directory import open_or_create
from cdigen.store.lock import LockHeld, exclusive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def test_the_lock_file_names_its_holder_and_stays_after_the_release(tmp_path: Path) -> None:
    with open_or_create(str(tmp_path)) as directory, exclusive(directory):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    assert (tmp_path / "lock").exists()


def test_the_lock_file_is_accessible_only_to_its_owner(tmp_path: Path) -> None:
    (tmp_path / "lock").touch(0o644)
    with open_or_create(str(tmp_path)) as directory, exclusive(directory):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_second_process_waits_until_the_timeout_and_names_the_holder(tmp_path: Path) -> None:
    began = time.monotonic()
    with open_or_create(str(tmp_path)) as directory, exclusive(directory):
        (tmp_path / "lock").write_text("4242\n")
        with pytest.raises(StoreError) as caught, exclusive(directory, timeout_s=0.2):
            pass
    assert "held by process 4242 for more than 0.2 s" in caught.value.message
    assert f"{tmp_path}/lock" in caught.value.message
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(
    ("owner", "holder"),
    [("pod cdigen/x", "pod cdigen/x"), ("cdigen.service", "process {} (cdigen.service)"), ("", "process {}")],
)
def test_the_error_for_a_held_lock_names_the_owner(tmp_path: Path, owner: str, holder: str) -> None:
    with (
        open_or_create(str(tmp_path)) as directory,
        exclusive(directory, owner=owner),
        pytest.raises(LockHeld) as caught,
        exclusive(directory, timeout_s=0),
    ):
        pass
    assert caught.value.holder == holder.format(os.getpid())


def test_a_process_without_a_timeout_gets_the_lock_when_the_lock_is_free(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    free = threading.Timer(0.1, os.close, (fd,))
    free.start()
    with open_or_create(str(tmp_path)) as directory, exclusive(directory, timeout_s=None):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    free.join()


def test_the_error_for_a_lock_file_without_a_pid_names_another_process(tmp_path: Path) -> None:
    with open_or_create(str(tmp_path)) as directory, exclusive(directory):
        (tmp_path / "lock").write_bytes(b"\xff\x00 no pid")
        with (
            pytest.raises(StoreError, match="held by another process for more than 0 s"),
            exclusive(directory, timeout_s=0),
        ):
            pass


def test_a_waiting_process_gets_the_lock_when_the_lock_is_free(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    free = threading.Timer(0.1, os.close, (fd,))
    free.start()
    with open_or_create(str(tmp_path)) as directory, exclusive(directory):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    free.join()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
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
def test_a_file_that_is_not_regular_at_the_path_of_the_lock_is_refused(tmp_path: Path, kind: str) -> None:
    lock = tmp_path / "lock"
    if kind == "symlink":
        lock.symlink_to("/etc/passwd")
    elif kind == "directory":
        lock.mkdir()
    else:
        os.mkfifo(lock)
    with open_or_create(str(tmp_path)) as directory, pytest.raises(StoreError), exclusive(directory):
        pass
