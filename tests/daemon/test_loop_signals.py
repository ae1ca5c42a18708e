"""Signals during the start, the run and the exit of the daemon, one by one and in bursts."""

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
# The limit is 2 s; a busy machine may take longer.
ENDS_WITHIN_S = 6.0
# The number of SIGHUP signals. Sending them takes a second or two.
STORM = 200_000


def caught(pid: int) -> set[int]:
    """Return the signals for which the process PID has handlers."""
    text = Path(f"/proc/{pid}/status").read_text()
    bits = int(text.partition("SigCgt:")[2].split()[0], 16)
    return {number for number in range(1, 65) if bits & 1 << (number - 1)}


def test_signals_are_handled_before_slow_imports(host: Host) -> None:
    with daemon(host, wait=False) as running:
        assert until(lambda: signal.SIGHUP in caught(running.process.pid))
        maps = Path(f"/proc/{running.process.pid}/maps").read_text()
        # Both are C extensions that a daemon imports later.
        assert "_ssl" not in maps
        assert "_socket" not in maps


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1, 0.2, 0.3])
def test_sighup_during_the_start_causes_a_reload_and_does_not_end_the_daemon(
    delay_s: float, host: Host
) -> None:
    with daemon(host, wait=False) as running:
        assert until(lambda: signal.SIGHUP in caught(running.process.pid))
        pause(delay_s)
        running.process.send_signal(signal.SIGHUP)
        assert running.manager.receives("RELOADING=1") is not None
        assert running.manager.receives("READY=1", "STATUS=ready: containers can use 2 devices") is not None


@pytest.mark.wall_clock
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.15, 0.3])
def test_a_termination_signal_during_the_start_ends_the_daemon(
    delay_s: float, number: signal.Signals, host: Host
) -> None:
    with daemon(host, wait=False) as running:
        assert until(lambda: {number, signal.SIGHUP} <= caught(running.process.pid))
        pause(delay_s)
        code, took = running.stop(number)
        assert (code, took < ENDS_WITHIN_S) == (0, True)
        assert "Traceback" not in running.text
    assert host.rubbish() == []


def test_the_daemon_survives_a_flood_of_sighup_and_handles_the_last_signal(host: Host) -> None:
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


def test_sighup_during_the_exit_does_not_change_the_exit_code(host: Host) -> None:
    for _ in range(3):
        with daemon(host) as running:
            running.process.terminate()
            while running.process.poll() is None:
                running.process.send_signal(signal.SIGHUP)
                pause(0.0005)
            assert running.process.returncode == 0


@pytest.mark.wall_clock
def test_repeated_sigterm_has_the_effect_of_a_single_sigterm(host: Host) -> None:
    with daemon(host) as running:
        began = time.monotonic()
        while running.process.poll() is None:
            running.process.terminate()
            pause(0.001)
        assert (running.process.returncode, time.monotonic() - began < ENDS_WITHIN_S) == (0, True)


def test_signals_that_the_parent_had_blocked_are_handled(host: Host) -> None:
    script = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [1, 2, 15])"
    script += "; os.execv(sys.argv[1], sys.argv[1:])"
    with daemon(host, before=(sys.executable, "-c", script)) as running:
        assert running.stop()[0] == 0


# The programs that the daemon starts.

CHILD = """
from cdigen.host import childprocess
from cdigen.service.process import signals
signals.listen()
print(childprocess.run(("/bin/cat", "/proc/self/status"), deadline_s=10).output.decode())
"""


def test_child_processes_have_default_signal_handlers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    rows = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    handled = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGALRM}
    for name in ("SigBlk", "SigIgn", "SigCgt"):
        bits = int(rows[name], 16)
        assert [number for number in handled if bits & 1 << (number - 1)] == []
