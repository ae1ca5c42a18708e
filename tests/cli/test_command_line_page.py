"""The page docs/reference/command-line.md lists exactly the commands and options of the parsers."""

import re

import command_line
import pytest
from support.paths import REPOSITORY

from cdigen.cli.main import COMMANDS, command_parser, help_text

PAGE = (REPOSITORY / command_line.PAGE).read_text()


def part_of(start: str, end: str) -> str:
    return PAGE.partition(f"\n{start}\n")[2].partition(f"\n{end}")[0]


def options_in(text: str) -> set[str]:
    """Return the options that TEXT names in code, alone or with their values."""
    items = re.findall(r"`(-[^`]+)`", text)
    return {option for item in items for option in re.findall(r"(?:^|, )(--?[\w-]+)", item)}


def groups() -> dict[str, set[str]]:
    section = part_of("## Groups of options", "## Options of each command")
    parts = re.split(r"^Options of the group \*\*([a-z]+)\*\*:$", section, flags=re.MULTILINE)
    return {
        name: options_in(text.partition("<!-- end -->")[0])
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_the_page_is_as_the_parsers_generate_it() -> None:
    assert command_line.page(PAGE) == PAGE


def test_the_page_lists_every_command() -> None:
    section = part_of("## Options of each command", "## ")
    assert re.findall(r"^### cdigen ([a-z-]+)$", section, flags=re.MULTILINE) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_lists_every_option_of_a_command(command: str) -> None:
    section = part_of(f"### cdigen {command}", "##")
    shared = set().union(*(groups()[name] for name in re.findall(r"\*\*([a-z]+)\*\*", section)))
    of_every = options_in(part_of("## Options of every command", "## "))
    actions = command_parser(command)._actions
    known = {name for action in actions for name in action.option_strings}
    assert options_in(section) | shared | of_every == known


def test_the_page_lists_every_exit_code_of_the_help() -> None:
    in_help = re.findall(r"^  (\d+) ", help_text().partition("exit codes:")[2], flags=re.MULTILINE)
    table = part_of("## Exit codes", "## ")
    assert set(re.findall(r"^\| (\d+) \|", table, flags=re.MULTILINE)) == {*in_help, "130"}
