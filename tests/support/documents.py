"""Runs the commands of documents, as a reader does: `commands`, `steps`, `follow`.

A block of the language `sh` has commands. A block of the language `console` has steps: after `$ ` a command,
and in the next lines its output. In an output, `...` is any text, or any lines if it is alone in a line;
runs of spaces are equal. A step without an output is only checked for success.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.paths import REPOSITORY
from support.processes import captured
from support.waiting import HOST_PATIENCE_S, until

if TYPE_CHECKING:
    from pathlib import Path

# Runs a command of a document. Its output is in the order of a terminal.
Runner = Callable[[str], subprocess.CompletedProcess[str]]

# Commands that read a state. A reader repeats such a command until it prints the expected state.
READS_STATE = ("cdigen status", "kubectl get")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command and its expected output."""

    command: str
    output: str

    def is_met_by(self, done: subprocess.CompletedProcess[str]) -> bool:
        """Return whether DONE succeeded with the expected output."""
        printed = re.sub(" +", " ", done.stdout + done.stderr)
        return done.returncode == 0 and (not self.output or bool(_pattern(self.output).fullmatch(printed)))


def _pattern(output: str) -> re.Pattern[str]:
    lines = (
        r"(?:.*\n)*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\s*\n"
        for line in re.sub(" +", " ", output).splitlines()
    )
    return re.compile("".join(lines))


def section_of(document: str, section: str = "") -> str:
    """Return the text of DOCUMENT, or the part below its heading SECTION (level 2)."""
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    if not section:
        return text
    return re.split(r"^## ", text.partition(f"\n## {section}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of LANGUAGE in TEXT, each without the indentation of its fence."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", text, flags=re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) for indent, body in found]


def commands(document: str) -> list[str]:
    """Return the commands in the blocks `sh` of DOCUMENT, without comments."""
    lines = "".join(blocks(section_of(document), "sh")).replace("\\\n", "").splitlines()
    return [line.partition(" # ")[0].strip() for line in lines if line and not line.startswith("#")]


def steps(document: str, section: str = "") -> list[Step]:
    """Return the steps in the blocks `console` of DOCUMENT or of its SECTION."""
    found = []
    for body in blocks(section_of(document, section), "console"):
        for step in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, output = re.sub(r"\\\n> *", "", step).partition("\n")
            found.append(Step(command=command, output=output))
    return found


def follow(found: Collection[Step], run: Runner) -> None:
    """Run each step in its order; a step that reads a state is repeated until it prints that state."""
    assert found
    for step in found:
        done = [run(step.command)]

        def is_met(step: Step = step, done: list[subprocess.CompletedProcess[str]] = done) -> bool:
            if not step.is_met_by(done[-1]):
                done.append(run(step.command))
            return step.is_met_by(done[-1])

        if step.command.startswith(READS_STATE):
            until(is_met, HOST_PATIENCE_S)
        printed = done[-1].stdout + done[-1].stderr
        assert step.is_met_by(done[-1]), f"$ {step.command}\n{printed}\nexpected:\n{step.output}"


def put_programs(folder: Path, programs: Mapping[str, str]) -> str:
    """Write PROGRAMS (name, shell script) into the new FOLDER; return a PATH that begins with FOLDER."""
    folder.mkdir()
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}")
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def shell(command: str, *, cwd: Path, path: str) -> subprocess.CompletedProcess[str]:
    """Run COMMAND in the folder CWD, with programs from PATH; standard output has all output."""
    variables = {"PATH": path, "PYTHONPATH": str(REPOSITORY), "LANG": "C.UTF-8", "HOME": str(cwd)}
    return captured(["sh", "-c", f"{{ {command}\n}} 2>&1"], cwd=cwd, env=variables)
