"""Specs wait while a package manager is at work. In the tests, real processes hold real locks."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon.cycles import CycleRunner
from support.daemon.host import NEW, OLD, Host, daemon
from support.waiting import limited

from cdigen.daemon.cycle.settle import LOCK_FILES, PRESENCE_FILES, package_manager
from cdigen.host.root import Root

if TYPE_CHECKING:
    from collections.abc import Iterator

# A program that holds a lock of the requested kind until its standard input is closed.
LOCKER = """
import fcntl, sys
file = open(sys.argv[1], "rb" if sys.argv[2] == "shared" else "r+b")
if sys.argv[2] == "record":
    fcntl.lockf(file, fcntl.LOCK_EX)
elif sys.argv[2] == "shared":
    fcntl.lockf(file, fcntl.LOCK_SH)
else:
    fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(path: Path, kind: str = "record", *, user: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """Hold a lock on PATH in another process while the body runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    command = ["/usr/bin/python3", "-I", "-S", "-c", LOCKER, str(path), kind]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, user=user) as locker:
        assert locker.stdin is not None
        assert locker.stdout is not None
        try:
            assert locker.stdout.readline() == "held\n"
            yield locker
        finally:
            if not locker.stdin.closed:
                locker.stdin.close()


def at_work(root: Path) -> str:
    return package_manager(Root(str(root)))


@pytest.mark.parametrize(("name", "path"), LOCK_FILES)
def test_a_package_manager_that_holds_a_record_lock_is_at_work(name: str, path: str, tmp_path: Path) -> None:
    with held(tmp_path / path.lstrip("/")):
        assert at_work(tmp_path) == name
    assert at_work(tmp_path) == ""


@pytest.mark.parametrize("path", [path for _, path in LOCK_FILES])
def test_a_lock_for_reading_is_ignored(path: str, tmp_path: Path) -> None:
    # rpm -q holds a lock for reading. Any user who may read the file can hold this lock.
    with held(tmp_path / path.lstrip("/"), "shared"):
        assert at_work(tmp_path) == ""


@pytest.mark.needs_root
def test_a_user_who_locks_rpms_file_for_reading_delays_no_spec() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        os.chmod(root, 0o755)
        lock = Path(root, "var/lib/rpm/.rpm.lock")
        with held(lock, "shared", user=65534):
            assert lock.stat().st_mode & 0o777 == 0o644
            assert at_work(Path(root)) == ""


def test_a_lock_of_flock_is_ignored(tmp_path: Path) -> None:
    # dpkg and apt use the locks of fcntl(2). On local file systems, the locks of flock(2) are independent.
    with held(tmp_path / "var/lib/dpkg/lock", "flock"):
        assert at_work(tmp_path) == ""


def test_after_the_process_with_a_lock_is_killed_no_package_manager_is_at_work(tmp_path: Path) -> None:
    with held(tmp_path / "var/lib/dpkg/lock") as locker:
        locker.send_signal(signal.SIGKILL)
        locker.wait()
        assert at_work(tmp_path) == ""


def test_pacman_is_at_work_while_its_file_exists(tmp_path: Path) -> None:
    ((name, path),) = PRESENCE_FILES
    file = tmp_path / path.lstrip("/")
    file.parent.mkdir(parents=True)
    file.touch()
    assert at_work(tmp_path) == name
    file.unlink()
    assert at_work(tmp_path) == ""


def test_the_check_takes_no_lock_and_releases_none(tmp_path: Path) -> None:
    lock = tmp_path / "var/lib/dpkg/lock"
    with held(lock):
        assert [at_work(tmp_path) for _ in range(3)] == ["dpkg"] * 3
    with held(lock, "record"):
        assert at_work(tmp_path) == "dpkg"


@pytest.mark.parametrize("make", ["folder", "FIFO", "link that loops"])
def test_a_path_that_is_no_lock_file_is_ignored(make: str, tmp_path: Path) -> None:
    path = tmp_path / "var/lib/dpkg/lock"
    path.parent.mkdir(parents=True)
    match make:
        case "folder":
            path.mkdir()
        case "FIFO":
            os.mkfifo(path)
        case _:
            path.symlink_to("lock")
    assert at_work(tmp_path) == ""


def lock_of(host: Host) -> Path:
    return host.root / "var/lib/dpkg/lock"


def test_while_dpkg_works_the_old_spec_stays_and_the_new_spec_is_written_afterwards(
    host: Host, cycles: CycleRunner
) -> None:
    before = host.spec.read_bytes()
    with held(lock_of(host)):
        host.load(gpus=3)
        report = cycles.run_cycle().report
        assert (report.result, report.vendors[0].state) == ("waiting", "settling")
        assert report.vendors[0].reason == "dpkg is at work"
        assert host.spec.read_bytes() == before
    assert cycles.state() == "ready"
    assert host.devices() == {"0", "1", "2", "all"}


def test_the_host_is_ready_while_dpkg_changes_no_file_of_the_driver(host: Host, cycles: CycleRunner) -> None:
    with held(lock_of(host)):
        report = cycles.run_cycle().report
    assert (report.result, report.vendors[0].state) == ("unchanged", "ready")


def test_the_first_spec_does_not_wait_for_dpkg(host: Host) -> None:
    with held(lock_of(host)):
        assert CycleRunner(host).state() == "ready"
    assert host.driver() == OLD


def test_an_invalid_spec_is_withdrawn_while_dpkg_works_and_a_new_spec_is_written_later(
    host: Host, cycles: CycleRunner
) -> None:
    with held(lock_of(host)):
        host.install(NEW)
        host.set_version(NEW)
        assert cycles.state() == "settling"
        assert not host.spec.exists()
    assert cycles.state() == "ready"
    assert host.driver() == NEW


def test_the_spec_of_a_driver_that_dpkg_installs_is_written_after_the_last_change(host: Host) -> None:
    host.uninstall()
    cycles = CycleRunner(host)
    cycles.run_cycle()
    with held(lock_of(host)):
        host.install(OLD)
        assert cycles.state() == "settling"
        host.load(gpus=3)
        assert cycles.state(0.9) == "settling"
        assert cycles.state(0.9) == "settling"
        assert not host.spec.exists()
        assert cycles.state(0.2) == "ready"
    assert host.devices() == {"0", "1", "2", "all"}


def test_the_wait_for_a_hanging_package_manager_is_limited(host: Host, cycles: CycleRunner) -> None:
    with held(lock_of(host)):
        host.load(gpus=3)
        assert cycles.state() == "settling"
        assert cycles.state(1.1) == "ready"
    assert host.devices() == {"0", "1", "2", "all"}


def test_an_unfinished_installation_is_not_a_mismatch(host: Host, cycles: CycleRunner) -> None:
    with held(lock_of(host)):
        host.install(NEW)
        assert cycles.state() == "settling"
        assert cycles.state(1.1) == "settling"
    assert cycles.state(1.1) == "mismatch"


@limited(5)
def test_the_end_of_a_long_installation_without_an_event_is_found_soon(host: Host, within_s: float) -> None:
    host.configure(settle_timeout_s=3600, backoff_max_s=3600)
    with daemon(host) as running:
        with held(lock_of(host)):
            host.load(gpus=3)
            running.sees(lambda: running.state == "settling")
            for _ in range(15):
                before = running.cycles
                host.put("usr/bin/nvidia-debugdump", "another")
                running.sees(lambda before=before: running.cycles > before)  # type: ignore[misc]
            assert host.devices() == {"0", "1", "all"}
        running.sees(lambda: host.devices() == {"0", "1", "2", "all"}, within_s=within_s)
