"""Check in a child process whether device nodes can be opened (``unopenable``)."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# In seconds. The node of an active device opens in less time.
DEADLINE_S = 5.0
# With these errors, the driver has no device for the node, or cannot start the device. Other errors have
# other reasons, such as permissions, cgroup rules or a removed node.
_OF_DEVICE = {errno.EIO, errno.ENXIO, errno.ENODEV}


def unopenable(
    paths: Iterable[str], *, deadline_s: float = DEADLINE_S
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return path -> reason for the nodes in PATHS that the driver refuses to open, and the nodes that hang.

    PATHS must not contain nodes of suspended devices, because opening a node may resume its device. For each
    node that hangs, the function waits DEADLINE_S. The function raises no exception. If it cannot start a
    process, it returns all nodes as nodes that hang.
    """
    refused: dict[str, str] = {}
    hung: list[str] = []
    left = tuple(paths)
    while left:
        numbers = _tried(left, deadline_s)
        refused |= {
            path: os.strerror(number)
            for path, number in zip(left, numbers, strict=False)
            if number in _OF_DEVICE
        }
        hung += left[len(numbers) : len(numbers) + 1]
        left = left[len(numbers) + 1 :]
    return refused, tuple(hung)


def _tried(paths: tuple[str, ...], deadline_s: float) -> list[int]:
    import sys  # noqa: PLC0415 - used here only

    from cdigen.host.childprocess import run  # noqa: PLC0415 - rarely used

    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "open_child.py")
    try:
        ending = run((sys.executable, "-I", "-S", program, *paths), deadline_s=deadline_s)
    except (OSError, ValueError):
        return []
    return [int(line) for line in ending.output.split(b"\n")[:-1] if line.isdigit()][: len(paths)]
