"""Print results and findings: tables, JSON, colour on a terminal, one line for each finding."""

from __future__ import annotations

import os
import sys

from cdigen.cli import terminal
from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Sequence
    from typing import Any, TextIO

    from cdigen.model.errors import CdigenError
    from cdigen.model.findings import Finding

# What JSON leaves as it is, and a terminal obeys: C1 controls, and what turns the direction of text.
_OBEYED = (*range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: f"\\u{code:04x}" for code in _OBEYED}
_COLOURS = {"error": "31", "warning": "33", "info": "36"}


def print_findings(findings: Iterable[Finding], arguments: Namespace) -> None:
    """Print findings on stderr: errors always, warnings unless --quiet, information with --verbose."""
    wanted = {"error"}
    if not arguments.quiet:
        wanted.add("warning")
    if arguments.verbose:
        wanted.add("info")
    seen: set[str] = set()
    for finding in findings:
        line = shown(finding.line())
        if finding.severity in wanted and line not in seen:
            seen.add(line)
            _tell(paint(line, _COLOURS[finding.severity], sys.stderr))


def print_note(text: str, arguments: Namespace) -> None:
    """Print a line about what was done on stderr, unless --quiet."""
    if not arguments.quiet:
        _tell(text)


def print_errors(errors: Iterable[CdigenError]) -> int:
    """Print ERRORS on stderr, one line each; returns the exit code of the first, 0 where there is none."""
    codes: dict[str, int] = {}
    for error in errors:
        line = shown(f"{error.message}; {error.hint}" if error.hint else error.message)
        if line not in codes:
            codes[line] = error.exit_code
            _tell(line)
    return next(iter(codes.values()), 0)


def print_json(value: Any) -> None:
    """Print VALUE as JSON on stdout, in UTF-8 whatever the locale; file names need not be UTF-8."""
    from cdigen.cdi.render import render  # noqa: PLC0415 - only where it is asked for

    print_bytes(render(value, stray_bytes=True).decode().translate(_ESCAPES).encode())


def print_bytes(content: bytes) -> None:
    """Print CONTENT on stdout as it is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def table(rows: Sequence[Sequence[str]], *, header: Sequence[str], above: str = "") -> str:
    """Return ROWS as text in columns, the header first, control characters escaped.

    On a terminal that is too narrow for that, cells are wrapped, and the column ABOVE, a word of the header,
    stands over the rows that share it.
    """
    every = [tuple(header), *(tuple(map(shown, row)) for row in rows)]
    place = header.index(above) if above else None
    head, *others = terminal.wrap_table(every, terminal.width(), above=place)
    lines = [*(paint(line, "1", sys.stdout) for line in head), *(line for row in others for line in row)]
    return "\n".join(lines) + "\n"


def paint(text: str, colour: str, stream: TextIO) -> str:
    """Return TEXT in COLOUR (an SGR number) where STREAM is a terminal and NO_COLOR is not set."""
    if stream.isatty() and not os.environ.get("NO_COLOR"):
        return f"\033[{colour}m{text}\033[0m"
    return text


def _tell(line: str) -> None:
    """Print LINE on stderr; where that takes nothing, nobody can be told, and the work goes on."""
    from contextlib import suppress  # noqa: PLC0415 - most commands have nothing to tell

    with suppress(OSError):
        write(sys.stderr, f"cdigen: {line}\n")


def write(stream: TextIO, text: str) -> None:
    """Write TEXT whatever the locale: what it cannot encode is escaped."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
