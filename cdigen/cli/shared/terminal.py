"""Fit text into the width of the terminal: wrap tables and paragraphs without truncation.

Output to a file or a pipe is not wrapped, because programs read it.
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
    """Return the number of columns (from COLUMNS or the terminal), or None if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return None
    return _from_environment() or _from_terminal()


def help_width() -> int:
    """Return the width of a help text: the width of the terminal, limited to 40 to 100 columns."""
    columns = _from_environment() or (_from_terminal() if sys.stdout.isatty() else _USUAL)
    return min(max(columns, 40), 100)


def _from_environment() -> int:
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _from_terminal() -> int:
    # os.get_terminal_size needs no import; importing shutil takes 4 ms. A serial line has the size 0.
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL
    except OSError:
        return _USUAL


def wrap_text(text: str, columns: int | None, *, indent: str = "") -> list[str]:
    """Return TEXT as lines of at most COLUMNS characters, without a break in a word.

    Each line after the first starts with INDENT. If COLUMNS is None, the text is one line.
    """
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
    """Return TEXT with all lines wrapped to the width of the terminal."""
    columns = width()
    if columns is None:
        return text
    lines = (line for long in text.splitlines() for line in wrap_text(long, columns, indent=_GAP))
    return "".join(f"{line}\n" for line in lines)


def wrap_table(
    rows: Sequence[Sequence[str]], columns: int | None, *, above: int | None = None
) -> list[tuple[str, ...]]:
    """Return the lines of each row of ROWS, in columns that fit into COLUMNS. Pure.

    The first row is the header. Cells are wrapped between words if the table is too wide. If the wrapped
    cells do not fit either, each value in column number ABOVE (from 0) becomes a heading above the rows with
    this value. If ABOVE is None, the last cells of each row are on a separate line below the row.
    """
    natural = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    if columns is None or _total(natural) <= columns:
        return [(_joined(row, natural),) for row in rows]
    if above is not None and _total(list(map(_longest_word, zip(*rows, strict=True)))) > columns:
        return _under_headings(rows, columns, above)
    return _wrap_cells(rows, natural, columns)


def _wrap_cells(rows: Sequence[Sequence[str]], natural: list[int], columns: int) -> list[tuple[str, ...]]:
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
    """Return ROWS without column number ABOVE; each value in this column is a line above its rows."""
    others = [tuple(cell for place, cell in enumerate(row) if place != above) for row in rows]
    laid = wrap_table(others, columns - len(_GAP))
    found: list[tuple[str, ...]] = []
    for number, (row, lines) in enumerate(zip(rows, laid, strict=True)):
        is_new = number == 0 or row[above] != rows[number - 1][above]
        found.append((*([row[above]] if is_new else []), *(f"{_GAP}{line}" for line in lines)))
    return found


def _in_cells(row: Sequence[str], widths: list[int]) -> list[str]:
    from textwrap import wrap  # noqa: PLC0415 - only for a table that is too wide

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
