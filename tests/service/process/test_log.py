"""The log. The tests read its lines from a real pipe."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.log_pipe import Read

from cdigen.service.process import log


@pytest.fixture
def libraries() -> Iterator[None]:
    """Restore the standard library's logging after the test."""
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])


def test_a_line_is_json_with_time_level_and_event_first(pipe: tuple[int, Read]) -> None:
    log.make_logger(fd=pipe[0]).info("started", version="1.2.3")
    (line,) = pipe[1]()
    assert list(line) == ["timestamp", "level", "event", "version"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line["timestamp"])


def test_stray_bytes_and_line_breaks_are_escaped_in_a_single_line(pipe: tuple[int, Read]) -> None:
    log.make_logger(fd=pipe[0]).warning("odd", path="/lib/\udcff\n{}")
    (line,) = pipe[1]()
    assert line["path"] == "/lib/\udcff\n{}"


def test_an_exception_is_logged_in_one_line(pipe: tuple[int, Read]) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        log.make_logger(fd=pipe[0]).exception("cycle crashed")
    (line,) = pipe[1]()
    assert line["level"] == "error"
    assert "ValueError: broken" in line["exception"]


def test_logging_without_a_reader_does_not_fail() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    log.make_logger(fd=writing).info("into the void")
    os.close(writing)


@pytest.mark.usefixtures("libraries")
def test_messages_of_libraries_are_logged(pipe: tuple[int, Read]) -> None:
    log.capture_libraries(log.make_logger(fd=pipe[0]))
    logging.getLogger("watchdog").warning("queue of %d", 7)
    logging.getLogger("watchdog").info("not this")
    logging.getLogger("asyncio").critical("but this")
    assert [(line["logger"], line["level"], line["event"]) for line in pipe[1]()] == [
        ("watchdog", "warning", "queue of 7"),
        ("asyncio", "error", "but this"),
    ]


def test_rich_is_not_loaded_even_if_it_is_installed() -> None:
    pytest.importorskip("rich")
    code = "import sys, cdigen.service.process.log; assert 'rich' not in sys.modules; import rich"
    subprocess.run([sys.executable, "-c", code], check=True)
