"""A package manager at work, with real locks held by real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon.cycles import Looker
from support.daemon.host import NEW, OLD, Host, daemon
from support.waiting import limited

from cdigen.daemon.patience import LOCK_FILES, PRESENCE_FILES, package_manager
from cdigen.host.root import Root

if TYPE_CHECKING:
    from collections.abc import Iterator

# Holds a lock of the kind that is asked for until its standard input is closed.
HOLDER = """
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
    """Let another process hold a lock on PATH while the body runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    command = ["/usr/bin/python3", "-I", "-S", "-c", HOLDER, str(path), kind]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, user=user) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            if not holder.stdin.closed:
                holder.stdin.close()


def at_work(root: Path) -> str:
    return package_manager(Root(str(root)))


@pytest.mark.parametrize(("name", "path"), LOCK_FILES)
def test_whoever_holds_a_record_lock_is_at_work(name: str, path: str, tmp_path: Path) -> None:
    with held(tmp_path / path.lstrip("/")):
        assert at_work(tmp_path) == name
    assert at_work(tmp_path) == ""


@pytest.mark.parametrize("path", [path for _, path in LOCK_FILES])
def test_a_query_is_no_work_and_no_user_can_pretend_that_there_is_any(path: str, tmp_path: Path) -> None:
    # rpm -q holds a lock for reading, and so can anybody who may read the file.
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


def test_a_lock_of_the_other_kind_says_nothing(tmp_path: Path) -> None:
    # dpkg and apt take fcntl's; flock(2) is another space on local file systems.
    with held(tmp_path / "var/lib/dpkg/lock", "flock"):
        assert at_work(tmp_path) == ""


def test_a_holder_that_was_killed_is_not_at_work(tmp_path: Path) -> None:
    with held(tmp_path / "var/lib/dpkg/lock") as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert at_work(tmp_path) == ""


def test_pacman_is_at_work_while_its_file_is_there(tmp_path: Path) -> None:
    ((name, path),) = PRESENCE_FILES
    file = tmp_path / path.lstrip("/")
    file.parent.mkdir(parents=True)
    file.touch()
    assert at_work(tmp_path) == name
    file.unlink()
    assert at_work(tmp_path) == ""


def test_looking_takes_no_lock_and_drops_none(tmp_path: Path) -> None:
    lock = tmp_path / "var/lib/dpkg/lock"
    with held(lock):
        assert [at_work(tmp_path) for _ in range(3)] == ["dpkg"] * 3
    with held(lock, "record"):
        assert at_work(tmp_path) == "dpkg"


@pytest.mark.parametrize("make", ["folder", "FIFO", "link that loops"])
def test_what_is_no_lock_file_says_nothing(make: str, tmp_path: Path) -> None:
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


def test_while_dpkg_works_the_old_spec_stays_and_the_new_one_comes_after_it(
    host: Host, looker: Looker
) -> None:
    before = host.spec.read_bytes()
    with held(lock_of(host)):
        host.load(gpus=3)
        report = looker.look().report
        assert (report.result, report.vendors[0].state) == ("waiting", "settling")
        assert report.vendors[0].reason == "dpkg is at work"
        assert host.spec.read_bytes() == before
    assert looker.state() == "ready"
    assert host.devices() == {"0", "1", "2", "all"}


def test_while_dpkg_works_elsewhere_the_host_is_ready(host: Host, looker: Looker) -> None:
    with held(lock_of(host)):
        report = looker.look().report
    assert (report.result, report.vendors[0].state) == ("unchanged", "ready")


def test_the_first_spec_does_not_wait_for_dpkg(host: Host) -> None:
    with held(lock_of(host)):
        assert Looker(host).state() == "ready"
    assert host.driver() == OLD


def test_a_spec_that_does_not_hold_any_more_is_withdrawn_while_dpkg_works_and_written_after_it(
    host: Host, looker: Looker
) -> None:
    with held(lock_of(host)):
        host.install(NEW)
        host.say_version(NEW)
        assert looker.state() == "settling"
        assert not host.spec.exists()
    assert looker.state() == "ready"
    assert host.driver() == NEW


def test_a_driver_that_appears_while_dpkg_works_is_waited_for_until_it_grows_no_more(host: Host) -> None:
    host.uninstall()
    looker = Looker(host)
    looker.look()
    with held(lock_of(host)):
        host.install(OLD)
        assert looker.state() == "settling"
        host.load(gpus=3)
        assert looker.state(0.9) == "settling"
        assert looker.state(0.9) == "settling"
        assert not host.spec.exists()
        assert looker.state(0.2) == "ready"
    assert host.devices() == {"0", "1", "2", "all"}


def test_a_package_manager_that_hangs_is_not_waited_for_for_ever(host: Host, looker: Looker) -> None:
    with held(lock_of(host)):
        host.load(gpus=3)
        assert looker.state() == "settling"
        assert looker.state(1.1) == "ready"
    assert host.devices() == {"0", "1", "2", "all"}


def test_what_an_installation_has_half_done_is_no_mismatch_while_it_lasts(host: Host, looker: Looker) -> None:
    with held(lock_of(host)):
        host.install(NEW)
        assert looker.state() == "settling"
        assert looker.state(1.1) == "settling"
    assert looker.state(1.1) == "mismatch"


@limited(5)
def test_the_end_of_a_long_installation_makes_no_event_and_is_seen_soon(host: Host, within_s: float) -> None:
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
