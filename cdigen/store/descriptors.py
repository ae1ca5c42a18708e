"""``closing``: close a file descriptor at the end of a block."""

from __future__ import annotations

import os
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def closing(fd: int) -> Iterator[int]:
    """Yield the open descriptor FD, and close FD at the end of the block."""
    try:
        yield fd
    finally:
        os.close(fd)
