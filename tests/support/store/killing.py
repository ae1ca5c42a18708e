"""Children that work and are killed: when they have begun, and until a kill has hit."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Longer than anything takes on a busy machine; only a failing test waits so long.
PATIENCE_S = 120.0
# Times are drawn up to 1/64 of what a test gives, and later up to 64 times of it.
SCALES = 6


def child(work: Callable[[], None]) -> int:
    """Let a child WORK; returns its number. Its exit code is 0 where that raised nothing."""
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
    """Let a child WORK while the body runs, then kill it as hard as the kernel can."""
    begun, tell = os.pipe()

    def tell_and_work() -> None:
        os.write(tell, b"x")
        work()

    pid = child(tell_and_work)
    os.close(tell)
    try:
        # A busy machine lets it begin when the body would have ended.
        os.read(begun, 1)
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(begun)


def moments(kills: int, longest_s: float, has_hit: Callable[[], object]) -> Iterator[float]:
    """Give for each of KILLS a time to work until it; then more of them, until one HAS_HIT.

    A busy machine does less in the same time, and a file system in memory makes the work a hundred times
    shorter. So the time is drawn at a scale that is drawn first: each scale has the same chance.
    """
    deadline = time.monotonic() + PATIENCE_S
    number = 0
    while not has_hit() or (number < kills and time.monotonic() < deadline):
        assert time.monotonic() < deadline, "nobody was killed at work"
        scale = random.randint(-SCALES, min(number // kills, SCALES))
        yield random.uniform(0, longest_s * 2.0**scale)
        number += 1
