"""Fixtures: a log with records of the test, and the program as a child process that reads this log."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.daemon.kernel_log_program import Program
from support.daemon.kernel_records import FakeLog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FakeLog]:
    """Yield a log with records of the test."""
    with closing(FakeLog(tmp_path / "kmsg")) as log:
        yield log


@pytest.fixture
def program(log: FakeLog) -> Iterator[Program]:
    """Yield the program, which reads LOG."""
    with log.path.open("rb", buffering=0) as file:
        program = Program(file.fileno(), "--stdin")
    yield program
    program.end()
