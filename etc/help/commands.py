"""The commands with their parsers, as in the entry point."""

from __future__ import annotations

from cdigen.cli.main import COMMANDS, command_parser
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action, ArgumentParser


@frozen
class Command:
    """A command; ``examples`` is the end of its help text."""

    name: str
    summary: str
    examples: str
    parser: ArgumentParser


def commands() -> tuple[Command, ...]:
    """Return all commands; each call returns new parsers, which the caller may change."""
    return tuple(_command(name, summary) for name, (_, summary) in sorted(COMMANDS.items()))


def actions(parser: ArgumentParser) -> tuple[Action, ...]:
    """Return the options and arguments of PARSER."""
    # The generators read the same attribute, because argparse has no public attribute for the options.
    return tuple(parser._actions)  # noqa: SLF001


def _command(name: str, summary: str) -> Command:
    parser = command_parser(name)
    return Command(name=name, summary=summary, examples=parser.examples, parser=parser)
