"""Fixtures of the command's tests: a fake GPU host, and the real command in this or in another process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import json_output
from support.abilities import WARNINGS
from support.command.in_process import run_here
from support.hosts import driver_files
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side

GPUS = example_gpus(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The result of a run of the command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The standard output, parsed as one JSON document."""
        return json.loads(self.out)

    def failed(self, code: int, *words: str) -> bool:
        """Return whether it ended with CODE and one line on stderr with all WORDS, and no traceback."""
        lines = [line for line in self.err.splitlines() if not line.startswith("cdigen: warning")]
        text = lines[-1] if lines else ""
        return self.code == code and "Traceback" not in self.err and all(word in text for word in words)


Run = Callable[..., Done]


# The variables by which 'make coverage' measures the processes that the tests start.
COVERAGE = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_PROCESS")}


@pytest.fixture
def cdigen() -> Run:
    """Return a function that runs the command with the function's arguments within this process."""

    def run(*arguments: str | Path, stdin: bytes = b"", **environment: str) -> Done:
        words = tuple(map(str, arguments))
        return _done(words, *run_here(words, stdin=stdin, environment=_environment(environment)))

    return run


@pytest.fixture
def cdigen_process() -> Run:
    """Return a function that runs the command with the function's arguments in a new process.

    Use it for tests of the interpreter's start and end, and of its streams, signals and environment.
    """

    def run(*arguments: str | Path, stdin: bytes = b"", **environment: str) -> Done:
        words = tuple(map(str, arguments))
        done = subprocess.run(
            [sys.executable, "-m", "cdigen", *words],
            check=False,
            input=stdin,
            capture_output=True,
            timeout=60,
            env={**_environment(environment), **COVERAGE},
        )
        return _done(words, done.returncode, done.stdout, done.stderr)

    return run


def _environment(variables: dict[str, str]) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONWARNINGS": WARNINGS, **variables}


def _done(arguments: tuple[str, ...], code: int, out: bytes, err: bytes) -> Done:
    """Return the result of a run, after a check of the output of ``--json`` by its schema."""
    if "--json" in arguments:
        json_output.check(arguments, code, out.decode())
    return Done(code=code, out=out.decode(), err=err.decode(errors="surrogateescape"))


@pytest.fixture
def host(tmp_path: Path, real_nodes: None) -> Path:  # noqa: ARG001 - checks that nodes can be made
    """Return the root of a Debian 13 host with two GPUs, with real character devices."""
    root = tmp_path / "host"
    driver_files.debian_13(root)
    write_kernel_side(root, GPUS)
    (root / "run").mkdir(exist_ok=True)
    (root / "var").mkdir(exist_ok=True)
    (root / "var/run").symlink_to("/run")
    return root
