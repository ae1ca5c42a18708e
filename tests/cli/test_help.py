"""The output of `--help`: a text for every option, and valid examples."""

import argparse
import shlex

import pytest
from support.command.fixtures import Run

from cdigen.cli.main import COMMANDS, command_parser
from cdigen.cli.shared.parser import parse_examples


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_and_argument_has_a_help_text(command: str) -> None:
    assert [action.dest for action in command_parser(command)._actions if not action.help] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_names_all_values_of_an_option(command: str) -> None:
    for action in (
        action for action in command_parser(command)._actions if action.choices and action.metavar
    ):
        assert all(str(value) in (action.help or "") for value in action.choices or ()), action.option_strings


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_is_valid_and_has_a_purpose(command: str) -> None:
    found = parse_examples(command_parser(command).examples)
    assert len(found) >= 2
    for line, purpose in found:
        assert purpose, line
        own = [part.strip() for part in line.split("|") if part.strip().startswith(f"cdigen {command}")]
        assert len(own) == 1, line
        words = shlex.split(own[0].partition(" > ")[0])
        command_parser(command).parse_args(words[2:])


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_fit_into_a_line_of_a_terminal(command: str) -> None:
    lines = command_parser(command).examples.splitlines()
    assert [line for line in lines if len(line) > 100] == []


def test_an_option_that_a_command_refuses_is_not_in_the_help_of_this_command(cdigen: Run) -> None:
    assert "--inventory" not in cdigen("diff", "--help").out
    assert "--inventory" in cdigen("generate", "--help").out
    assert command_parser("diff").parse_args(["--inventory", "x"]).inventory == "x"


def test_the_general_help_has_every_exit_code(cdigen: Run) -> None:
    message = cdigen("--help").out.partition("exit codes:")[2]
    assert all(f"{code} " in message for code in (0, 1, 2, 3, 4, 5, 70))
    assert all(command in message for command in ("doctor", "validate", "diff", "status"))
    assert argparse.SUPPRESS not in message
