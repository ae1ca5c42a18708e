"""The fixture `pipe`: the write end of a pipe for the log, and a function that reads the log's lines."""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Read = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def pipe() -> Iterator[tuple[int, Read]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def read() -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in os.read(reading, 1 << 16).splitlines()]
        except BlockingIOError:
            return []

    yield writing, read
    os.close(reading)
    os.close(writing)
