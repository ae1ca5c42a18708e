"""Processes that a measurement starts: the environment of a unit, and what the kernel counts of a process."""

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

PATIENCE_S = 30.0
ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
# As the units have it.
SERVICE = {**ENVIRONMENT, "MALLOC_ARENA_MAX": "1"}


@contextmanager
def running(*command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run COMMAND as its unit does until the context ends."""
    process = subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL, env=SERVICE)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def reached(ask: Callable[[], T], what: str) -> T:
    """Return what ASK returns as soon as that is something; the program ends if WHAT does not come."""
    until_s = time.monotonic() + PATIENCE_S
    while not (found := ask()):
        if time.monotonic() > until_s:
            sys.exit(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.001)
    return found


def processor_s(process: subprocess.Popen[Any]) -> float:
    """Return the processor time of all threads; /proc/PID/stat counts in steps of 10 ms."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def wakeups(process: subprocess.Popen[Any]) -> int:
    """Return how often the threads have gone to sleep."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/status")
    texts = (task.read_text().partition("\nvoluntary_ctxt_switches:")[2] for task in tasks)
    return sum(int(text.split()[0]) for text in texts)


def idle(process: subprocess.Popen[Any], for_s: float) -> dict[str, float]:
    """Watch a process that waits FOR_S; return what waiting costs."""
    begin, cpu_s, woken = time.monotonic(), processor_s(process), wakeups(process)
    time.sleep(for_s)
    took_s = time.monotonic() - begin
    return {
        "cpu_percent": round((processor_s(process) - cpu_s) / took_s * 100, 3),
        "wakeups_per_minute": round((wakeups(process) - woken) / took_s * 60),
    }


def memory_mb(process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Return the resident size, now and at most."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    sizes = (int(text.partition(f"{key}:")[2].split()[0]) for key in ("VmRSS", "VmHWM"))
    return dict(zip(("rss_mb", "peak_mb"), (round(size / 1024, 1) for size in sizes), strict=True))


def used_ms(command: Sequence[str]) -> float:
    """Run COMMAND, which must succeed, and return its processor time: others may use the machine too."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if status:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return (used.ru_utime + used.ru_stime) * 1000


def peak_mb(command: Sequence[str]) -> float:
    """Return a command's peak memory.

    The kernel counts what a process had before exec, so it is started from a process that is smaller.
    """
    script = (
        "import os, sys; null = (os.POSIX_SPAWN_OPEN, 1, '/dev/null', os.O_WRONLY, 0);"
        "pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[null]);"
        "print(os.wait4(pid, 0)[2].ru_maxrss)"
    )
    smaller = [sys.executable, "-I", "-S", "-c", script, *command]
    done = subprocess.run(smaller, check=True, capture_output=True, text=True, env=ENVIRONMENT)
    return round(int(done.stdout) / 1024, 1)
