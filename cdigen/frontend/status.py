"""The daemon's state as files for everybody: ``status.json`` and ``inventory.json`` in the run directory.

``save`` and ``save_inventory`` are the daemon's, ``read`` and ``reason_not_running`` those of ``cdigen
status``. A reader
sees the old content or the new, whole; both files are world-readable, and hold nothing that the specs and
``cdigen inspect`` do not show as well.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from contextlib import contextmanager, suppress

from cdigen.frontend.statusshape import SCHEMA, parse
from cdigen.host.root import shown
from cdigen.model.errors import HostError, StoreError
from cdigen.model.inventory_json import to_document
from cdigen.runtimes.daemon_service import SYSTEMD
from cdigen.store import tempfiles
from cdigen.store.directory import open_existing, open_owned
from cdigen.store.lock import LOCK_FILE
from cdigen.store.snapshot import NO_FILE, take_snapshot
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cdigen.frontend.report import CycleReport, DaemonStatus, JournalEntry, SpecReport, VendorReport
    from cdigen.model.inventory import Inventory
    from cdigen.runtimes.daemon_service import DaemonService
    from cdigen.store.directory import Directory

RUN_DIR = "/run/cdigen"
RUN_DIRECTORY = "run directory"
STATUS_FILE = "status.json"
INVENTORY_FILE = "inventory.json"
MAX_STATUS = 8 << 20


@frozen
class Process:
    """A process so named that its number, used again by another, is not taken for it."""

    pid: int
    started: int
    namespace: str


def this_process() -> Process:
    """Return the process that runs this."""
    pid = os.getpid()
    return Process(pid=pid, started=_started(pid) or 0, namespace=_namespace())


def prepare(run_dir: str) -> None:
    """Make the run directory, and remove what a writer that was killed left there.

    StoreError: the system refused, or others may write to it.
    """
    with _own(run_dir) as place:
        tempfiles.sweep(place)


def save(run_dir: str, found: Mapping[str, Any]) -> None:
    """Put the document FOUND into the run directory as the status. StoreError: the system refused."""
    text = json.dumps(found, ensure_ascii=True, indent=1)
    with _own(run_dir) as place:
        _put(place, STATUS_FILE, f"{text}\n".encode("ascii"))


def save_inventory(run_dir: str, inventories: Mapping[str, Inventory]) -> bool:
    """Put INVENTORIES into the run directory; returns whether that changed the file.

    A file that holds them already stays untouched, so that whoever watches it wakes up for a reason.
    StoreError: the system refused.
    """
    text = json.dumps(to_document(inventories), ensure_ascii=True, indent=1)
    content = f"{text}\n".encode("ascii")
    with _own(run_dir) as place:
        present = None
        with suppress(StoreError):  # writing it will tell what is wrong
            present = take_snapshot(place, INVENTORY_FILE, limit=len(content))
        if present is not None and present.content == content and present.mode == tempfiles.MODE:
            return False
        _put(place, INVENTORY_FILE, content)
        return True


def remove(run_dir: str) -> None:
    """Remove the status of a daemon that ends; the inventory stays, as the specs do."""
    # Where that fails, ``cdigen status`` sees by the lock that nobody is there.
    with suppress(StoreError, OSError), open_existing(run_dir, what=RUN_DIRECTORY) as place:
        if place is not None:
            os.unlink(STATUS_FILE, dir_fd=place.fd)


@contextmanager
def _own(run_dir: str) -> Iterator[Directory]:
    """Open the run directory, which others may have removed since, and make sure that it is ours."""
    with open_owned(run_dir, what=RUN_DIRECTORY) as place:
        yield place


def _put(place: Directory, name: str, content: bytes) -> None:
    """Make CONTENT the file NAME, in the place of whatever has that name: a link is not followed."""
    with tempfiles.staged(place, name, content) as staged:
        tempfiles.rename_into_place(staged, place, name)


def document(status: DaemonStatus, process: Process) -> dict[str, Any]:
    """Return STATUS as the JSON document that ``cdigen status --json`` prints. Pure."""
    cycle = status.cycle
    return {
        "schema": SCHEMA,
        "state": status.state,
        "since": timestamp(status.since_s),
        "version": status.version,
        "pid": process.pid,
        "pid_started": process.started,
        "pid_namespace": process.namespace,
        "started": timestamp(status.started_s),
        "last_success": None if status.last_success_s is None else timestamp(status.last_success_s),
        "vendors": [_vendor(vendor) for vendor in status.vendors],
        "specs": [_spec(spec) for spec in status.specs],
        "findings": [finding.row() for finding in cycle.findings] if cycle else [],
        "last_cycle": _cycle(cycle) if cycle else {},
        "sources": {name: {"healthy": not text, "problem": text} for name, text in status.sources},
        "journal": [_journaled(entry) for entry in status.journal],
    }


def timestamp(seconds: float) -> str:
    """Return a wall-clock time as ISO 8601 in UTC, with milliseconds."""
    milliseconds = round(seconds * 1000)
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    return f"{whole}.{milliseconds % 1000:03}Z"


def read(run_dir: str, service: DaemonService = SYSTEMD) -> dict[str, Any]:
    """Return the document in the run directory of a daemon that is handled as SERVICE says.

    HostError: there is none. StoreError: it cannot be read, or is no status of a cdigen as we know it.
    """
    path = os.path.join(run_dir, STATUS_FILE)
    with open_existing(os.path.abspath(run_dir), what=RUN_DIRECTORY) as place:
        present = NO_FILE if place is None else take_snapshot(place, STATUS_FILE, limit=MAX_STATUS)
    if present == NO_FILE:
        raise HostError(
            f"no cdigen daemon has a status here: {shown(path)} does not exist",
            hint=service.started(),
            kind="no-daemon",
        )
    try:
        if present.content is None:
            raise ValueError(f"it is {present.description}")
        return parse(present.content)
    except ValueError as error:
        raise StoreError(
            f"{shown(path)} is no status of this cdigen: {error}",
            hint=f"remove it; the daemon writes it anew when it is restarted: {service.restart}",
        ) from None


def foreign_owner(run_dir: str) -> int | None:
    """Return who else has put a status into RUN_DIR; None where root or who runs this has, or nobody."""
    for path in (run_dir, f"{run_dir}/{STATUS_FILE}"):
        with suppress(OSError):
            if (owner := os.lstat(path).st_uid) not in {0, os.geteuid()}:
                return owner
    return None


def reason_not_running(run_dir: str, found: Mapping[str, Any]) -> str:
    """Return why the daemon that wrote the document FOUND is not running, "" as far as can be told.

    The lock tells, wherever the daemon runs; who may not open it has the process number, which counts only
    within its own pid namespace.
    """
    pid = max(1, found["pid"])  # other numbers mean groups of processes to kill(2)
    held = is_held(f"{run_dir}/{LOCK_FILE}")
    if held is not None:
        return "" if held else f"process {pid} wrote it, and nobody holds {run_dir}/{LOCK_FILE}"
    if found["pid_namespace"] != _namespace():
        return ""
    if not _exists(pid):
        return f"process {pid} wrote it, and is gone"
    started = _started(pid)
    if found["pid_started"] and started is not None and started != found["pid_started"]:
        return f"process {pid} wrote it, and that number belongs to another process now"
    return ""


def is_held(path: str) -> bool | None:
    """Return whether a process holds the lock at PATH; None where that cannot be told."""
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


def _vendor(vendor: VendorReport) -> dict[str, Any]:
    return {
        "vendor": vendor.vendor,
        "state": vendor.state,
        "since": timestamp(vendor.since_s),
        "reason": vendor.reason,
        "hint": vendor.hint,
    }


def _spec(spec: SpecReport) -> dict[str, Any]:
    return {
        "kind": spec.kind,
        "file": spec.file,
        "result": spec.result,
        "reason": spec.reason,
        "devices": {"served": spec.served, "left_out": spec.left_out},
        "written": None if spec.written_s is None else timestamp(spec.written_s),
        "changes": spec.changes.summary() if spec.changes is not None and spec.changes.any() else "",
    }


def _cycle(cycle: CycleReport) -> dict[str, Any]:
    return {
        "number": cycle.number,
        "started": timestamp(cycle.started_s),
        "duration_s": round(cycle.duration_s, 6),
        "result": cycle.result,
        "error": cycle.error,
        "events": cycle.events,
        "reasons": [{"source": trigger.source, "reason": trigger.reason} for trigger in cycle.reasons],
    }


def _journaled(entry: JournalEntry) -> dict[str, Any]:
    return {
        "at": timestamp(entry.at_s),
        "cycle": entry.cycle,
        "reasons": list(entry.reasons),
        "kind": entry.kind,
        "file": entry.file,
        "result": entry.result,
        "summary": entry.summary,
        "added": list(entry.added),
        "removed": list(entry.removed),
        "changed": list(entry.changed),
        "edits": list(entry.edits),
    }
