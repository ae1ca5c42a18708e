"""What the measurements have in common: rows of times, and tables of them."""

from __future__ import annotations

import statistics


def times_row(what: str, times: list[float], **more: object) -> dict[str, object]:
    """Return the row of WHAT that took TIMES, in seconds, with MORE columns."""
    return {
        "what": what,
        "median_ms": round(statistics.median(times) * 1000, 1),
        "min_ms": round(min(times) * 1000, 1),
        "max_ms": round(max(times) * 1000, 1),
        **more,
    }


def print_table(title: str, rows: list[dict[str, object]]) -> None:
    """Print a table whose columns are the keys of the ROWS."""
    names = [name for name in rows[0] if name != "what"]
    width = max(len(title), *(len(str(row["what"])) for row in rows))
    print(f"{title:{width}}" + "".join(f"  {name.replace('_', ' '):>10}" for name in names))
    for row in rows:
        cells = "".join(f"  {row[name]!s:>{max(10, len(name))}}" for name in names)
        print(f"{row['what']!s:{width}}{cells}")
    print()
