"""Parse the options of a command, report errors in one line, and print examples at the end of the help."""

from __future__ import annotations

import argparse
import re

from cdigen.cli.shared.terminal import help_width, wrap_text
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

# The indentation of the purpose of an example if the purpose is on a separate line.
_PURPOSE = " " * 8
# The indentation of the second and later lines of a command.
_FURTHER = " " * 4


class Parser(argparse.ArgumentParser):
    """An argument parser that raises ConfigErrors and prints examples at the end of the help."""

    def __init__(self, *, prog: str, summary: str, examples: str) -> None:
        super().__init__(
            prog=prog,
            description=f"{summary[0].upper()}{summary[1:]}.",
            # If no width is set, argparse imports shutil at every start. This import takes 4 ms.
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=help_width()),
            allow_abbrev=False,
        )
        self.examples = examples

    def format_help(self) -> str:
        """Return the help, with all parts wrapped to the width of the terminal."""
        columns = help_width()
        self.description = "\n".join(wrap_text(self.description or "", columns))
        self.epilog = "examples:\n" + format_examples(parse_examples(self.examples), columns)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise the error of argparse as a ConfigError."""
        raise ConfigError(message, hint=f"see '{self.prog} --help'")


def unknown_command(name: str, known: tuple[str, ...]) -> ConfigError:
    """Return the error for the unknown command NAME, with the closest name of KNOWN as a suggestion."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for errors

    close = get_close_matches(name, known, n=1)
    suggestion = f"did you mean {close[0]!r}? " if close else ""
    return ConfigError(f"unknown command {shown(name)!r}", hint=f"{suggestion}see 'cdigen --help'")


def parse_examples(examples: str) -> tuple[tuple[str, str], ...]:
    """Return the command lines of EXAMPLES, each with its purpose.

    The purpose is in the same line as the command or in the next line.
    """
    found: list[tuple[str, str]] = []
    for line in examples.splitlines():
        if line.startswith(_PURPOSE) and found:
            command, purpose = found[-1]
            found[-1] = (command, f"{purpose} {line.strip()}".strip())
        elif line.strip():
            command, _, purpose = line.strip().partition("  ")
            found.append((command, purpose.strip()))
    return tuple(found)


def format_examples(examples: Iterable[tuple[str, str]], columns: int) -> str:
    """Return EXAMPLES as text with lines of at most COLUMNS characters.

    Each purpose is next to its command if all lines fit. Otherwise each purpose is below its command.
    """
    rows = [(f"  {command}", purpose) for command, purpose in examples]
    side = max((len(command) for command, _ in rows), default=0) + 2
    if all(side + len(purpose) <= columns for _, purpose in rows):
        return "".join(f"{command:{side}}{purpose}".rstrip() + "\n" for command, purpose in rows)
    lines: list[str] = []
    for command, purpose in rows:
        lines += [command] if len(command) <= columns else _broken(command, columns)
        lines += wrap_text(f"{_PURPOSE}{purpose}", columns, indent=_PURPOSE) if purpose else ()
    return "".join(f"{line}\n" for line in lines)


def _broken(command: str, columns: int) -> list[str]:
    """Return COMMAND as lines that continue with a backslash; an option and its value stay in one line."""
    together = re.sub(r"( --[a-z-]+) (?!-)", "\\1\0", command)
    *first, last = (line.replace("\0", " ") for line in wrap_text(together, columns - 2, indent=_FURTHER))
    return [*(f"{line} \\" for line in first), last]
