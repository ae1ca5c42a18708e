"""Man pages: one for each command, of the parsers as they are, and nothing in them that formatters mind."""

import argparse
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from support.abilities import module, tool
from support.paths import REPOSITORY
from support.processes import captured

from cdigen.cli.main import COMMANDS
from cdigen.cli.parser import Parser

MAN = REPOSITORY / "etc/man"
PAGES = ("cdigen.8", *(f"cdigen-{name}.8" for name in COMMANDS))
# In the order of man-pages(7).
SECTIONS = ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO")


def shown(page: str) -> str:
    """Return PAGE as a reader sees it, with words whole."""
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "500", "MAN_KEEP_FORMATTING": ""}
    command = [tool("man", "man-db"), "--no-hyphenation", "--no-justification", "-l", str(MAN / page)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return re.sub(r".\x08", "", done.stdout)


def test_what_is_kept_is_what_the_parsers_give_now(tmp_path: Path) -> None:
    module("argparse_manpage", "argparse-manpage")
    module("shtab", "shtab")
    command = [sys.executable, str(REPOSITORY / "etc/help"), "--into", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    for folder in ("man", "completions"):
        made = {path.name: path.read_text() for path in (tmp_path / "etc" / folder).iterdir()}
        kept = {path.name: path.read_text() for path in (REPOSITORY / "etc" / folder).iterdir()}
        assert sorted(kept) == sorted(made), "run 'make generated'"
        for name, text in made.items():
            assert kept[name] == text, f"etc/{folder}/{name}: run 'make generated'"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_sections_in_their_order(page: str) -> None:
    found = re.findall(r"^[A-Z][A-Z ]+$", shown(page), flags=re.MULTILINE)
    assert [name for name in found if name in SECTIONS] == list(SECTIONS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_explains_every_option_in_the_words_of_the_help(command: str) -> None:
    module, summary = COMMANDS[command]
    parser = Parser(prog=command, summary=summary, examples="")
    import_module(module).add_options(parser)
    text = " ".join(shown(f"cdigen-{command}.8").split())
    for action in parser._actions:
        if action.help != argparse.SUPPRESS and "--help" not in action.option_strings:
            assert all(name in text for name in action.option_strings)
            assert " ".join((action.help or "").split()) in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_has_the_examples_of_the_help(command: str) -> None:
    text = shown(f"cdigen-{command}.8")
    lines = import_module(COMMANDS[command][0]).EXAMPLES.splitlines()
    commands = [line.strip().partition("  ")[0] for line in lines if not line.startswith(" " * 8)]
    assert [line for line in commands if f"  {line}\n" not in text] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_formatter_warns_of_a_page(page: str) -> None:
    file = str(MAN / page)
    for command in (
        [tool("groff"), "-man", "-ww", "-z", "-Tutf8", file],
        [tool("man", "man-db"), "--warnings=w", "-l", file],
        # Pages are the same whenever they are made, so they have no date.
        [tool("mandoc"), "-T", "lint", "-W", "warning", file],
    ):
        done = captured(command)
        warned = f"{done.stderr}{done.stdout if command[0].endswith('mandoc') else ''}"
        assert [line for line in warned.splitlines() if "missing date" not in line] == []


@pytest.mark.parametrize("page", PAGES)
def test_apropos_finds_a_page_by_its_name(page: str) -> None:
    said = subprocess.run(
        [tool("lexgrog", "man-db"), str(MAN / page)], check=True, capture_output=True, text=True
    )
    assert f'"{page.removesuffix(".8")} - ' in said.stdout


@pytest.mark.parametrize("page", PAGES)
def test_a_page_refers_to_pages_that_there_are(page: str) -> None:
    named = set(re.findall(r"\b(cdigen(?:-[a-z]+)?)\(8\)", shown(page)))
    assert {f"{name}.8" for name in named} <= set(PAGES)
