"""Elapsed times as text: ``ago`` and ``duration``."""

from __future__ import annotations

import time

_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def ago(stamp: object, now_s: float) -> str:
    """Return the time from STAMP (ISO 8601, UTC) to NOW_S, in the largest unit that fits."""
    at_s = seconds(stamp)
    return "an unknown time" if at_s is None else duration(now_s - at_s)


def duration(passed_s: float) -> str:
    """Return PASSED_S in the largest unit that fits (``3 hours``)."""
    # PASSED_S is negative if the clock was set back.
    passed = max(0, int(passed_s))
    size, name = next(((size, name) for size, name in _UNITS if passed >= size), _UNITS[-1])
    count = passed // size
    return f"{count} {name}" + ("" if count == 1 else "s")


def seconds(stamp: object) -> float | None:
    """Return the time STAMP (ISO 8601, UTC) in whole seconds since 1970; None if STAMP is invalid."""
    from calendar import timegm  # noqa: PLC0415 - --json output does not need it

    try:
        return timegm(time.strptime(str(stamp)[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
