"""What the measurements have in common: their options, rows of times, and tables of them."""

from __future__ import annotations

import argparse
import json
import statistics


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the options of a measurement: ``--json``, and those that the program adds."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def times_row(what: str, times: list[float], **more: object) -> dict[str, object]:
    """Return the row of WHAT that took TIMES, in seconds, with MORE columns."""
    return {
        "what": what,
        "median_ms": round(statistics.median(times) * 1000, 1),
        "min_ms": round(min(times) * 1000, 1),
        "max_ms": round(max(times) * 1000, 1),
        **more,
    }


def percentile(times: list[float], percent: int) -> float:
    """Return the time, in ms, below which so many percent of TIMES, in seconds, are."""
    return sorted(times)[len(times) * percent // 100] * 1000


def report(tables: dict[str, list[dict[str, object]]], *, as_json: bool) -> None:
    """Print TABLES by their titles."""
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
