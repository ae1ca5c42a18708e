"""A running daemon whose run directory is removed, locked or full, or whose log has no reader."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.daemon.host import Host, daemon, unshared
from support.daemon.stats import got
from support.paths import REPOSITORY
from support.waiting import PATIENCE_S, limited, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")
# The limit is 2 s; a busy machine may take longer.
ENDS_WITHIN_S = 6.0


def test_the_inventory_of_a_cycle_is_written_before_the_status(host: Host) -> None:
    with daemon(host):
        files = [host.run_dir / name for name in ("inventory.json", "status.json")]
        inventory_ns, status_ns = (file.stat().st_mtime_ns for file in files)
        assert inventory_ns <= status_ns


def test_a_removed_run_directory_is_created_again_with_all_its_files(host: Host, cdigen_process: Run) -> None:
    with daemon(host) as running:
        running.rests()
        shutil.rmtree(host.run_dir)
        running.sees(lambda: running.state == "ready")
        assert (host.run_dir / "lock").read_text().splitlines()[0] == f"{running.process.pid}"
        assert cdigen_process("status", "--root", host.root).code == 0
        assert cdigen_process("run", "--root", host.root).failed(5, f"held by process {running.process.pid}")
        running.sees(lambda: got(running, "/healthz")[0] == 200)
        running.sees(lambda: running.status["sources"]["http"]["healthy"])
        assert running.state == "ready"


def test_a_removed_lock_is_created_again(host: Host, cdigen_process: Run) -> None:
    with daemon(host) as running:
        running.rests()
        lock = host.run_dir / "lock"
        lock.unlink()
        running.sees(lock.exists)
        assert cdigen_process("run", "--root", host.root).failed(5, f"held by process {running.process.pid}")


def test_a_removed_socket_is_created_again(host: Host) -> None:
    with daemon(host) as running:
        running.rests()
        (host.run_dir / "http.sock").unlink()
        running.sees(lambda: got(running, "/healthz")[0] == 200)


def test_a_daemon_ends_if_another_daemon_holds_its_run_directory(host: Host) -> None:
    with daemon(host) as running:
        running.rests()
        # The daemon is stopped until another process holds the lock and the status is replaced.
        running.process.send_signal(signal.SIGSTOP)
        shutil.rmtree(host.run_dir)
        host.run_dir.mkdir()
        lock = os.open(host.run_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, b"4711\n")
        (host.run_dir / "status.json").write_text("another's")
        running.process.send_signal(signal.SIGCONT)
        assert running.process.wait(PATIENCE_S) == 5
        assert "held by process 4711" in running.text
        assert "Traceback" not in running.text
        assert (host.run_dir / "status.json").read_text() == "another's"
        os.close(lock)


def test_a_problem_of_the_run_directory_is_logged_once_until_the_problem_changes(host: Host) -> None:
    def replace_run_directory_with_a_file(moved: str) -> None:
        # The daemon is stopped, because a running daemon could create the directory again.
        running.process.send_signal(signal.SIGSTOP)
        host.run_dir.rename(host.root / moved)
        host.run_dir.write_text("in the way")
        running.process.send_signal(signal.SIGCONT)

    host.configure(resync_s=0.1)
    with daemon(host, "-v") as running:
        replace_run_directory_with_a_file("moved")
        count = len(running.lines())
        running.sees(lambda: len(running.lines()) > count + 5)
        # A cycle that ran during the replacement may have reported another problem.
        messages = [line["message"] for line in running.lines("status")]
        assert any("is not a directory" in message for message in messages)
        assert len(messages) == len(set(messages))
        host.run_dir.unlink()
        running.sees(lambda: running.status and running.lines("status")[-1]["level"] == "info")
        count = len(running.lines("status"))
        replace_run_directory_with_a_file("moved again")
        running.sees(lambda: len(running.lines("status")) > count)
        host.run_dir.unlink()


def test_a_full_disk_is_logged_once(host: Host) -> None:
    host.configure(resync_s=0.1)
    host.run_dir.mkdir()
    fill = f"mount -t tmpfs -o size=16k,mode=755 none {host.run_dir}"
    fill += f" && head -c 8192 /dev/zero > {host.run_dir}/x"
    before = (*unshared("--mount", "--propagation", "private"), "/bin/sh", "-c", f'{fill}; exec "$@"', "sh")
    with daemon(host, "-v", wait=False, before=before) as running:
        running.sees(lambda: len(running.lines()) > 6)
        messages = [line["message"] for line in running.lines("status") if line["level"] == "error"]
        assert messages
        assert len(messages) == len(set(messages))
        assert running.stop()[0] == 0


# A log without a reader.


@contextmanager
def unread(host: Host) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start the daemon with a full pipe as its log; yield the process and the reading end of the pipe."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writing, b"x" * 4095 + b"\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "cdigen", "run", "-v", "--root", str(host.root)],
        stdin=subprocess.DEVNULL,
        stderr=writing,
        cwd=REPOSITORY,
    )
    os.close(writing)
    try:
        yield process, reading
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(reading)


@limited(ENDS_WITHIN_S)
def test_an_unread_log_does_not_delay_the_specs_or_the_exit(host: Host, within_s: float) -> None:
    with unread(host) as (process, _):
        for gpus in (2, 3, 4):
            host.load(gpus)
            assert until(lambda gpus=gpus: str(gpus - 1) in host.devices())  # type: ignore[misc]
        began = time.monotonic()
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert time.monotonic() - began < within_s
