"""While a log is not read, lines are dropped and counted, and no thread blocks."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from support.waiting import PATIENCE_S, limited, pause

from cdigen.service.process import log

if TYPE_CHECKING:
    from collections.abc import Iterator

# The size of two pages. The kernel treats a partly filled page as full.
ROOM = 8192


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return the two ends of a pipe whose buffer has two pages."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, ROOM)
    os.set_blocking(reading, False)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def emptied(reading: int) -> bytes:
    data = b""
    try:
        while piece := os.read(reading, 1 << 16):
            data += piece
    except BlockingIOError:
        pass
    return data


# Only the first line waits for the reader.
@limited(2)
def test_unread_lines_are_dropped_and_counted_when_the_log_is_read_again(
    pipe: tuple[int, int], within_s: float
) -> None:
    reading, writing = pipe
    logger = log.make_logger(fd=writing)
    os.write(writing, b"x" * ROOM)
    began = time.monotonic()
    for _ in range(20):
        logger.info("dropped")
    assert time.monotonic() - began < within_s
    emptied(reading)
    logger.info("received")
    first, second = map(json.loads, emptied(reading).splitlines())
    assert (first["level"], first["event"], first["lines"]) == ("warning", "log_dropped", 20)
    assert second["event"] == "received"
    logger.info("again")
    assert json.loads(emptied(reading))["event"] == "again"


def test_a_cut_line_does_not_damage_the_next_line(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    logger = log.make_logger(fd=writing)
    logger.info("long", text="x" * 3 * ROOM)
    cut = emptied(reading)
    assert len(cut) == ROOM
    logger.info("next")
    lines = emptied(reading).splitlines()
    assert [json.loads(line)["event"] for line in lines if line] == ["log_dropped", "next"]
    assert lines[0] == b""


def test_a_slow_reader_receives_a_complete_long_line(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    got = bytearray()

    def read() -> None:
        while not got.endswith(b"\n"):
            pause(0.005)
            got.extend(emptied(reading))

    reader = threading.Thread(target=read)
    reader.start()
    log.make_logger(fd=writing).info("long", text="x" * 3 * ROOM)
    reader.join(PATIENCE_S)
    assert len(json.loads(got)["text"]) == 3 * ROOM
