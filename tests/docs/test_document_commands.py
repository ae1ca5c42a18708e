"""The commands in code blocks exist: parsers of the programs read them, and make has their targets."""

import pytest
from support.documentation.command_lines import SHELLS, command_lines, commands, fault
from support.documentation.pages import Block, blocks, pages, text_of


@pytest.mark.parametrize("page", pages())
def test_a_command_in_a_code_block_has_existing_options_and_targets(page: str) -> None:
    faults = [
        f"line {number}: {' '.join(words)}: {reason}"
        for block in blocks(text_of(page))
        if block.language in SHELLS
        for number, line in command_lines(block)
        for words in commands(line)
        if (reason := fault(words))
    ]
    assert faults == []


# The tests of this module itself.


def read(text: str, language: str = "console") -> list[list[str]]:
    block = Block(language=language, first_line=1, lines=tuple(text.splitlines()))
    return [words for _, line in command_lines(block) for words in commands(line)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$ cdigen list\nnvidia.com/gpu=0", [["cdigen", "list"]]),
        ("# A=b cdigen list --json | head", [["cdigen", "list", "--json"], ["head"]]),
        ("$ sudo -u alice cdigen list  # why", [["cdigen", "list"]]),
        ("$ cdigen list \\\n    --json", [["cdigen", "list", "--json"]]),
        ('$ sh -c "cdigen list; cdigen run"',
         [["sh", "-c", "cdigen list; cdigen run"], ["cdigen", "list"], ["cdigen", "run"]]),
        ("$ docker run $(cdigen docker-args all) a", [["cdigen", "docker-args", "all"],
                                                      ["docker", "run", "SUBSTITUTION", "a"]]),
        ("$ cat <<EOF\ncdigen list\nEOF\n$ cdigen run", [["cat"], ["cdigen", "run"]]),
    ],
)  # fmt: skip
def test_the_commands_of_a_block_are_found(text: str, found: list[list[str]]) -> None:
    assert read(text) == found


def test_a_block_without_prompts_has_a_command_in_each_line_but_no_comments() -> None:
    assert read("# first\ncdigen list\nmake run\n", "") == [["cdigen", "list"], ["make", "run"]]


@pytest.mark.parametrize(
    "words",
    [
        "cdigen list --jsn",
        "cdigen lst",
        "cdigen generate --layout nothing",
        ".venv/bin/cdigen list --jsn",
        "kubectl exec pod -- cdigen list --jsn",
        "podman run image cdigen list --jsn",
        "cdigen help nothing",
        "kubectl inspect gpushare --jsn",
        "make nothing",
        "make run nothing",
    ],
)
def test_a_wrong_command_is_a_fault(words: str) -> None:
    assert fault(words.split()) != ""


@pytest.mark.parametrize(
    "words",
    [
        "cdigen list --json",
        "cdigen --root DIR list",
        "cdigen --version",
        "cdigen help list",
        "cdigen help config check",
        "cdigen list --help",
        "cdigen generate --vendor VENDOR",
        "apt install cdigen",
        "systemctl restart cdigen",
        "kubectl -n cdigen get pods",
        "make run PYTHON=python3",
        "make .venv/dev.stamp",
        "make -C elsewhere nothing",
    ],
)
def test_a_right_command_and_one_of_another_program_are_no_faults(words: str) -> None:
    assert fault(words.split()) == ""
