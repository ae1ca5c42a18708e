"""Which views are mounted anywhere on this machine, by every process's own table of mounts."""

from __future__ import annotations

import os
from errno import EINVAL, ESRCH

from cdigen.host.root import reason, shown
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The kernel's number of the first process namespace (PROC_PID_INIT_INO, linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"


@frozen
class Mounted:
    """For each view that is mounted the number of a process that sees it; ``problem``: others may be, too."""

    processes: dict[str, int]
    problem: str = ""


def mounted(names: Iterable[str], proc: str) -> Mounted:
    """Return which of the views NAMES are mounted, whole or in part, as PROC (``/proc``) shows it.

    A view counts as mounted wherever a mount's root within its file system (proc_pid_mountinfo(5),
    field 4) goes through its name, so the path at which its file system is mounted does not matter.
    """
    wanted = frozenset(names)
    found: dict[str, int] = {}
    try:
        if problem := _blindness(proc):
            return Mounted(processes={}, problem=problem)
        pids = sorted(int(name) for name in os.listdir(proc) if name.isascii() and name.isdigit())
        seen: set[str] = set()
        for pid in pids:
            namespace = _namespace(f"{proc}/{pid}")
            if namespace and namespace in seen:
                continue
            for name in wanted & _roots(f"{proc}/{pid}/mountinfo"):
                found.setdefault(name, pid)
            seen.add(namespace)
    except OSError as error:
        problem = f"{shown(error.filename or proc)} cannot be read: {reason(error)}"
        return Mounted(processes=found, problem=problem)
    return Mounted(processes=found)


def _blindness(proc: str) -> str:
    """Return why PROC does not show every process of the machine, or "" where it does."""
    if os.readlink(f"{proc}/self/ns/pid") != _FIRST_NAMESPACE:
        return "this process namespace does not show the host's other processes"
    if not os.path.isdir(f"{proc}/1"):
        return f"{shown(proc)} hides processes (mount option hidepid)"
    return ""


def _namespace(process: str) -> str:
    # Processes share tables; where the kernel does not tell which, each is read.
    try:
        return os.readlink(f"{process}/ns/mnt")
    except OSError:
        return ""


def _roots(path: str) -> set[str]:
    """Return the parts of all roots of mounts in the table PATH; none for a process that has ended."""
    try:
        with open(path, "rb") as file:
            text = os.fsdecode(file.read())
    except OSError as error:
        # EINVAL: a zombie has no mounts any more.
        if error.errno in (EINVAL, ESRCH) or isinstance(error, FileNotFoundError):
            return set()
        raise
    roots = {line.split(" ", 4)[3] for line in text.splitlines() if line.count(" ") > 4}
    return {part for root in roots for part in root.split("/")}
