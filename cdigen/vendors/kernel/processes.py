"""Read the names of processes (``process_name``)."""

from __future__ import annotations

from cdigen.host.procfs import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

# In characters. TASK_COMM_LEN is 16, but names of kernel threads have up to 64 characters (fs/proc/array.c,
# proc_task_name).
MAX_NAME = 64


def process_name(host: Root, pid: int) -> str:
    """Return the name of the process PID of HOST, or "" if the process does not exist.

    A process can set its name to any bytes. Therefore, unprintable characters are replaced by ``?``.
    """
    try:
        name = read_text(host, f"/proc/{pid}/comm", limit=4 * MAX_NAME).removesuffix("\n")
    except OSError:
        return ""
    return "".join(mark if mark.isprintable() else "?" for mark in name)[:MAX_NAME]
