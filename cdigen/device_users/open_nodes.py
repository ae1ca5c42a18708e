"""The processes that have device nodes open: ``read_open_nodes`` reads them in a child process.

The read of open files of other processes requires CAP_SYS_PTRACE (proc(5)). cdigen.service does not have this
capability.
"""

from __future__ import annotations

from cdigen.value import frozen
from cdigen.vendors.kernel.open_files import read_open_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

DEADLINE_S = 2.0
_SYS_PTRACE = 1 << 19
NO_PTRACE = "the open files of other processes cannot be read without CAP_SYS_PTRACE"


@frozen
class OpenDeviceNodes:
    """Pairs of a process ID and the number (``195:0``) of an open device node, and the ``problem``."""

    nodes: tuple[tuple[int, str], ...] = ()
    problem: str = ""


def read_open_nodes(
    numbers: Iterable[str], *, proc: str = "/proc", status: str = "/proc/self/status"
) -> OpenDeviceNodes:
    """Return the processes of PROC that have device nodes with NUMBERS open; never raise."""
    if not _has_ptrace(status):
        return OpenDeviceNodes(problem=NO_PTRACE)
    try:
        nodes, unread = read_open_files("numbers", proc, numbers, deadline_s=DEADLINE_S)
    except (OSError, ValueError):
        return OpenDeviceNodes(problem="the open files of processes could not be read in time")
    problem = f"the open files of {unread} processes could not be read" if unread else ""
    return OpenDeviceNodes(nodes=tuple(sorted(nodes)), problem=problem)


def _has_ptrace(status: str) -> bool:
    """Return whether the process of the file STATUS has CAP_SYS_PTRACE."""
    try:
        with open(status, encoding="ascii", errors="replace") as file:
            row = next((line for line in file if line.startswith("CapEff:")), "CapEff: 0")
        return bool(int(row.split()[1], 16) & _SYS_PTRACE)
    except (OSError, ValueError, LookupError):
        return False
