"""Parse a command's options: errors in one line, help as wide as the terminal, examples at its end."""

from __future__ import annotations

import argparse
import re

from cdigen.cli.terminal import help_width, wrap_text
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

# What an example is for stands on a line of its own behind this where it does not fit beside the command.
_PURPOSE = " " * 8
_FURTHER = " " * 4


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal; argparse's own way to ask imports shutil, 4 ms, at every start."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=help_width())


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ConfigErrors and whose help ends in examples."""

    def __init__(self, *, prog: str, summary: str, examples: str) -> None:
        super().__init__(
            prog=prog,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
        )
        self.examples = examples

    def format_help(self) -> str:
        """Return the help, each part as wide as the terminal."""
        columns = help_width()
        self.description = "\n".join(wrap_text(self.description or "", columns))
        self.epilog = "examples:\n" + format_examples(parse_examples(self.examples), columns)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise what argparse has to say as a ConfigError."""
        raise ConfigError(message, hint=f"see '{self.prog} --help'")


def unknown_command(name: str, known: tuple[str, ...]) -> ConfigError:
    """Return the error for a command that does not exist."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is wrong

    close = get_close_matches(name, known, n=1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return ConfigError(f"unknown command {shown(name)!r}", hint=f"{meant}see 'cdigen --help'")


def parse_examples(examples: str) -> tuple[tuple[str, str], ...]:
    """Return the command lines of EXAMPLES, each with what it is for: beside it, or on the next line."""
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
    """Return EXAMPLES beside what they are for where all fit into COLUMNS, else with that below. Pure."""
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
    """Return COMMAND in lines that a shell takes together, each option with its value."""
    together = re.sub(r"( --[a-z-]+) (?!-)", "\\1\0", command)
    *first, last = (line.replace("\0", " ") for line in wrap_text(together, columns - 2, indent=_FURTHER))
    return [*(f"{line} \\" for line in first), last]
