"""Times for people: ``ago`` and ``duration``."""

from __future__ import annotations

import time

_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def ago(stamp: object, now_s: float) -> str:
    """Return how long before NOW_S the time STAMP was (ISO 8601, UTC), in the largest unit that fits."""
    at_s = seconds(stamp)
    return "an unknown time" if at_s is None else duration(now_s - at_s)


def duration(passed_s: float) -> str:
    """Return how long PASSED_S is, in the largest unit that fits (``3 hours``)."""
    # A clock that was set back since: then it was just now.
    passed = max(0, int(passed_s))
    size, name = next(((size, name) for size, name in _UNITS if passed >= size), _UNITS[-1])
    count = passed // size
    return f"{count} {name}" + ("" if count == 1 else "s")


def seconds(stamp: object) -> float | None:
    """Return the time STAMP (ISO 8601, UTC) in whole seconds since 1970; None where it is none."""
    from calendar import timegm  # noqa: PLC0415 - not for --json

    try:
        return timegm(time.strptime(str(stamp)[:19], "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
