"""Find the processes that have device nodes open, by a child process (``read_open_files``)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

PROGRAM = str(Path(__file__).parent / "open_files_child.py")


def read_open_files(
    mode: Literal["numbers", "fdinfo"], proc: str, numbers: Iterable[str], *, deadline_s: float
) -> tuple[tuple[tuple[int, str], ...], int]:
    """Return pairs of a process and an open node, and the number of processes that could not be read.

    PROC is the folder of the processes. NUMBERS are the device numbers of the nodes (``195:0``). The first
    value of a pair is the process ID. The second value is the number of the node, or the fdinfo of the open
    file, as MODE selects. Raises OSError or ValueError if the child process has no valid output, for example
    after the deadline.
    """
    from cdigen.host import childprocess  # noqa: PLC0415 - most runs of cdigen start no child

    command = (os.path.realpath(sys.executable), "-I", "-S", PROGRAM, mode, proc, *numbers)
    reply = json.loads(childprocess.run(command, deadline_s=deadline_s).output)
    return tuple((pid, text) for pid, text in reply["found"]), reply["unread"]
