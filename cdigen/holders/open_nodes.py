"""Who has device nodes open: ``read_open``, in a child process, where this one may look into others at all.

The files of others may be looked at with CAP_SYS_PTRACE alone (proc(5)), which cdigen.service has not.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from cdigen.host import childprocess
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PROGRAM = str(Path(__file__).parent / "open_nodes_child.py")
DEADLINE_S = 2.0
_SYS_PTRACE = 1 << 19
NO_RIGHT = "this process may not look into others (CAP_SYS_PTRACE)"


@frozen
class Open:
    """Pairs of a process and the number (``195:0``) of a node that it has open, or the ``problem``."""

    nodes: tuple[tuple[int, str], ...] = ()
    problem: str = ""


def read_open(numbers: Iterable[str], *, proc: str = "/proc", status: str = "/proc/self/status") -> Open:
    """Return which processes of PROC have nodes with NUMBERS open; never raises."""
    if not _may_look(status):
        return Open(problem=NO_RIGHT)
    command = (os.path.realpath(sys.executable), "-I", "-S", PROGRAM, proc, *numbers)
    try:
        told = json.loads(childprocess.run(command, deadline_s=DEADLINE_S).output)
        nodes = tuple((int(pid), str(number)) for pid, number in told["open"])
        unread = int(told["unread"])
    except (OSError, ValueError, LookupError, TypeError):
        return Open(problem="the processes could not be looked at in time")
    return Open(nodes=nodes, problem=f"{unread} processes could not be looked at" if unread else "")


def _may_look(status: str) -> bool:
    """Return whether the process of the file STATUS has CAP_SYS_PTRACE."""
    try:
        with open(status, encoding="ascii", errors="replace") as file:
            row = next((line for line in file if line.startswith("CapEff:")), "CapEff: 0")
        return bool(int(row.split()[1], 16) & _SYS_PTRACE)
    except (OSError, ValueError, LookupError):
        return False
