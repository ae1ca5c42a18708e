"""Waits for an event (`until`), never for a fixed time. Therefore only a failing test waits long.

A test must not depend on the speed of the machine (tests/test_wall_clock.py checks it). If a test asserts
that something happens within a time, it has the marker `wall_clock`. If it asserts that something does not
happen, it waits for an event that comes later. `pause` separates two actions of a test.
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

# Longer than any step takes on a busy machine.
PATIENCE_S = 60.0
# For a step of a real runtime, package manager or Kubernetes while other hosts run on the machine.
HOST_PATIENCE_S = 240.0
# Deadlines for a child in which one part hangs. On an idle machine the first deadline suffices.
DEADLINES_S = (1.0, 4.0, 16.0, PATIENCE_S)


def until(truth: Callable[[], object], within_s: float = PATIENCE_S) -> bool:
    """Return whether TRUTH becomes true within WITHIN_S.

    A LookupError of TRUTH means that TRUTH is not true yet. After WITHIN_S the LookupError is raised.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with suppress(LookupError):
            if truth():
                return True
        time.sleep(0.005)
    return bool(truth())


def limited(within_s: float) -> pytest.MarkDecorator:
    """Return a mark that sets `within_s`: to PATIENCE_S in `make test`, to WITHIN_S in `make timings`."""
    limit = pytest.param(within_s, marks=pytest.mark.wall_clock)
    return pytest.mark.parametrize("within_s", [PATIENCE_S, limit])


def by_deadline(act: Callable[[float], T], is_done: Callable[[T], object]) -> T:
    """Return the result of ACT with the first of DEADLINES_S for which IS_DONE holds, or with the last.

    If a part of ACT hangs, ACT ends at each deadline. On a busy machine, other parts need a later deadline.
    """
    for deadline_s in DEADLINES_S:
        result = act(deadline_s)
        if is_done(result):
            break
    return result


def pause(for_s: float) -> None:
    """Wait for FOR_S between two actions of a test, or before a double responds.

    A longer pause must not change the result of a test.
    """
    time.sleep(for_s)
