"""Fit text into the terminal: its width, tables and paragraphs that are wrapped, nothing cut.

What is not printed on a terminal is for programs, and is as wide as it is.
"""

from __future__ import annotations

import os
import sys
from itertools import zip_longest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_USUAL = 80
_GAP = "  "
_INDENT = "    "


def width() -> int | None:
    """Return how many columns standard output has, as COLUMNS or the terminal says; None without one."""
    if not sys.stdout.isatty():
        return None
    return _given() or _of_terminal()


def help_width() -> int:
    """Return how wide a help is: as the terminal, within what is read with ease."""
    columns = _given() or (_of_terminal() if sys.stdout.isatty() else _USUAL)
    return min(max(columns, 40), 100)


def _given() -> int:
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _of_terminal() -> int:
    # shutil's way to ask takes 4 ms to import; a serial line says 0.
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL
    except OSError:
        return _USUAL


def wrap_text(text: str, columns: int | None, *, indent: str = "") -> list[str]:
    """Return TEXT in lines of COLUMNS at most, those after the first behind INDENT; no word is broken."""
    if columns is None:
        return [text]
    from textwrap import wrap  # noqa: PLC0415 - only on a terminal

    return wrap(
        text,
        max(columns, len(indent) + 20),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def fit_width(text: str) -> str:
    """Return TEXT with every line of it as wide as the terminal at the most."""
    columns = width()
    if columns is None:
        return text
    lines = (line for long in text.splitlines() for line in wrap_text(long, columns, indent=_GAP))
    return "".join(f"{line}\n" for line in lines)


def wrap_table(
    rows: Sequence[Sequence[str]], columns: int | None, *, above: int | None = None
) -> list[tuple[str, ...]]:
    """Return each of ROWS, whose first is the header, as lines, in columns that fit into COLUMNS. Pure.

    Where the natural widths do not fit, cells are wrapped between words. Where that does not do, the column
    ABOVE stands over the rows that share it, or the last ones follow each row on a line of their own.
    """
    natural = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    if columns is None or _total(natural) <= columns:
        return [(_joined(row, natural),) for row in rows]
    if above is not None and _total(list(map(_longest_word, zip(*rows, strict=True)))) > columns:
        return _under_headings(rows, columns, above)
    return _narrowed(rows, natural, columns)


def _narrowed(rows: Sequence[Sequence[str]], natural: list[int], columns: int) -> list[tuple[str, ...]]:
    least = list(map(_longest_word, zip(*rows, strict=True)))
    kept, widths = len(natural), list(natural)
    if _total(least) > columns:
        while kept > 1 and _total(natural[:kept]) > columns:
            kept -= 1
        widths = natural[:kept]
    while _total(widths) > columns and widths != least[:kept]:
        place = max(range(kept), key=lambda place: (widths[place] > least[place], widths[place]))
        widths[place] -= 1
    return [(*_in_cells(row[:kept], widths), *_after(row[kept:], columns)) for row in rows]


def _under_headings(rows: Sequence[Sequence[str]], columns: int, above: int) -> list[tuple[str, ...]]:
    """Return ROWS without the column ABOVE, whose cells are lines of their own wherever they change."""
    others = [tuple(cell for place, cell in enumerate(row) if place != above) for row in rows]
    laid = wrap_table(others, columns - len(_GAP))
    found: list[tuple[str, ...]] = []
    for number, (row, lines) in enumerate(zip(rows, laid, strict=True)):
        is_new = number == 0 or row[above] != rows[number - 1][above]
        found.append((*([row[above]] if is_new else []), *(f"{_GAP}{line}" for line in lines)))
    return found


def _in_cells(row: Sequence[str], widths: list[int]) -> list[str]:
    from textwrap import wrap  # noqa: PLC0415 - only where a table is too wide

    cells = [
        wrap(cell, max(size, 1), break_long_words=False, break_on_hyphens=False)
        for cell, size in zip(row, widths, strict=True)
    ]
    return [_joined(line, widths) for line in zip_longest(*cells, fillvalue="")] or [""]


def _after(cells: Sequence[str], columns: int) -> list[str]:
    text = _GAP.join(filter(None, cells))
    return wrap_text(f"{_INDENT}{text}", columns, indent=_INDENT) if text else []


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()


def _longest_word(column: Sequence[str]) -> int:
    return max((len(word) for cell in column for word in cell.split()), default=0)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)
