"""The command line: help, versions, usage errors, output streams."""

import pytest
from support.command.fixtures import Run
from support.command.in_process import needs_process

import cdigen as package
from cdigen.cli.main import COMMANDS, command_parser
from cdigen.cli.shared.option_table import takes_value


def test_the_version_is_printed(cdigen: Run) -> None:
    assert cdigen("--version").out == f"cdigen {package.__version__}\n"


def test_without_a_command_the_help_is_printed_as_an_error(cdigen: Run) -> None:
    done = cdigen()
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("usage: cdigen COMMAND")


# Each command runs in a new process, in which no other command has imported the modules that it needs.
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_examples(cdigen_process: Run, command: str) -> None:
    done = cdigen_process(command, "--help")
    assert done.code == 0
    assert done.out.startswith(f"usage: cdigen {command}")
    assert f"examples:\n  cdigen {command}" in done.out


@pytest.mark.parametrize("command", [name for name in COMMANDS if not needs_process((name,))])
def test_help_with_a_command_prints_the_help_of_the_command(cdigen: Run, command: str) -> None:
    text = cdigen(command, "--help").out
    assert [cdigen(word, command).out for word in ("help", "--help")] == [text, text]


def test_help_with_run_prints_the_help_of_the_daemon(cdigen_process: Run) -> None:
    text = cdigen_process("run", "--help").out
    assert [cdigen_process(word, "run").out for word in ("help", "--help")] == [text, text]


def test_help_accepts_no_command_or_one_known_command(cdigen: Run) -> None:
    assert cdigen("help").out == cdigen("--help").out == cdigen("help", "help").out
    assert cdigen("help", "genrate").failed(2, "'genrate'", "did you mean 'generate'")
    assert cdigen("help", "list", "diff").failed(2, "diff")
    assert cdigen("help", "config", "check").out == cdigen("config", "--help").out
    assert cdigen("--version", "list").failed(2, "list")


def test_the_help_lists_every_command(cdigen: Run) -> None:
    assert all(f"  {command} " in cdigen("--help").out for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("generat",), ("'generat'", "did you mean 'generate'")),
        (("generate", "--wirte"), ("--wirte", "cdigen generate --help")),
        # An option must not be abbreviated.
        (("generate", "--wri"), ("--wri",)),
        (("--root", "/"), ("missing command",)),
        (("generate", "--root", "/does/not/exist"), ("/does/not/exist", "not a folder")),
        (("inspect", "--root", "/etc/passwd"), ("/etc/passwd", "not a folder")),
    ],
    ids=["command", "option", "abbreviation", "no command", "no root", "a file as root"],
)
def test_wrong_usage_is_an_error_that_names_the_problem(
    cdigen: Run, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert cdigen(*arguments).failed(2, *words)


def test_with_json_a_usage_error_is_printed_as_json(cdigen: Run) -> None:
    done = cdigen("generate", "--json", "--nonsense")
    assert done.code == 2
    assert set(done.json["error"]) == {"kind", "message", "hint"}


def test_every_option_with_a_value_may_precede_the_command() -> None:
    for action in (action for command in COMMANDS for action in command_parser(command)._actions):
        for option in action.option_strings:
            assert takes_value(option) is (action.nargs is None), option
