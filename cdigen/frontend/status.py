"""``status.json``: the status that a long-running process reports, and whether it still runs.

Writers combine ``header`` with their own parts and save that (``rundir``); readers call ``read_status`` and
``reason_not_running``. A reader sees the whole old content or the whole new one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import suppress

from cdigen import __version__
from cdigen.frontend.owner import this_owner
from cdigen.frontend.rundir import RUN_DIRECTORY, STATUS_FILE
from cdigen.model.timestamps import timestamp
from cdigen.store.directory import open_existing
from cdigen.store.lock import LOCK_FILE
from cdigen.store.snapshot import NO_FILE, take_snapshot
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MAX_STATUS = 8 << 20
# Members of every status.
_HEADER = {
    "state": str,
    "since": str,
    "version": str,
    "pid": int,
    "pid_started": int,
    "pid_namespace": str,
    "started": str,
}


@frozen
class Process:
    """A process, identified so that a later process with the same number is not taken for it.

    ``owner``: who runs it, such as a pod (``frontend.owner``), "" where that has no name.
    """

    pid: int
    started: int
    namespace: str
    owner: str = ""


def this_process() -> Process:
    """Return the present process."""
    pid = os.getpid()
    return Process(pid=pid, started=_started(pid) or 0, namespace=_namespace(), owner=this_owner())


def header(process: Process, *, schema: int, state: str, since_s: float, started_s: float) -> dict[str, Any]:
    """Return the members that every process's status document has."""
    return {
        "schema": schema,
        "state": state,
        "since": timestamp(since_s),
        "version": __version__,
        "pid": process.pid,
        "pid_started": process.started,
        "pid_namespace": process.namespace,
        "owner": process.owner,
        "started": timestamp(started_s),
    }


def owner_of(found: Mapping[str, Any]) -> str:
    """Return who runs the process that wrote the document FOUND (``frontend.owner``), "" if unknown. Pure."""
    owner = found.get("owner")
    return owner if isinstance(owner, str) and owner.isprintable() else ""


def process_of(found: Mapping[str, Any]) -> str:
    """Return which process wrote the document FOUND, and who runs it, as far as it says that. Pure."""
    owner, process = owner_of(found), f"process {found['pid']}"
    if not owner:
        return process
    return f"{process} of {owner}" if owner.startswith("pod ") else f"{process} ({owner})"


def read_status(run_dir: str, *, schema: int, parts: Mapping[str, type]) -> dict[str, Any] | None:
    """Return the status in RUN_DIR, an object of SCHEMA with PARTS besides the header; None: there is none.

    ValueError: the file is not such a status, and why. StoreError: it cannot be read.
    """
    with open_existing(os.path.abspath(run_dir), what=RUN_DIRECTORY) as place:
        present = NO_FILE if place is None else take_snapshot(place, STATUS_FILE, limit=MAX_STATUS)
    if present == NO_FILE:
        return None
    if present.content is None:
        raise ValueError(f"it is {present.description}")
    try:
        found = json.loads(present.content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from None
    number = found.get("schema") if isinstance(found, dict) else None
    if number != schema:
        raise ValueError(f"its schema is {ascii(number)[:40]}, not {schema}")
    wanted = _HEADER | dict(parts)
    if wrong := [name for name, kind in wanted.items() if not isinstance(found.get(name), kind)]:
        raise ValueError(f"its member {wrong[0]!r} is not {_NAMES[wanted[wrong[0]]]}")
    document: dict[str, Any] = found
    return document


_NAMES = {str: "a text", int: "a number", list: "a list", dict: "an object"}


def foreign_owner(run_dir: str) -> int | None:
    """Return which other user put a status into RUN_DIR; None if it was root or our own user, or nobody."""
    for path in (run_dir, f"{run_dir}/{STATUS_FILE}"):
        with suppress(OSError):
            if (owner := os.lstat(path).st_uid) not in {0, os.geteuid()}:
                return owner
    return None


def reason_not_running(run_dir: str, found: Mapping[str, Any]) -> str:
    """Return why the daemon that wrote the document FOUND is not running, "" if it seems to run.

    The lock shows that, wherever the daemon runs; a user who may not open it uses the process number, which
    is valid only within one pid namespace.
    """
    pid = max(1, found["pid"])  # to kill(2), other numbers mean groups of processes
    held = is_held(f"{run_dir}/{LOCK_FILE}")
    if held is not None:
        return "" if held else f"process {pid} wrote it, but no process holds {run_dir}/{LOCK_FILE}"
    if found["pid_namespace"] != _namespace():
        return ""
    if not _exists(pid):
        return f"process {pid}, which wrote it, is gone"
    started = _started(pid)
    if found["pid_started"] and started is not None and started != found["pid_started"]:
        return f"process {pid} wrote it, and that number belongs to another process now"
    return ""


def is_held(path: str) -> bool | None:
    """Return whether a process holds the lock at PATH; None if unknown."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return True if error.errno == errno.EWOULDBLOCK else None
    else:
        return False
    finally:
        os.close(fd)


def _exists(pid: int) -> bool:
    """Return whether there is a process PID; /proc may hide those of others (hidepid in proc(5))."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> int | None:
    """Return when the process PID began, in clock ticks after boot (field 22 of proc(5)'s stat)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in field 2 may hold spaces and brackets.
            return int(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
