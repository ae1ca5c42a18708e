"""A status is written when it has changed, at most once in an interval, and again after a removal."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from cdigen.service.process.buffered_log import BufferedLogger
from cdigen.service.rundir import RunDirectory
from cdigen.service.status import StatusWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Case:
    """A writer of `document`, with a clock that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 100.0
        self.document: dict[str, Any] = {"number": 1}
        self.file = folder / "status.json"
        self.run_directory = RunDirectory(str(folder), BufferedLogger())
        self.writer = StatusWriter(
            self.run_directory, lambda: dict(self.document), least_s=1.0, clock=lambda: self.now_s
        )

    def written(self) -> int | None:
        """Update the status; return the number in the file, or None without a file."""
        self.writer.update()
        return json.loads(self.file.read_bytes())["number"] if self.file.is_file() else None


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path / "run")
    made.run_directory.take()
    yield made
    made.run_directory.leave()


def test_a_change_is_written_after_the_interval(case: Case) -> None:
    assert case.written() == 1
    assert case.writer.due_s == math.inf
    case.document["number"] = 2
    case.now_s += 0.5
    assert case.written() == 1
    assert case.writer.due_s == 101.0
    case.now_s += 0.5
    assert case.written() == 2
    assert case.writer.due_s == math.inf


def test_an_unchanged_status_is_written_again_only_after_its_removal(case: Case) -> None:
    case.written()
    before = case.file.stat().st_ino
    case.now_s += 2
    case.written()
    assert case.file.stat().st_ino == before
    case.file.unlink()
    case.now_s += 2
    assert case.written() == 1


def test_a_failed_write_is_tried_again(case: Case) -> None:
    case.file.mkdir()
    assert case.written() is None
    assert case.writer.due_s == 105.0
    case.file.rmdir()
    case.now_s += 5
    assert case.written() == 1


def test_without_the_lock_nothing_is_written(case: Case) -> None:
    case.run_directory.leave()
    assert case.written() is None
    assert case.writer.due_s == math.inf
    case.run_directory.take()
    assert case.written() == 1
