"""How tests wait: `until` an event, never for a fixed time, so that only a failing test waits long.

A test must not depend on the speed of the machine (tests/test_wall_clock.py checks it). If a test asserts
that something happens within a time, it has the marker `wall_clock`. If it asserts that something does not
happen, it waits for an event that comes later. `pause` paces what a test does.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

# Longer than anything takes on a busy machine.
PATIENCE_S = 60.0
# The same for a real runtime, package manager or Kubernetes while other hosts run beside it.
HOST_PATIENCE_S = 240.0
# Deadlines of a child of which a part hangs: the first is enough on an idle machine.
DEADLINES_S = (1.0, 4.0, 16.0, PATIENCE_S)


def until(truth: Callable[[], object], within_s: float = PATIENCE_S) -> bool:
    """Return whether TRUTH holds, or does soon.

    An entry that is not there yet is waited for as well; one that never comes ends in its own LookupError.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with suppress(LookupError):
            if truth():
                return True
        time.sleep(0.005)
    return bool(truth())


def limited(within_s: float) -> pytest.MarkDecorator:
    """Run a test by its parameter `within_s`: with PATIENCE_S, and in `make timings` with WITHIN_S."""
    limit = pytest.param(within_s, marks=pytest.mark.wall_clock)
    return pytest.mark.parametrize("within_s", [PATIENCE_S, limit])


def by_deadline(act: Callable[[float], T], is_done: Callable[[T], object]) -> T:
    """Return the result of ACT with the first of DEADLINES_S for which IS_DONE holds, or with the last.

    If a part of what ACT does hangs, each deadline passes; a busy machine needs a later one for the rest.
    """
    for deadline_s in DEADLINES_S:
        result = act(deadline_s)
        if is_done(result):
            break
    return result


def pause(for_s: float) -> None:
    """Wait for FOR_S, between two steps of a stimulus or before a double answers.

    A longer pause must not change what a test finds.
    """
    time.sleep(for_s)
