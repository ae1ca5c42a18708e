"""The commands in the code blocks of documents: `fault` parses one as the programs do."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from functools import cache
from typing import TYPE_CHECKING

from support.paths import REPOSITORY

from cdigen.cli.main import COMMANDS, command_parser, split_command
from cdigen.cli.services.kubectl_gpushare import make_parser
from cdigen.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.documentation.pages import Block

    from cdigen.cli.shared.parser import Parser

# The languages of blocks with commands. Blocks of other languages are files or output.
SHELLS = frozenset({"", "bash", "console", "sh", "shell"})
PROMPT = re.compile(r"^\s*(?:[\w@.~-]*[$#]|>) (?=\S)")
# Words before a command. An option of sudo or env may have a value.
WRAPPERS = frozenset({"!", "do", "else", "env", "exec", "if", "sudo", "then", "time", "until", "while"})
VALUED = frozenset({"-C", "-g", "-h", "-p", "-u"})
HELP = frozenset({"--help", "--version", "-V", "-h", "help"})
# Text that the reader replaces by a value, and the vendor of examples/vendor-accel.
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_-]*|acme")


def command_lines(block: Block) -> Iterator[tuple[int, str]]:
    """Yield number and text of each command line in BLOCK, with its continuations and without its prompt.

    If a line of BLOCK has a prompt, the lines without a prompt are output. The lines of a here document are
    no commands.
    """
    has_prompts = block.language == "console" or any(re.match(r"\s*\$ ", line) for line in block.lines)
    lines = iter(enumerate(block.lines, block.first_line))
    for number, line in lines:
        prompt = PROMPT.match(line) if has_prompts else None
        if (has_prompts and not prompt) or (not has_prompts and line.lstrip().startswith("#")):
            continue
        text = line[prompt.end() :] if prompt else line
        while text.endswith("\\"):
            text = text[:-1] + next(lines, (0, ""))[1]
        if found := re.search(r"<<-?\s*['\"]?(\w+)", text):
            text = text[: found.start()] + text[found.end() :].lstrip("'\"")
            while next(lines, (0, found[1]))[1].strip() != found[1]:
                pass
        yield number, text


def commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each simple command in the command line LINE, also in `$(...)` and after `sh -c`."""
    line = re.sub(r"<([\w.-]+(?: [\w.-]+)*)>", "PLACEHOLDER", re.sub(r"(?:^|\s)#\s.*$", "", line))
    for inner in re.findall(r"\$\(([^()]*)\)", line):
        yield from commands(inner)
    lexer = shlex.shlex(re.sub(r"\$\([^()]*\)", "SUBSTITUTION", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        for word in (*lexer, ";"):
            if not set(word) <= set("();<>|&"):
                words.append(word)
            elif words and not set(word) & set("<>"):
                yield _unwrapped(words)
                if "-c" in words[:-1]:
                    yield from commands(words[words.index("-c") + 1])
                words = []
    except ValueError:  # an apostrophe: the line is text
        return


def _unwrapped(words: Sequence[str]) -> list[str]:
    """Return WORDS without assignments, `sudo` and other words before the command."""
    rest = list(words)
    while rest and (rest[0] in WRAPPERS or re.match(r"\w+=", rest[0])):
        is_wrapper = rest[0] in WRAPPERS
        del rest[0]
        while is_wrapper and rest and rest[0].startswith("-"):
            del rest[: 2 if rest[0] in VALUED else 1]
    return rest


def fault(words: Sequence[str]) -> str:
    """Return the reason why WORDS cannot be run by cdigen, its kubectl plugin or make, or ''."""
    if words[:1] == ["make"] and "-C" not in words:
        return ", ".join(f"no target {word}" for word in _targets(words) if word not in makefile_targets())
    if words[:3] == ["kubectl", "inspect", "gpushare"]:
        return _parsed(make_parser(), words[3:])
    for place, word in enumerate(words):
        if word.rpartition("/")[2] == "cdigen" and _is_program(words, place):
            return _cdigen_fault(list(words[place + 1 :]))
    return ""


def _is_program(words: Sequence[str], place: int) -> bool:
    """Return whether the word cdigen at PLACE starts the program: not a package, a unit or a namespace."""
    if place == 0 or words[place - 1] in {"--", "-m"}:
        return True
    return not words[place - 1].startswith("-") and not COMMANDS.keys().isdisjoint(
        words[place + 1 : place + 2]
    )


def _cdigen_fault(words: list[str]) -> str:
    if not words or words[0] in HELP:
        return "" if not words[1:] or words[1:] == ["config", "check"] else _unknown(words[1])
    try:
        command, rest = split_command(words)
    except ConfigError as error:
        return error.message
    return _unknown(command) or _parsed(command_parser(command), rest)


def _unknown(command: str) -> str:
    return "" if command in COMMANDS or PLACEHOLDER.fullmatch(command) else f"no command {command}"


def _parsed(parser: Parser, words: Sequence[str]) -> str:
    """Return the error of PARSER for WORDS; a placeholder is a valid value of each option."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            parser.parse_args(list(words))
    except ConfigError as error:
        values = re.findall(r"'([^']*)'", error.message)
        return "" if any(PLACEHOLDER.fullmatch(value) for value in values[:1]) else error.message
    except SystemExit:  # --help
        return ""
    return ""


def _targets(words: Sequence[str]) -> Iterator[str]:
    """Yield the targets in the command WORDS of make."""
    for word in words[1:]:
        if not word.startswith("-") and "=" not in word and not PLACEHOLDER.fullmatch(word):
            yield word


@cache
def makefile_targets() -> frozenset[str]:
    """Return the targets of the Makefile, with its default folder of the venv."""
    text = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    names = re.findall(r"^((?:\$\(VENV\)/)?[a-z][\w./-]*):(?!=)", text, flags=re.MULTILINE)
    return frozenset(name.replace("$(VENV)", ".venv") for name in names)
