"""Try whether device nodes can be opened, in a child process: ``unopenable``."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# No device that is awake takes as long.
DEADLINE_S = 5.0
# The driver has no device behind the node, or cannot start it. Others (permissions, rules of a control group,
# a node that is gone) say nothing of the device.
_OF_DEVICE = {errno.EIO, errno.ENXIO, errno.ENODEV}


def unopenable(
    paths: Iterable[str], *, deadline_s: float = DEADLINE_S
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return which of the nodes at PATHS their driver refuses to open, with its reason, and which hang.

    To open a node may wake its device: leave out those that sleep. One that hangs costs DEADLINE_S. Never
    raises: where no process can be started, all are said to hang.
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
    import sys  # noqa: PLC0415 - only here

    from cdigen.host.childprocess import run  # noqa: PLC0415 - seldom

    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "open_child.py")
    try:
        ending = run((sys.executable, "-I", "-S", program, *paths), deadline_s=deadline_s)
    except (OSError, ValueError):
        return []
    return [int(line) for line in ending.output.split(b"\n")[:-1] if line.isdigit()][: len(paths)]
