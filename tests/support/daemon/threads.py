"""Runs work in threads while a test continues."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def beside(
    work: Callable[..., object], *arguments: object, count: int = 1
) -> Iterator[list[threading.Thread]]:
    """Run WORK in COUNT threads during the body, and wait for the threads after the body."""
    threads = [threading.Thread(target=work, args=arguments) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.join(PATIENCE_S)
