"""``status.json``: the status of a long-running process, and whether the process still runs.

A writer combines ``header`` with its own parts, and saves the result with a ``StatusWriter``. A reader calls
``read_service``, or ``read_status`` and ``reason_not_running``. A reader always reads the complete old
content or the complete new content.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import time
from contextlib import suppress

from cdigen import __version__
from cdigen.model.times.timestamps import timestamp
from cdigen.service.process.instance import this_instance
from cdigen.service.rundir import STATUS_FILE, save_status
from cdigen.store.directory import RUN_DIRECTORY, open_existing
from cdigen.store.lock import LOCK_FILE
from cdigen.store.records.state_file import SCHEMA, read_json
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.service.rundir import RunDirectory

# Seconds between attempts after a failed write. No event occurs when a full disk has space again.
_RETRY_S = 5.0
MAX_STATUS = 8 << 20
# The state of a process that was killed. ``read_service`` finds this state.
ENDED = "ended"
# The fields of every status, with their types.
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
class ServiceProcess:
    """A process, with the facts that distinguish it from a later process with the same process ID.

    ``instance`` is the pod, container or service of the process (``process.instance``), or "" if unknown.
    """

    pid: int
    started: int
    namespace: str
    instance: str = ""


def this_process() -> ServiceProcess:
    """Return this process."""
    pid = os.getpid()
    return ServiceProcess(
        pid=pid, started=_started(pid) or 0, namespace=_namespace(), instance=this_instance()
    )


def header(process: ServiceProcess, *, state: str, since_s: float, started_s: float) -> dict[str, Any]:
    """Return the fields that the status document of every process has."""
    return {
        "schema": SCHEMA,
        "state": state,
        "since": timestamp(since_s),
        "version": __version__,
        "pid": process.pid,
        "pid_started": process.started,
        "pid_namespace": process.namespace,
        "instance": process.instance,
        "started": timestamp(started_s),
    }


class StatusWriter:
    """Writes the result of DOCUMENT to RUN_DIRECTORY as the status, at most once in LEAST_S seconds.

    ``due_s`` is the time by CLOCK at which the loop must call ``update`` again if nothing happens.
    """

    def __init__(
        self,
        run_directory: RunDirectory,
        document: Callable[[], Mapping[str, Any]],
        *,
        least_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.due_s = math.inf
        self._run_directory = run_directory
        self._document = document
        self._least_s = least_s
        self._clock = clock
        self._tried_s = -math.inf
        self._saved: Mapping[str, Any] = {}

    def update(self) -> None:
        """Write the status if it has changed, or if another program has removed the file.

        Raises ``LockHeld`` if another instance holds the run directory.
        """
        now_s, run_directory = self._clock(), self._run_directory
        self.due_s = self._tried_s + self._least_s
        if not run_directory.is_held:
            self.due_s = math.inf
        elif now_s >= self.due_s:
            document = self._document()
            self._tried_s, self.due_s = now_s, math.inf
            if document != self._saved or not run_directory.has_status():
                run_directory.keep()
                is_saved = run_directory.show(lambda run_dir: save_status(run_dir, document))
                self._saved = document if is_saved else {}
                self.due_s = math.inf if is_saved else now_s + _RETRY_S


def instance_of(found: Mapping[str, Any]) -> str:
    """Return the instance that wrote the document FOUND (``process.instance``), "" if unknown. Pure."""
    instance = found.get("instance")
    return instance if isinstance(instance, str) and instance.isprintable() else ""


def process_of(found: Mapping[str, Any]) -> str:
    """Return the process that wrote the document FOUND, and its instance if known. Pure."""
    instance, process = instance_of(found), f"process {found['pid']}"
    if not instance:
        return process
    return f"{process} of {instance}" if instance.startswith("pod ") else f"{process} ({instance})"


def read_status(run_dir: str, parts: Mapping[str, type]) -> dict[str, Any] | None:
    """Return the status in RUN_DIR, or None if there is no status.

    The status is an object with the number SCHEMA, the fields of ``header`` and the fields of PARTS (names
    and types). Raises ValueError with the reason if the file has other content, and StoreError if the file
    cannot be read.
    """
    with open_existing(os.path.abspath(run_dir), what=RUN_DIRECTORY) as directory:
        found = directory and read_json(directory, STATUS_FILE, limit=MAX_STATUS)
    if not found:
        return None
    members = _HEADER | dict(parts)
    if wrong := [name for name, kind in members.items() if not isinstance(found.get(name), kind)]:
        raise ValueError(f"its member {wrong[0]!r} is not {_NAMES[members[wrong[0]]]}")
    return found


def read_service(run_dir: str, parts: Mapping[str, type]) -> dict[str, Any] | None:
    """Return the status in RUN_DIR with the fields of PARTS, or None if there is no valid status.

    If the process was killed, ``state`` is ENDED, and ``reason`` describes how the end was detected. Raises
    StoreError if the file cannot be read.
    """
    try:
        found = read_status(run_dir, parts)
    except ValueError:
        return None
    if found is not None and (problem := reason_not_running(run_dir, found)):
        return {**found, "state": ENDED, "reason": problem}
    return found


_NAMES = {str: "a text", int: "a number", list: "a list", dict: "an object"}


def foreign_owner(run_dir: str) -> int | None:
    """Return the uid of another user who owns RUN_DIR or its status, or None. Root is never another user."""
    for path in (run_dir, f"{run_dir}/{STATUS_FILE}"):
        with suppress(OSError):
            if (owner := os.lstat(path).st_uid) not in {0, os.geteuid()}:
                return owner
    return None


def reason_not_running(run_dir: str, found: Mapping[str, Any]) -> str:
    """Return the reason why the daemon that wrote the document FOUND does not run, "" if it seems to run.

    The lock shows whether the daemon runs, also in another container. If the user may not open the lock, the
    function uses the process number, which is valid only within one pid namespace.
    """
    pid = max(1, found["pid"])  # kill(2) treats other numbers as groups of processes
    held = is_held(f"{run_dir}/{LOCK_FILE}")
    if held is not None:
        return "" if held else f"process {pid} wrote the status, but no process holds {run_dir}/{LOCK_FILE}"
    if found["pid_namespace"] != _namespace():
        return ""
    if not _exists(pid):
        return f"process {pid}, which wrote the status, is gone"
    started = _started(pid)
    if found["pid_started"] and started is not None and started != found["pid_started"]:
        return f"process {pid} wrote the status, but its number belongs to another process now"
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
    """Return whether a process PID exists. /proc may hide processes of other users (hidepid in proc(5))."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> int | None:
    """Return the start of the process PID in clock ticks after boot (proc(5), stat, field 22), or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in field 2 may contain spaces and brackets.
            return int(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
