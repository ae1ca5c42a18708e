"""The clock by which health counts: ``boottime``."""

from __future__ import annotations

import time


def boottime() -> float:
    """Return the seconds since the boot, those of suspensions included; nobody sets this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
