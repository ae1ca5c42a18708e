"""Man pages: argparse-manpage makes them of the parsers, and sections/ has what no parser knows.

``sections/NAME.roff`` holds sections of the page of a command, each below its name in brackets; what
stands in ``sections/every-command.roff`` is on every page that has not its own.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from argparse_manpage.manpage import Manpage
from commands import Command, actions, commands

from cdigen import __version__
from cdigen.cli import kubectl_gpushare
from cdigen.cli.main import COMMANDS
from cdigen.cli.parser import Parser, parse_examples

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser

SECTIONS = Path(__file__).with_name("sections")
# In the order of man-pages(7); NAME, SYNOPSIS and DESCRIPTION come before the options.
HEADINGS = (
    "COMMANDS", "OPTIONS", "SIGNALS", "EXIT STATUS", "ENVIRONMENT", "FILES", "NOTES", "EXAMPLES", "SEE ALSO",
)  # fmt: skip
COMMENT = (
    r""".\" Made by 'make generated' of the commands' own parsers and etc/help/sections: not to be edited."""
)
_OWN_HEADINGS = {"NAME", "SYNOPSIS", "DESCRIPTION", "ARGUMENTS", *HEADINGS}


def pages() -> dict[str, str]:
    """Return the text of each page by its file's name."""
    made = {f"cdigen-{command.name}.8": _page_of(command) for command in commands()}
    return {"cdigen.8": _overview(), **made, f"{kubectl_gpushare.NAME}.8": _page_of_plugin()}


def _page_of(command: Command) -> str:
    parser = command.parser
    parser.prog = f"cdigen-{command.name}"
    own = {**_read("every-command"), **_read(command.name)}
    sections = {
        "DESCRIPTION": f"{_escaped(_sentence(command.summary))}\n{own.pop('DESCRIPTION', '')}".strip(),
        "EXAMPLES": _examples_section(command.examples),
        **own,
    }
    synopsis = f".B cdigen {_escaped(command.name)}\n{_arguments(parser)}"
    return _page(parser, command.summary, {"SYNOPSIS": synopsis, **sections})


def _page_of_plugin() -> str:
    """Return the page of kubectl's plugin, which is a program of its own."""
    name, summary = kubectl_gpushare.NAME, kubectl_gpushare.SUMMARY
    parser = Parser(prog=name, summary=summary, examples=kubectl_gpushare.EXAMPLES)
    kubectl_gpushare.add_options(parser)
    own = {**_read("every-command"), **_read(name)}
    sections = {
        "DESCRIPTION": f"{_escaped(_sentence(summary))}\n{own.pop('DESCRIPTION')}",
        "EXAMPLES": _examples_section(kubectl_gpushare.EXAMPLES),
        **own,
    }
    synopsis = f".B kubectl inspect gpushare\n{_arguments(parser)}"
    return _page(parser, summary, {"SYNOPSIS": synopsis, **sections})


def _overview() -> str:
    rows = (
        f".TP\n.BR cdigen\\-{_escaped(name)} (8)\n{_escaped(_sentence(summary))}"
        for name, (_, summary) in COMMANDS.items()
    )
    parser = argparse.ArgumentParser(prog="cdigen", add_help=False)
    synopsis = ".B cdigen\n.I COMMAND\n.RI [ OPTION ...]"
    others = ",\n".join(f".BR cdigen\\-{_escaped(name)} (8)" for name in COMMANDS)
    sections = {**_read("every-command"), **_read("cdigen"), "COMMANDS": "\n".join(rows)}
    sections["SEE ALSO"] = f"{others},\n{sections['SEE ALSO']}"
    return _page(parser, "make a host's GPUs available to containers", {"SYNOPSIS": synopsis, **sections})


def _page(parser: ArgumentParser, summary: str, sections: dict[str, str]) -> str:
    """Return the page of PARSER with SECTIONS in their order, its groups as parts of the options."""
    parser.epilog = parser.description = None
    # Lines are filled by what shows the page; as wide as this, no word of a help comes first in a line.
    parser.formatter_class = _Wide
    groups = {}
    for group in parser._action_groups:  # noqa: SLF001 - as in commands.actions
        if group.title == "positional arguments":
            group.title = "arguments"
        groups[(group.title or "").upper()] = (group.title or "").capitalize()
    page = Manpage(parser)
    page.date, page.source, page.manual, page.section = (
        "",
        f"cdigen {__version__}",
        "System administration",
        8,
    )
    page.description = summary
    for heading in ("SYNOPSIS", "DESCRIPTION", *HEADINGS):
        if heading in sections:
            page.add_section(heading, "=", sections[heading])
    return f"{COMMENT}\n{_straightened(str(page), groups)}"


class _Wide(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100_000)


def _straightened(text: str, groups: dict[str, str]) -> str:
    """Return the page TEXT with GROUPS as parts of the options, and with apostrophes that can be copied."""
    lines = []
    for line in text.splitlines():
        heading = line.removeprefix(".SH ")
        if heading != line and heading not in _OWN_HEADINGS:
            lines.append(f".SS {groups[heading]}")
        elif line:
            lines.append(line if line.startswith(".") else line.replace("'", r"\(aq"))
    return "\n".join(lines) + "\n"


def _read(name: str) -> dict[str, str]:
    file = SECTIONS / f"{name}.roff"
    if not file.exists():
        return {}
    parts = re.split(r"^\[([A-Z ]+)\]\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {heading: text.strip("\n") for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def _examples_section(text: str) -> str:
    rows = (
        f".PP\n{_escaped(_heading(purpose))}\n.PP\n.RS 4\n.EX\n{_escaped(command)}\n.EE\n.RE"
        for command, purpose in parse_examples(text)
    )
    return "\n".join(rows).removeprefix(".PP\n")


def _heading(purpose: str) -> str:
    return purpose[:1].upper() + purpose[1:] + ("" if purpose.endswith("?") else ":")


def _arguments(parser: ArgumentParser) -> str:
    words = [".RI [ OPTION ...]"]
    for action in actions(parser):
        if not action.option_strings:
            more = " ..." if action.nargs == "+" else ""
            words.append(f".RI [ {action.metavar} ]" if action.nargs == "?" else f".I {action.metavar}{more}")
    return "\n".join(words)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _escaped(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
