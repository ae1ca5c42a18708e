"""Remove views that nobody uses: ``prune``, and once in a boot ``prune_after_boot``.

Removing a view empties the mounts of running containers and breaks starts that have read an old spec. So a
view is removed only if no spec and no volume names it, no process has it mounted, and it and the specs are
not new; if any of these is unknown, it stays.
"""

from __future__ import annotations

import os
import re
import stat
import time

from cdigen.host.procfs import boot_id
from cdigen.host.root import Root, reason, shown
from cdigen.model.errors import StoreError
from cdigen.store.directory import STATE_DIRECTORY, open_existing, require_owned
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
from cdigen.store.views.mounts import mounted_views
from cdigen.store.views.volumes import led_to
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from cdigen.store.directory import Directory

    Result = Literal["removed", "removable", "kept", "failed"]

# A container that read a spec before it was replaced mounts its view within seconds: pulls come before.
GRACE_S = 60.0

_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_MENTION = re.compile(VIEW_NAME.pattern.encode())


@frozen
class PrunedView:
    """The result for a view and why; ``removable`` in a dry run, ``failed`` if the system refused."""

    name: str
    result: Result
    reason: str


@frozen
class _Specs:
    # From spec directories and volumes: which file or link names a view, when a spec directory was last
    # written, and why that may be incomplete.
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
    """Remove the unused views of STATE_DIR, and return the result for each view, by name.

    SPEC_DIRS are all directories where a spec, ours or foreign, may name a view. StoreError: the state
    directory or the views cannot be read, or the lock is held.
    """
    with (
        open_existing(state_dir, what=STATE_DIRECTORY) as home,
        open_existing(f"{state_dir}/{VIEWS}", what=VIEW_DIRECTORY) as place,
    ):
        if home is None or place is None:
            return ()
        if dry_run:
            return _judge(place, _read_names(state_dir, spec_dirs), proc, now())
        for directory, what in ((home, STATE_DIRECTORY), (place, VIEW_DIRECTORY)):
            require_owned(directory, what=what)
        with exclusive(home):
            sweep(place)
            judged = _judge(place, _read_names(state_dir, spec_dirs), proc, now())
            return tuple(_carried_out(place, row) if row.result == "removable" else row for row in judged)


def prune_after_boot(
    state_dir: str,
    *,
    spec_dirs: tuple[str, ...],
    proc: str = "/proc",
    now: Callable[[], float] = time.time,
) -> tuple[PrunedView, ...]:
    """Prune in the first cycle after a boot; returns () if this boot was already done.

    Called after views were published (which keeps them) and before specs are written. Where spec
    directories were written less than the grace time ago, this boot is not recorded as done, and the next
    cycle tries again.
    """
    with (
        open_existing(state_dir, what=STATE_DIRECTORY) as home,
        open_existing(f"{state_dir}/{VIEWS}", what=VIEW_DIRECTORY) as place,
    ):
        if home is None or place is None or pruned_in(place) == boot_id(Root()):
            return ()
        is_early = _is_young(_read_specs(spec_dirs).newest, now())
        rows = prune(state_dir, spec_dirs=spec_dirs, proc=proc, now=now)
        if not is_early:
            with exclusive(home):
                record_boot(place)
        return rows


def _judge(place: Directory, specs: _Specs, proc: str, now: float) -> tuple[PrunedView, ...]:
    names = view_names(place)
    reasons = {name: _needed(place, name, specs, now) for name in names}
    free = [name for name in names if not reasons[name]]
    # Reading every process's table is expensive, and usually no view is left to check.
    tables = mounted_views(free, proc) if free else None
    for name in free:
        if tables is not None and name in tables.processes:
            reasons[name] = f"process {tables.processes[name]} has it mounted"
        elif tables is not None:
            reasons[name] = tables.problem
    return tuple(
        PrunedView(name=name, result="kept", reason=text)
        if text
        else PrunedView(
            name=name, result="removable", reason="no spec or volume names it, no process has it mounted"
        )
        for name, text in reasons.items()
    )


def _needed(place: Directory, name: str, specs: _Specs, now: float) -> str:
    """Return why the view NAME must stay according to files and their times, or an empty text."""
    if name in specs.mentions:
        return f"{shown(specs.mentions[name])} names it"
    if specs.problem:
        return specs.problem
    try:
        made_at = os.stat(name, dir_fd=place.fd, follow_symlinks=False).st_mtime
    except OSError as error:
        return f"it cannot be looked at: {reason(error)}"
    if _is_young(made_at, now):
        return f"it was made or asked for less than {GRACE_S:g} s ago"
    if _is_young(specs.newest, now):
        return f"a spec directory was written less than {GRACE_S:g} s ago, and a start may be in flight"
    return ""


def _is_young(written: float, now: float) -> bool:
    # A time in the future means that the clock was set: it counts as young.
    return now - written < GRACE_S


def _carried_out(place: Directory, row: PrunedView) -> PrunedView:
    temporary = temporary_name(row.name)
    try:
        # Renamed first: after a kill it is swept up, and no half view keeps the name.
        os.rename(row.name, temporary, src_dir_fd=place.fd, dst_dir_fd=place.fd)
        fsync_directory(place)
        remove(place, temporary)
    except OSError as error:
        return PrunedView(name=row.name, result="failed", reason=f"cannot be removed: {reason(error)}")
    return PrunedView(name=row.name, result="removed", reason=row.reason)


def _read_names(state_dir: str, directories: tuple[str, ...]) -> _Specs:
    """Read what names a view: the files in DIRECTORIES, and the volumes of STATE_DIR."""
    specs = _read_specs(directories)
    try:
        return replace(specs, mentions={**led_to(state_dir), **specs.mentions})
    except StoreError as error:
        return replace(specs, problem=specs.problem or error.message)


def _read_specs(directories: tuple[str, ...]) -> _Specs:
    """Read every file in DIRECTORIES: a truncated spec, or one set aside, names a view as well."""
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
    """Add the views that the file PATH names to MENTIONS; returns when it was written."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return 0.0
        fd = os.open(path, _FILE)
    except FileNotFoundError:
        return 0.0  # gone meanwhile, or a link to nothing
    try:
        status = os.fstat(fd)
        if status.st_size > MAX_BYTES:
            raise OSError(0, f"larger than {MAX_BYTES} bytes", path)
        for name in _MENTION.findall(read_all(fd)):
            mentions.setdefault(name.decode(), path)
        return status.st_mtime
    finally:
        os.close(fd)
