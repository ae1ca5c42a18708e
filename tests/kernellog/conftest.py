"""The program, as a child that reads a log of which the test says what is in it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.daemon.kernel_log_program import Program
from support.daemon.kernel_records import FakeLog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FakeLog]:
    """Return a log of which this test says what is in it."""
    with closing(FakeLog(tmp_path / "kmsg")) as log:
        yield log


@pytest.fixture
def program(log: FakeLog) -> Iterator[Program]:
    """Return the program, which reads LOG."""
    with log.path.open("rb", buffering=0) as file:
        program = Program(file.fileno(), "--given")
    yield program
    program.end()
