"""Processes of a benchmark: the environment of a unit, and the kernel's statistics of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

TIMEOUT_S = 30.0
ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
# The environment of cdigen's units.
SERVICE = {**ENVIRONMENT, "MALLOC_ARENA_MAX": "1"}


@contextmanager
def running(*command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run COMMAND with the environment of its unit until the context ends."""
    process = subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL, env=SERVICE)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)


def reached(query: Callable[[], T], what: str) -> T:
    """Return the first true result of QUERY; the program ends if WHAT does not occur within TIMEOUT_S."""
    until_s = time.monotonic() + TIMEOUT_S
    while not (found := query()):
        if time.monotonic() > until_s:
            sys.exit(f"not within {TIMEOUT_S:g} s: {what}")
        time.sleep(0.001)
    return found


def processor_s(process: subprocess.Popen[Any]) -> float:
    """Return the processor time of all threads, by schedstat: /proc/PID/stat has only 10 ms resolution."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def wakeups(process: subprocess.Popen[Any]) -> int:
    """Return the number of voluntary context switches of all threads."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/status")
    texts = (task.read_text().partition("\nvoluntary_ctxt_switches:")[2] for task in tasks)
    return sum(int(text.split()[0]) for text in texts)


def idle(process: subprocess.Popen[Any], for_s: float) -> dict[str, float]:
    """Observe an idle process for FOR_S; return its processor time and its wakeups."""
    begin, cpu_s, wakeups_before = time.monotonic(), processor_s(process), wakeups(process)
    time.sleep(for_s)
    took_s = time.monotonic() - begin
    return {
        "cpu_percent": round((processor_s(process) - cpu_s) / took_s * 100, 3),
        "wakeups_per_minute": round((wakeups(process) - wakeups_before) / took_s * 60),
    }


def memory_mb(process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Return the resident size of PROCESS, and the peak of this size."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    sizes = (int(text.partition(f"{key}:")[2].split()[0]) for key in ("VmRSS", "VmHWM"))
    return dict(zip(("rss_mb", "peak_mb"), (round(size / 1024, 1) for size in sizes), strict=True))


def used_ms(command: Sequence[str]) -> float:
    """Return the processor time of COMMAND, which must succeed; other programs do not affect it much."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if status:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return (used.ru_utime + used.ru_stime) * 1000


def peak_mb(command: Sequence[str]) -> float:
    """Return the peak memory of COMMAND.

    The kernel includes the memory before exec, so a small process starts the command.
    """
    script = (
        "import os, sys; null = (os.POSIX_SPAWN_OPEN, 1, '/dev/null', os.O_WRONLY, 0);"
        "pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[null]);"
        "print(os.wait4(pid, 0)[2].ru_maxrss)"
    )
    smaller = [sys.executable, "-I", "-S", "-c", script, *command]
    done = subprocess.run(smaller, check=True, capture_output=True, text=True, env=ENVIRONMENT)
    return round(int(done.stdout) / 1024, 1)
