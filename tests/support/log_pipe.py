"""A real pipe for the log to be written into: `pipe` gives its end for writing, and what reads its lines."""

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
