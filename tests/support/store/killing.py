"""Kills child processes at random times, until a kill interrupts their work."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Longer than any step takes on a busy machine; only a failing test waits so long.
PATIENCE_S = 120.0
# Times are drawn from 1/64 of the test's time up to 64 times the test's time.
SCALES = 6


def child(work: Callable[[], None]) -> int:
    """Start a child that runs WORK; return the child's PID. The exit code is 0 if WORK raises nothing."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


@contextmanager
def killed_after(work: Callable[[], None]) -> Iterator[None]:
    """Start a child that runs WORK while the body runs, then kill it with SIGKILL."""
    begun, writing = os.pipe()

    def report_and_work() -> None:
        os.write(writing, b"x")
        work()

    pid = child(report_and_work)
    os.close(writing)
    try:
        # On a busy machine, the child may begin only after the end of the body.
        os.read(begun, 1)
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(begun)


def moments(kills: int, longest_s: float, has_hit: Callable[[], object]) -> Iterator[float]:
    """Yield a waiting time for each of KILLS kills, and then further times until HAS_HIT returns true.

    On a busy machine the work is slower, and on a file system in memory it is a hundred times faster.
    Therefore the scale of the time is drawn first, each scale with the same probability.
    """
    deadline = time.monotonic() + PATIENCE_S
    number = 0
    while not has_hit() or (number < kills and time.monotonic() < deadline):
        assert time.monotonic() < deadline, "no child was killed at work"
        scale = random.randint(-SCALES, min(number // kills, SCALES))
        yield random.uniform(0, longest_s * 2.0**scale)
        number += 1
