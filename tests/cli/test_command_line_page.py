"""The page docs/command-line.md lists exactly the commands and options of the parsers."""

import re
from pathlib import Path

from cdigen.cli.main import COMMANDS, command_parser, help_text

PAGE = (Path(__file__).parents[2] / "docs/command-line.md").read_text()
EVERY_COMMAND = {"-h", "--help", "--json", "-v", "--verbose", "-q", "--quiet"}


def rows_of(heading: str) -> list[list[str]]:
    """Return the cells of the rows of the table in the section HEADING."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def options_in(text: str) -> set[str]:
    return set(re.findall(r"`(--[\w-]+)", text))


def options_of(command: str) -> set[str]:
    """Return the option strings of COMMAND, except the options of every command."""
    actions = command_parser(command)._actions
    return {name for action in actions for name in action.option_strings} - EVERY_COMMAND


def test_the_page_lists_every_command() -> None:
    for heading in ("Commands", "Options of each command"):
        names = [row[0].strip("`").removeprefix("cdigen ").partition(" ")[0] for row in rows_of(heading)]
        assert names == sorted(COMMANDS)


def test_the_page_lists_every_option_of_every_command() -> None:
    groups = {group: options_in(options) for group, options in rows_of("Options of several commands")}
    found = {}
    for command, names, others in rows_of("Options of each command"):
        shared = [groups[name] for name in names.split(", ") if name]
        found[command.strip("`").partition(" ")[0]] = options_in(others).union(*shared)
    assert found == {command: options_of(command) for command in COMMANDS}


def test_the_page_lists_every_exit_code_of_the_help() -> None:
    in_help = re.findall(r"^  (\d+) ", help_text().partition("exit codes:")[2], flags=re.MULTILINE)
    assert {row[0] for row in rows_of("Exit codes")} == {*in_help, "130"}
