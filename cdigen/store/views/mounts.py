"""Find the mounted views of this machine in the mount tables of all processes."""

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

# The inode number of the first PID namespace (PROC_PID_INIT_INO, linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"
# The mount tables of 1,000 containers with 100 mounts each need a tenth of this time. Pruning holds the lock
# during this time. Other processes wait for the lock for twice this time (store.lock).
TIME_LIMIT_S = 5.0


@frozen
class MountedViews:
    """The mounted views, each with the ID of a process that has the view mounted.

    ``problem`` is the reason why more views may be mounted, or "".
    """

    processes: dict[str, int]
    problem: str = ""


def mounted_views(names: Iterable[str], proc: str, *, time_limit_s: float = TIME_LIMIT_S) -> MountedViews:
    """Return the views in NAMES that are mounted completely or in part. PROC is the path of ``/proc``.

    A view is mounted if its name is a component of the root of a mount (proc_pid_mountinfo(5), field 4). The
    root is a path within the file system, so the mount points of the file system are irrelevant. A view is
    also treated as mounted if its name is in a mount point (field 5). Otherwise, the removal of the view
    could remove the files that are mounted there. If the function needs more than TIME_LIMIT_S, the result
    has a ``problem``. The limit is necessary because any user can make many mounts.
    """
    pending = {os.fsencode(name) for name in names}
    found: dict[str, int] = {}
    until = time.monotonic() + time_limit_s
    try:
        if problem := _why_incomplete(proc):
            return MountedViews(processes={}, problem=problem)
        pids = sorted(int(name) for name in os.listdir(proc) if name.isascii() and name.isdigit())
        read: set[str] = set()
        for pid in pids:
            namespace = _namespace(f"{proc}/{pid}")
            if namespace and namespace in read:
                continue
            for name in _mounted_in(f"{proc}/{pid}/mountinfo", pending, until):
                found.setdefault(os.fsdecode(name), pid)
                pending.discard(name)
            if not pending:
                break
            read.add(namespace)
    except TimeoutError:
        problem = f"too many mounts: reading all mount tables takes more than {time_limit_s:g} s"
        return MountedViews(processes=found, problem=problem)
    except OSError as error:
        problem = f"{shown(error.filename or proc)} cannot be read: {reason(error)}"
        return MountedViews(processes=found, problem=problem)
    return MountedViews(processes=found)


def _why_incomplete(proc: str) -> str:
    """Return the reason why PROC does not list all processes of the machine, or "" if it lists them all."""
    if os.readlink(f"{proc}/self/ns/pid") != _FIRST_NAMESPACE:
        return "this PID namespace does not contain the host's other processes"
    if not os.path.isdir(f"{proc}/1"):
        return f"{shown(proc)} hides processes (mount option hidepid)"
    return ""


def _namespace(process: str) -> str:
    # All processes of a mount namespace have the same mount table. If the namespace is unknown, the table of
    # each process is read.
    try:
        return os.readlink(f"{process}/ns/mnt")
    except OSError:
        return ""


def _mounted_in(path: str, wanted: set[bytes], until: float) -> set[bytes]:
    """Return the views in WANTED that are in the mount table PATH. For an ended process, the result is empty.

    Raise TimeoutError after UNTIL.
    """
    found: set[bytes] = set()
    try:
        for row in rows(path):
            fields = row.split(b" ", 5)
            if len(fields) > 4:
                found |= wanted.intersection((*fields[3].split(b"/"), *fields[4].split(b"/")))
            if time.monotonic() > until:
                raise TimeoutError
    except OSError as error:
        # EINVAL: a zombie process has no mounts.
        if error.errno in (EINVAL, ESRCH) or isinstance(error, FileNotFoundError):
            return set()
        raise
    return found
