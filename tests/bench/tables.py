"""Common parts of the benchmarks: options, rows of times, and tables."""

from __future__ import annotations

import argparse
import json
import statistics


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a benchmark with ``--json``; the program adds its own options."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def times_row(what: str, times: list[float], **more: object) -> dict[str, object]:
    """Return the row of WHAT: statistics of TIMES (in seconds), and the additional columns MORE."""
    return {
        "what": what,
        "median_ms": round(statistics.median(times) * 1000, 1),
        "min_ms": round(min(times) * 1000, 1),
        "max_ms": round(max(times) * 1000, 1),
        **more,
    }


def percentile(times: list[float], percent: int) -> float:
    """Return the percentile PERCENT of TIMES (in seconds) in ms."""
    return sorted(times)[len(times) * percent // 100] * 1000


def report(tables: dict[str, list[dict[str, object]]], *, as_json: bool) -> None:
    """Print TABLES (title -> rows), as JSON if AS_JSON is set."""
    if as_json:
        print(json.dumps(tables, indent=2))
        return
    for title, rows in tables.items():
        print_table(title, rows)


def print_table(title: str, rows: list[dict[str, object]]) -> None:
    """Print a table whose columns are the keys of the ROWS."""
    names = [name for name in rows[0] if name != "what"]
    width = max(len(title), *(len(str(row["what"])) for row in rows))
    print(f"{title:{width}}" + "".join(f"  {name.replace('_', ' '):>10}" for name in names))
    for row in rows:
        cells = "".join(f"  {row[name]!s:>{max(10, len(name))}}" for name in names)
        print(f"{row['what']!s:{width}}{cells}")
    print()
