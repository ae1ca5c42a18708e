"""Print results and findings: tables, JSON, colours on a terminal, and one line for each finding."""

from __future__ import annotations

import os
import sys

from cdigen.cli.shared import terminal
from cdigen.host.root import shown
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Sequence
    from typing import Any, TextIO

    from cdigen.model.errors import CdigenError
    from cdigen.model.findings import Finding

# The characters that JSON does not escape but a terminal interprets: C1 controls and direction marks.
_CONTROLS = (*range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: f"\\u{code:04x}" for code in _CONTROLS}
_COLOURS = {"error": "31", "warning": "33", "info": "36"}


def print_findings(findings: Iterable[Finding], arguments: Namespace) -> None:
    """Print FINDINGS on stderr: errors, warnings (not with --quiet), and information (with --verbose)."""
    severities = {"error"}
    if not arguments.quiet:
        severities.add("warning")
    if arguments.verbose:
        severities.add("info")
    printed: set[str] = set()
    for finding in findings:
        line = shown(replace(finding, hint=_runnable(finding.hint)).line())
        if finding.severity in severities and line not in printed:
            printed.add(line)
            _print_line(paint(line, _COLOURS[finding.severity], sys.stderr))


def print_note(text: str, arguments: Namespace) -> None:
    """Print TEXT as a line on stderr. With --quiet, print nothing."""
    if not arguments.quiet:
        _print_line(text)


def print_errors(errors: Iterable[CdigenError]) -> int:
    """Print each of ERRORS on stderr in one line; return the exit code of the first error, or 0."""
    codes: dict[str, int] = {}
    for error in errors:
        line = shown(f"{error.message}; {_runnable(error.hint)}" if error.hint else error.message)
        if line not in codes:
            codes[line] = error.exit_code
            _print_line(line)
    return next(iter(codes.values()), 0)


def print_json(value: Any) -> None:
    """Print VALUE as JSON on stdout, in UTF-8 in every locale.

    VALUE can contain file names that are not valid UTF-8.
    """
    from cdigen.cdi.render import render  # noqa: PLC0415 - only for --json

    print_bytes(render(value, stray_bytes=True).decode().translate(_ESCAPES).encode())


def print_bytes(content: bytes) -> None:
    """Print CONTENT on stdout without changes."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def table(rows: Sequence[Sequence[str]], *, header: Sequence[str], above: str = "") -> str:
    """Return ROWS below HEADER as text in columns, with escaped control characters.

    On a narrow terminal, cells are wrapped. If the cells still do not fit, each value in the column with the
    header ABOVE becomes a heading above the rows with this value.
    """
    every = [tuple(header), *(tuple(map(shown, row)) for row in rows)]
    place = header.index(above) if above else None
    head, *others = terminal.wrap_table(every, terminal.width(), above=place)
    lines = [*(paint(line, "1", sys.stdout) for line in head), *(line for row in others for line in row)]
    return "\n".join(lines) + "\n"


def paint(text: str, colour: str, stream: TextIO) -> str:
    """Return TEXT in COLOUR (an SGR number) if STREAM is a terminal and no variable disables colours.

    The variables are NO_COLOR and, for a terminal without capabilities, TERM=dumb.
    """
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if stream.isatty() and not is_plain:
        return f"\033[{colour}m{text}\033[0m"
    return text


def _runnable(hint: str) -> str:
    """Return HINT; for users other than root, add sudo and the path of cdigen to a create-nodes command."""
    if os.geteuid() == 0 or not hint.startswith("cdigen create-nodes"):
        return hint
    import shlex  # noqa: PLC0415 - few hosts lack device nodes

    from cdigen.cli.shared.own_package import as_root  # noqa: PLC0415 - likewise

    return as_root(*shlex.split(hint)[1:])


def _print_line(line: str) -> None:
    """Print LINE on stderr; ignore failures, because there is no place to report them."""
    from contextlib import suppress  # noqa: PLC0415 - most commands print no line on stderr

    with suppress(OSError):
        write(sys.stderr, f"cdigen: {line}\n")


def write(stream: TextIO, text: str) -> None:
    """Write TEXT to STREAM in every locale; escape characters that the encoding of STREAM does not have."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
