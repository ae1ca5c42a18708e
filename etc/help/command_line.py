"""Generate the lists of docs/reference/command-line.md from the parsers: groups, and options of commands.

Only the groups have the texts of their options: 'cdigen help COMMAND' and the man pages have all texts.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections import Counter

from commands import Command, actions, commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action
    from collections.abc import Iterator

PAGE = "docs/reference/command-line.md"
WIDTH = 120
_EVERY = (["--help"], ["--json"], ["--verbose"], ["--quiet"])
_POSITIONALS, _OPTIONS = "positional arguments", "options"


def page(text: str) -> str:
    """Return TEXT, the content of PAGE, with new lists."""
    known = commands()
    shared = _shared_groups(known)
    lists = {
        "every": "\n".join(map(_option, _of_every_command(known))) + "\n",
        "groups": _groups(shared),
        "options": "\n".join(_section(command, shared) for command in known),
    }
    return re.sub(
        r"<!-- list: ([a-z]+) -->\n.*?<!-- end -->",
        lambda found: f"<!-- list: {found[1]} -->\n{lists[found[1]]}<!-- end -->",
        text,
        flags=re.DOTALL,
    )


def _named(command: Command) -> Iterator[tuple[str, tuple[Action, ...]]]:
    """Yield the title and the options of each argument group of COMMAND."""
    for group in command.parser._action_groups:  # noqa: SLF001 - as in commands.actions
        if group._group_actions:  # noqa: SLF001 - likewise
            yield group.title or "", tuple(group._group_actions)  # noqa: SLF001 - likewise


def _names(options: tuple[Action, ...]) -> tuple[str, ...]:
    return tuple(option.option_strings[-1] for option in options if option.option_strings)


def _shared_groups(known: tuple[Command, ...]) -> dict[str, tuple[Action, ...]]:
    """Return title and options of each group that several commands have with the same options."""
    found = [
        (title, _names(options))
        for command in known
        for title, options in _named(command)
        if title not in {_POSITIONALS, _OPTIONS}
    ]
    several = {each for each, number in Counter(found).items() if number > 1}
    return {
        title: options
        for command in known
        for title, options in _named(command)
        if (title, _names(options)) in several
    }


def _of_every_command(known: tuple[Command, ...]) -> tuple[Action, ...]:
    """Return the options that every command has."""
    return tuple(each for each in actions(known[0].parser) if each.option_strings[-1:] in _EVERY)


def _groups(shared: dict[str, tuple[Action, ...]]) -> str:
    return "\n".join(
        f"Options of the group **{title}**:\n\n" + "".join(f"{_option(option)}\n" for option in options)
        for title, options in sorted(shared.items())
    )


def _own(command: Command, shared: dict[str, tuple[Action, ...]]) -> tuple[Action, ...]:
    """Return the arguments and options of COMMAND that neither SHARED nor every command has."""
    return tuple(
        each
        for title, options in _named(command)
        if title not in shared or _names(options) != _names(shared[title])
        for each in options
        if each.option_strings[-1:] not in _EVERY
    )


def _section(command: Command, shared: dict[str, tuple[Action, ...]]) -> str:
    """Return the section of COMMAND: its summary, its groups, and the names of its own options."""
    groups = [f"**{title}**" for title, options in _named(command)
              if title in shared and _names(options) == _names(shared[title])]  # fmt: skip
    own = [f"`{_name(each)}`" for each in _own(command, shared)]
    sentences = [f"{command.summary[0].upper()}{command.summary[1:]}."]
    sentences += [f"Groups: {', '.join(sorted(groups))}."] if groups else []
    sentences += [f"Options: {', '.join(own)}."] if own else []
    return f"### cdigen {command.name}\n\n{_wrapped(' '.join(sentences))}\n"


def _option(option: Action) -> str:
    """Return OPTION with its text, as an item of a list."""
    text = argparse.HelpFormatter("cdigen")._expand_help(option)  # noqa: SLF001 - as in commands.actions
    return _wrapped(f"- `{_name(option)}`: {text}", "  ")


def _name(option: Action) -> str:
    """Return the name of OPTION with its value, or the name of a positional argument."""
    value = option.metavar or ("|".join(map(str, option.choices)) if option.choices else "")
    if not option.option_strings:
        return f"{value}..." if option.nargs in {"+", "*"} else str(value)
    value = f" {value}" if option.nargs != 0 else ""
    value = f" [{value.strip()}...]" if option.nargs == "*" else value
    return ", ".join(f"{each}{value}" for each in option.option_strings)


def _wrapped(text: str, indent: str = "") -> str:
    # Code in backticks stays in one line.
    together = re.sub(r"`[^`]+`", lambda found: found[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(
        together, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace("\0", " ")
