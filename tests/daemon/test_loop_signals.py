"""Signals: from the daemon's first moment to its last, one by one and in storms."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.daemon.host import Host, daemon
from support.paths import REPOSITORY
from support.waiting import pause, until

pytestmark = pytest.mark.usefixtures("real_nodes")
# What is promised is 2 s; a busy machine may take longer.
ENDS_WITHIN_S = 6.0
# As many SIGHUP as a second or two have room for.
STORM = 200_000


def caught(pid: int) -> set[int]:
    """Return the signals that the process PID has handlers for."""
    text = Path(f"/proc/{pid}/status").read_text()
    bits = int(text.partition("SigCgt:")[2].split()[0], 16)
    return {number for number in range(1, 65) if bits & 1 << (number - 1)}


def test_signals_are_heard_before_anything_that_takes_long_is_imported(host: Host) -> None:
    with daemon(host, wait=False) as running:
        assert until(lambda: signal.SIGHUP in caught(running.process.pid))
        maps = Path(f"/proc/{running.process.pid}/maps").read_text()
        # Both are C extensions of what a daemon imports.
        assert "_ssl" not in maps
        assert "_socket" not in maps


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1, 0.2, 0.3])
def test_a_reload_that_comes_while_it_starts_ends_nothing_and_is_obeyed(delay_s: float, host: Host) -> None:
    with daemon(host, wait=False) as running:
        assert until(lambda: signal.SIGHUP in caught(running.process.pid))
        pause(delay_s)
        running.process.send_signal(signal.SIGHUP)
        assert running.manager.hears("RELOADING=1") is not None
        assert running.manager.hears("READY=1", "STATUS=ready, 6 devices") is not None


@pytest.mark.wall_clock
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.15, 0.3])
def test_a_signal_to_end_while_it_starts_is_obeyed(
    delay_s: float, number: signal.Signals, host: Host
) -> None:
    with daemon(host, wait=False) as running:
        assert until(lambda: {number, signal.SIGHUP} <= caught(running.process.pid))
        pause(delay_s)
        code, took = running.stop(number)
        assert (code, took < ENDS_WITHIN_S) == (0, True)
        assert "Traceback" not in running.text
    assert host.rubbish() == []


def test_a_storm_of_reloads_at_full_rate_is_survived_and_the_last_one_obeyed(host: Host) -> None:
    with daemon(host) as running:
        running.rests()
        for _ in range(STORM):
            os.kill(running.process.pid, signal.SIGHUP)
        before = running.cycles
        host.configure("profiles:\n  - {name: gpu, class: card}\n")
        running.process.send_signal(signal.SIGHUP)
        running.sees(lambda: running.cycles > before)
        running.sees(lambda: host.devices("nvidia.com-card.json"))
        assert "Traceback" not in running.text
        assert running.stop()[0] == 0


def test_reloads_that_come_while_it_ends_do_not_spoil_its_exit_code(host: Host) -> None:
    for _ in range(3):
        with daemon(host) as running:
            running.process.terminate()
            while running.process.poll() is None:
                running.process.send_signal(signal.SIGHUP)
                pause(0.0005)
            assert running.process.returncode == 0


@pytest.mark.wall_clock
def test_signals_to_end_one_after_the_other_are_one(host: Host) -> None:
    with daemon(host) as running:
        began = time.monotonic()
        while running.process.poll() is None:
            running.process.terminate()
            pause(0.001)
        assert (running.process.returncode, time.monotonic() - began < ENDS_WITHIN_S) == (0, True)


def test_signals_that_whoever_started_it_had_blocked_are_heard(host: Host) -> None:
    script = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [1, 2, 15])"
    script += "; os.execv(sys.argv[1], sys.argv[1:])"
    with daemon(host, before=(sys.executable, "-c", script)) as running:
        assert running.stop()[0] == 0


# What it starts.

CHILD = """
from cdigen.host import childprocess
from cdigen.frontend import signals
signals.listen()
print(childprocess.run(("/bin/cat", "/proc/self/status"), deadline_s=10).output.decode())
"""


def test_programs_that_it_starts_find_every_signal_as_it_is_by_default() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    rows = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    ours = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGALRM}
    for name in ("SigBlk", "SigIgn", "SigCgt"):
        bits = int(rows[name], 16)
        assert [number for number in ours if bits & 1 << (number - 1)] == []
