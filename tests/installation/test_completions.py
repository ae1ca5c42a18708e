"""Man page and completions: every command and option that the program has, and none that it has not."""

import argparse
import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from cdigen.cli.main import COMMANDS
from cdigen.cli.options import Parser

ETC = Path(__file__).resolve().parents[2] / "etc"
FILES = ("completions/cdigen.bash", "completions/cdigen.fish", "completions/cdigen.zsh", "man/cdigen.8")
GENERAL = {"--help", "--version"}


def options_of(command: str) -> tuple[argparse.Action, ...]:
    module, summary = COMMANDS[command]
    parser = Parser(prog=command, summary=summary, examples="")
    import_module(module).add_options(parser)
    return tuple(action for action in parser._actions if action.option_strings)


def long_options(command: str) -> set[str]:
    return {name for action in options_of(command) for name in action.option_strings if name.startswith("--")}


ALL = {option for command in COMMANDS for option in long_options(command)} | GENERAL


def text_of(file: str) -> str:
    return (ETC / file).read_text().replace("\\-", "-")


def named_in(file: str) -> set[str]:
    text = text_of(file)
    if file.endswith(".fish"):
        return {f"--{name}" for name in re.findall(r"^complete .* -l ([a-z0-9-]+)", text, re.MULTILINE)}
    if file.endswith(".zsh"):
        return set(re.findall(r"['*,{)](--[a-z0-9-]+)[\[},]", text))
    return set(re.findall(r"(?<![\w-])(--[a-z][a-z0-9-]+)", text))


@pytest.mark.parametrize("file", FILES)
def test_a_file_names_every_command(file: str) -> None:
    text = text_of(file)
    assert [name for name in COMMANDS if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("file", FILES)
def test_a_file_names_the_options_that_there_are(file: str) -> None:
    # The man page speaks of podman's --device.
    assert named_in(file) - {"--device"} == ALL


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("completions/")])
def test_a_completion_offers_the_values_that_an_option_takes(file: str) -> None:
    text = text_of(file)
    for action in (action for command in COMMANDS for action in options_of(command) if action.choices):
        offered = re.findall(rf"{action.option_strings[-1].lstrip('-')}\b.*", text)
        wanted = sorted(action.choices or ())
        assert any(" ".join(wanted) in line for line in offered), (action.option_strings, wanted)


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_offers_a_command_its_own_options_and_no_others(command: str) -> None:
    script = f"source {ETC}/completions/cdigen.bash; COMP_WORDS=(cdigen {command} --); COMP_CWORD=2; _cdigen"
    done = subprocess.run(
        ["bash", "--norc", "-c", f'{script}; printf "%s\\n" "${{COMPREPLY[@]}}"'],
        check=True,
        capture_output=True,
        text=True,
    )
    assert set(done.stdout.split()) == long_options(command)


def test_bash_offers_the_commands() -> None:
    script = f"source {ETC}/completions/cdigen.bash; COMP_WORDS=(cdigen ''); COMP_CWORD=1; _cdigen"
    done = subprocess.run(
        ["bash", "--norc", "-c", f'{script}; printf "%s\\n" "${{COMPREPLY[@]}}"'],
        check=True,
        capture_output=True,
        text=True,
    )
    assert set(done.stdout.split()) == {*COMMANDS, *GENERAL}
