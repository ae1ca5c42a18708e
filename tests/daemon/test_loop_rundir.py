"""The run directory while the daemon lives: removed, taken by another, full; and a log that nobody reads."""

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
from support.daemon.figures import got
from support.daemon.host import Host, daemon, unshared
from support.paths import REPOSITORY
from support.waiting import PATIENCE_S, limited, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")
# What is promised is 2 s; a busy machine may take longer.
ENDS_WITHIN_S = 6.0


def test_the_inventory_of_a_cycle_is_there_before_its_status(host: Host) -> None:
    with daemon(host):
        files = [host.run_dir / name for name in ("inventory.json", "status.json")]
        inventory_ns, status_ns = (file.stat().st_mtime_ns for file in files)
        assert inventory_ns <= status_ns


def test_a_run_directory_that_was_removed_is_made_again_with_all_that_is_in_it(
    host: Host, cdigen_process: Run
) -> None:
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


def test_a_lock_that_was_removed_is_made_again(host: Host, cdigen_process: Run) -> None:
    with daemon(host) as running:
        running.rests()
        lock = host.run_dir / "lock"
        lock.unlink()
        running.sees(lock.exists)
        assert cdigen_process("run", "--root", host.root).failed(5, f"held by process {running.process.pid}")


def test_a_socket_that_was_removed_is_made_again(host: Host) -> None:
    with daemon(host) as running:
        running.rests()
        (host.run_dir / "http.sock").unlink()
        running.sees(lambda: got(running, "/healthz")[0] == 200)


def test_where_another_daemon_was_faster_it_ends_in_words_and_leaves_that_ones_files(host: Host) -> None:
    with daemon(host) as running:
        running.rests()
        # Nothing runs until the other one has all that it needs.
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


def test_what_is_wrong_with_the_run_directory_is_said_once_until_it_changes(host: Host) -> None:
    def put_a_file_in_its_place(moved: str) -> None:
        # While the daemon does not run: else it may be faster, and make the directory anew.
        running.process.send_signal(signal.SIGSTOP)
        host.run_dir.rename(host.root / moved)
        host.run_dir.write_text("in the way")
        running.process.send_signal(signal.SIGCONT)

    host.configure(resync_s=0.1)
    with daemon(host, "-v") as running:
        put_a_file_in_its_place("moved")
        seen = len(running.lines())
        running.sees(lambda: len(running.lines()) > seen + 5)
        # Between one step and the next, the first cycle may have met another trouble.
        messages = [line["message"] for line in running.lines("status")]
        assert any("is not a directory" in message for message in messages)
        assert len(messages) == len(set(messages))
        host.run_dir.unlink()
        running.sees(lambda: running.status and running.lines("status")[-1]["level"] == "info")
        seen = len(running.lines("status"))
        put_a_file_in_its_place("moved again")
        running.sees(lambda: len(running.lines("status")) > seen)
        host.run_dir.unlink()


def test_a_full_disk_is_said_once(host: Host) -> None:
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


# A log that nobody reads.


@contextmanager
def unread(host: Host) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start the daemon with a pipe for its log that is full; gives the end from which it can be read."""
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
def test_a_log_that_nobody_reads_keeps_no_spec_from_being_written_and_no_end_from_coming(
    host: Host, within_s: float
) -> None:
    with unread(host) as (process, _):
        for gpus in (2, 3, 4):
            host.load(gpus)
            assert until(lambda gpus=gpus: str(gpus - 1) in host.devices())  # type: ignore[misc]
        began = time.monotonic()
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert time.monotonic() - began < within_s
