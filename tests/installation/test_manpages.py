"""Each command has a man page that is up to date with its parser and causes no warnings of formatters."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.abilities import module, tool
from support.paths import REPOSITORY
from support.processes import captured

from cdigen.cli.main import COMMANDS, command_parser

MAN = REPOSITORY / "etc/man"
PAGES = ("cdigen.8", *(f"cdigen-{name}.8" for name in COMMANDS))
# In the order of man-pages(7).
SECTIONS = ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO")


def formatted(page: str) -> str:
    """Return the formatted text of PAGE, without hyphenation."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "500", "MAN_KEEP_FORMATTING": ""}
    command = [tool("man", "man-db"), "--no-hyphenation", "--no-justification", "-l", str(MAN / page)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return re.sub(r".\x08", "", done.stdout)


def test_the_stored_pages_and_completions_are_up_to_date_with_the_parsers(tmp_path: Path) -> None:
    module("argparse_manpage", "argparse-manpage")
    module("shtab", "shtab")
    command = [sys.executable, str(REPOSITORY / "etc/help"), "--into", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    for folder in ("man", "completions"):
        made = {path.name: path.read_text() for path in (tmp_path / "etc" / folder).iterdir()}
        stored = {path.name: path.read_text() for path in (REPOSITORY / "etc" / folder).iterdir()}
        assert sorted(stored) == sorted(made), "run 'make generated'"
        for name, text in made.items():
            assert stored[name] == text, f"etc/{folder}/{name}: run 'make generated'"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_all_sections_in_the_standard_order(page: str) -> None:
    found = re.findall(r"^[A-Z][A-Z ]+$", formatted(page), flags=re.MULTILINE)
    assert [name for name in found if name in SECTIONS] == list(SECTIONS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_explains_every_option_in_the_words_of_the_help(command: str) -> None:
    text = " ".join(formatted(f"cdigen-{command}.8").split())
    for action in command_parser(command)._actions:
        if action.help != argparse.SUPPRESS and "--help" not in action.option_strings:
            assert all(name in text for name in action.option_strings)
            assert " ".join((action.help or "").split()) in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_has_the_examples_of_the_help(command: str) -> None:
    text = formatted(f"cdigen-{command}.8")
    lines = command_parser(command).examples.splitlines()
    commands = [line.strip().partition("  ")[0] for line in lines if not line.startswith(" " * 8)]
    assert [line for line in commands if f"  {line}\n" not in text] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_formatter_warns_of_a_page(page: str) -> None:
    file = str(MAN / page)
    for command in (
        [tool("groff"), "-man", "-ww", "-z", "-Tutf8", file],
        [tool("man", "man-db"), "--warnings=w", "-l", file],
        # Pages have no date, so that each run generates the same pages.
        [tool("mandoc"), "-T", "lint", "-W", "warning", file],
    ):
        done = captured(command)
        warned = f"{done.stderr}{done.stdout if command[0].endswith('mandoc') else ''}"
        assert [line for line in warned.splitlines() if "missing date" not in line] == []


@pytest.mark.parametrize("page", PAGES)
def test_apropos_finds_a_page_by_its_name(page: str) -> None:
    message = subprocess.run(
        [tool("lexgrog", "man-db"), str(MAN / page)], check=True, capture_output=True, text=True
    )
    assert f'"{page.removesuffix(".8")} - ' in message.stdout


@pytest.mark.parametrize("page", PAGES)
def test_a_page_refers_only_to_existing_pages(page: str) -> None:
    named = set(re.findall(r"\b(cdigen(?:-[a-z]+)?)\(8\)", formatted(page)))
    assert {f"{name}.8" for name in named} <= set(PAGES)
