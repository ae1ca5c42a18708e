"""Waiting for what has to happen, never for a fixed time: only a failing test waits long."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Longer than anything takes on a busy machine.
PATIENCE_S = 60.0
# The same for a real runtime, package manager or Kubernetes while other hosts run beside it.
HOST_PATIENCE_S = 240.0


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
