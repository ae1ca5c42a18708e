"""The clock for times of health: ``boottime``."""

from __future__ import annotations

import time


def boottime() -> float:
    """Return the seconds since the boot, including suspensions; no process can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
