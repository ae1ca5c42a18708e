"""Remove unused views with ``prune``, and once in each boot with ``prune_after_boot``.

If cdigen removed a used view, the mounts of running containers would be empty. A container would not start if
its runtime has read an old spec that names the view. Therefore, cdigen removes a view only if no spec and no
volume names the view, no process has mounted the view, and the view and the specs are older than GRACE_S. If
one of these conditions is unknown, the view stays.
"""

from __future__ import annotations

import os
import re
import stat
import time
from errno import EINVAL, ESRCH

from cdigen.host.mountinfo import rows
from cdigen.host.procfs import boot_id
from cdigen.host.root import Root, reason, shown
from cdigen.model.errors import StoreError
from cdigen.store.directory import STATE_DIRECTORY, open_existing, require_owned
from cdigen.store.failures import closing
from cdigen.store.lock import exclusive
from cdigen.store.snapshot import MAX_BYTES, read_all
from cdigen.store.tempfiles import fsync_directory, temporary_name
from cdigen.store.views.folder import (
    VIEW_DIRECTORY,
    VIEW_NAME,
    VIEWS,
    pruned_in,
    record_boot,
    remove,
    sweep,
    view_names,
)
from cdigen.store.views.volumes import linked_views
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Literal

    from cdigen.store.directory import Directory

    Result = Literal["removed", "removable", "kept", "failed"]

# Seconds. If a runtime read a spec before cdigen replaced the spec, the runtime mounts the view within
# seconds. A runtime pulls images before it reads specs.
GRACE_S = 60.0
# The inode number of the first PID namespace (PROC_PID_INIT_INO, linux/proc_ns.h).
_FIRST_NAMESPACE = "pid:[4026531836]"
# The mount tables of 1,000 containers with 100 mounts each need a tenth of this time. Pruning holds the lock
# during this time. Other processes wait for the lock for twice this time (store.lock).
TIME_LIMIT_S = 5.0

_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_MENTION = re.compile(VIEW_NAME.pattern.encode())


@frozen
class PrunedView:
    """The result for a view, with a reason."""

    name: str
    result: Result
    reason: str


@frozen
class _Specs:
    # The data from spec directories and volumes. ``mentions`` is view -> the file or link that names the
    # view. ``newest`` is the time of the last write to a spec directory. ``problem`` is the reason why the
    # data may be incomplete.
    mentions: dict[str, str]
    newest: float = 0.0
    problem: str = ""


def prune(
    state_dir: str,
    *,
    spec_dirs: tuple[str, ...],
    proc: str = "/proc",
    now: Callable[[], float] = time.time,
    dry_run: bool = False,
) -> tuple[PrunedView, ...]:
    """Remove the unused views of STATE_DIR, and return the result for each view, sorted by name.

    SPEC_DIRS are all directories with specs that may name a view. The specs can be foreign. In a dry run, the
    result of an unused view is ``removable``. If a system call failed, the result is ``failed``. Raises
    StoreError if the state directory or the views cannot be read, or another process holds the lock.
    """
    with (
        open_existing(state_dir, what=STATE_DIRECTORY) as home,
        open_existing(f"{state_dir}/{VIEWS}", what=VIEW_DIRECTORY) as views_dir,
    ):
        if home is None or views_dir is None:
            return ()
        if dry_run:
            return _judge(views_dir, _read_names(state_dir, spec_dirs), proc, now())
        for directory, what in ((home, STATE_DIRECTORY), (views_dir, VIEW_DIRECTORY)):
            require_owned(directory, what=what)
        with exclusive(home):
            sweep(views_dir)
            judged = _judge(views_dir, _read_names(state_dir, spec_dirs), proc, now())
            return tuple(_carried_out(views_dir, row) if row.result == "removable" else row for row in judged)


def prune_after_boot(
    state_dir: str,
    *,
    spec_dirs: tuple[str, ...],
    proc: str = "/proc",
    now: Callable[[], float] = time.time,
) -> tuple[PrunedView, ...]:
    """Prune in the first cycle after a boot. Return () if views were already pruned in this boot.

    The caller publishes its views before this call, so that they are not pruned, and writes the specs after
    this call. If a spec directory was written during the last GRACE_S seconds, the boot is not recorded. Then
    the next cycle prunes again.
    """
    with (
        open_existing(state_dir, what=STATE_DIRECTORY) as home,
        open_existing(f"{state_dir}/{VIEWS}", what=VIEW_DIRECTORY) as views_dir,
    ):
        if home is None or views_dir is None or pruned_in(views_dir) == boot_id(Root()):
            return ()
        is_early = _is_young(_read_specs(spec_dirs).newest, now())
        pruned = prune(state_dir, spec_dirs=spec_dirs, proc=proc, now=now)
        if not is_early:
            with exclusive(home):
                record_boot(views_dir)
        return pruned


def _judge(views_dir: Directory, specs: _Specs, proc: str, now: float) -> tuple[PrunedView, ...]:
    names = view_names(views_dir)
    reasons = {name: _needed(views_dir, name, specs, now) for name in names}
    free = [name for name in names if not reasons[name]]
    # Reading the mount tables of all processes is slow, and usually there is no view to check.
    tables = mounted_views(free, proc) if free else None
    for name in free:
        if tables is not None and name in tables.processes:
            reasons[name] = f"process {tables.processes[name]} has it mounted"
        elif tables is not None:
            reasons[name] = tables.problem
    unused = "no spec or volume names it, no process has it mounted"
    return tuple(
        PrunedView(name=name, result="kept" if text else "removable", reason=text or unused)
        for name, text in reasons.items()
    )


def _needed(views_dir: Directory, name: str, specs: _Specs, now: float) -> str:
    """Return the reason why the view NAME must stay, or "". Mounts are not examined."""
    if name in specs.mentions:
        return f"{shown(specs.mentions[name])} names it"
    if specs.problem:
        return specs.problem
    try:
        made_at = os.stat(name, dir_fd=views_dir.fd, follow_symlinks=False).st_mtime
    except OSError as error:
        return f"it cannot be examined: {reason(error)}"
    if _is_young(made_at, now):
        return f"it was made or requested less than {GRACE_S:g} s ago"
    if _is_young(specs.newest, now):
        return f"a spec directory was written less than {GRACE_S:g} s ago: a container may be starting"
    return ""


def _is_young(written: float, now: float) -> bool:
    # A time in the future is also new. It is possible if the clock was set back.
    return now - written < GRACE_S


def _carried_out(views_dir: Directory, row: PrunedView) -> PrunedView:
    temporary = temporary_name(row.name)
    try:
        # The view is renamed first. If the process is killed, no incomplete view has the name, and a sweep
        # removes the folder.
        os.rename(row.name, temporary, src_dir_fd=views_dir.fd, dst_dir_fd=views_dir.fd)
        fsync_directory(views_dir)
        remove(views_dir, temporary)
    except OSError as error:
        return PrunedView(name=row.name, result="failed", reason=f"cannot be removed: {reason(error)}")
    return PrunedView(name=row.name, result="removed", reason=row.reason)


def _read_names(state_dir: str, directories: tuple[str, ...]) -> _Specs:
    """Return the names of the views in the files of DIRECTORIES and in the volumes of STATE_DIR."""
    specs = _read_specs(directories)
    try:
        return replace(specs, mentions={**linked_views(state_dir), **specs.mentions})
    except StoreError as error:
        return replace(specs, problem=specs.problem or error.message)


def _read_specs(directories: tuple[str, ...]) -> _Specs:
    """Return the names of the views in all files of DIRECTORIES.

    A truncated or renamed spec can also name a view.
    """
    mentions: dict[str, str] = {}
    newest = 0.0
    problem = ""
    for directory in dict.fromkeys(directories):
        try:
            newest = max(newest, os.stat(directory).st_mtime)
            for name in sorted(os.listdir(directory)):
                newest = max(newest, _read_spec(f"{directory}/{name}", mentions))
        except FileNotFoundError:
            continue
        except OSError as error:
            path = shown(str(error.filename or directory))
            problem = problem or f"{path} cannot be read and may name it: {reason(error)}"
    return _Specs(mentions=mentions, newest=newest, problem=problem)


def _read_spec(path: str, mentions: dict[str, str]) -> float:
    """Add the views in the file PATH to MENTIONS, and return the modification time of the file."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return 0.0
        fd = os.open(path, _FILE)
    except FileNotFoundError:
        return 0.0  # the file was removed, or is a dangling link
    with closing(fd):
        status = os.fstat(fd)
        if status.st_size > MAX_BYTES:
            raise OSError(0, f"larger than {MAX_BYTES} bytes", path)
        for name in _MENTION.findall(read_all(fd)):
            mentions.setdefault(name.decode(), path)
        return status.st_mtime


# The mounted views, in the mount tables of all processes.


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
