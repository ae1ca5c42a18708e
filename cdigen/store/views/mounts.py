"""Find which views are mounted anywhere on this machine, from every process's mount table."""

from __future__ import annotations

import os
import time
from errno import EINVAL, ESRCH

from cdigen.host.mountinfo import rows
from cdigen.host.root import reason, shown
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The kernel's number of the first process namespace (PROC_PID_INIT_INO, linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"
# A thousand containers with a hundred mounts each take a tenth of that; pruning holds the lock, for which
# other processes wait twice that long (store.lock).
TIME_LIMIT_S = 5.0


@frozen
class MountedViews:
    """For each mounted view the number of a process that sees it; ``problem``: others may be mounted, too."""

    processes: dict[str, int]
    problem: str = ""


def mounted_views(names: Iterable[str], proc: str, *, time_limit_s: float = TIME_LIMIT_S) -> MountedViews:
    """Return which of the views NAMES are mounted, whole or in part, as PROC (``/proc``) shows it.

    A view counts as mounted wherever a mount's root within its file system (proc_pid_mountinfo(5),
    field 4) goes through its name, so the path at which its file system is mounted does not matter. What is
    not read within TIME_LIMIT_S is a ``problem``: any user can make as many mounts as they like.
    """
    wanted = {os.fsencode(name) for name in names}
    found: dict[str, int] = {}
    until = time.monotonic() + time_limit_s
    try:
        if problem := _blindness(proc):
            return MountedViews(processes={}, problem=problem)
        pids = sorted(int(name) for name in os.listdir(proc) if name.isascii() and name.isdigit())
        seen: set[str] = set()
        for pid in pids:
            namespace = _namespace(f"{proc}/{pid}")
            if namespace and namespace in seen:
                continue
            for name in _mounted_in(f"{proc}/{pid}/mountinfo", wanted, until):
                found.setdefault(os.fsdecode(name), pid)
                wanted.discard(name)
            if not wanted:
                break
            seen.add(namespace)
    except TimeoutError:
        problem = f"reading every process's mounts takes more than {time_limit_s:g} s: there are too many"
        return MountedViews(processes=found, problem=problem)
    except OSError as error:
        problem = f"{shown(error.filename or proc)} cannot be read: {reason(error)}"
        return MountedViews(processes=found, problem=problem)
    return MountedViews(processes=found)


def _blindness(proc: str) -> str:
    """Return why PROC does not show every process of the machine, or "" where it does."""
    if os.readlink(f"{proc}/self/ns/pid") != _FIRST_NAMESPACE:
        return "this process namespace does not show the host's other processes"
    if not os.path.isdir(f"{proc}/1"):
        return f"{shown(proc)} hides processes (mount option hidepid)"
    return ""


def _namespace(process: str) -> str:
    # Processes share tables; if the kernel does not tell which, each is read.
    try:
        return os.readlink(f"{process}/ns/mnt")
    except OSError:
        return ""


def _mounted_in(path: str, wanted: set[bytes], until: float) -> set[bytes]:
    """Return which of the views WANTED the table PATH has; none for a process that has ended.

    Raises TimeoutError as soon as it is later than UNTIL.
    """
    found: set[bytes] = set()
    try:
        for row in rows(path):
            fields = row.split(b" ", 4)
            if len(fields) > 4:
                found |= wanted.intersection(fields[3].split(b"/"))
            if time.monotonic() > until:
                raise TimeoutError
    except OSError as error:
        # EINVAL: a zombie no longer has mounts.
        if error.errno in (EINVAL, ESRCH) or isinstance(error, FileNotFoundError):
            return set()
        raise
    return found
