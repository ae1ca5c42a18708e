"""Wall-clock times as text: ``timestamp``."""

from __future__ import annotations

import time


def timestamp(seconds: float) -> str:
    """Return the time SECONDS (since 1970) as ISO 8601 in UTC, with milliseconds."""
    milliseconds = round(seconds * 1000)
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    return f"{whole}.{milliseconds % 1000:03}Z"
