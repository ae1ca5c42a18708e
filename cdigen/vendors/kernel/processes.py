"""Name the processes that use devices: ``process_name``."""

from __future__ import annotations

from cdigen.host.procfs import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

# TASK_COMM_LEN is 16, and kernel threads show up to 64 (fs/proc/array.c, proc_task_name).
MAX_NAME = 64


def process_name(host: Root, pid: int) -> str:
    """Return the name of the process PID of HOST, or an empty string where there is none (any more).

    A process chooses its name itself, any bytes: what cannot be printed becomes ``?``.
    """
    try:
        name = read_text(host, f"/proc/{pid}/comm", limit=4 * MAX_NAME).removesuffix("\n")
    except OSError:
        return ""
    return "".join(mark if mark.isprintable() else "?" for mark in name)[:MAX_NAME]
