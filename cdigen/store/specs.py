"""Write and remove spec files: ``publish``, ``withdraw``; ``recorded`` returns the record of both.

docs/cdi.md, "Writing", has the protocol. A reader of the directory sees the whole old content or the whole
new one. Only files that the state file records as ours are replaced or removed; all others are foreign, and
at most moved aside under a name that no runtime loads. All of it happens under the lock.
"""

from __future__ import annotations

import os
import posixpath
import time
from contextlib import ExitStack, nullcontext, suppress

from cdigen.host.root import shown
from cdigen.model.errors import SpecError, StoreError
from cdigen.model.findings import Finding
from cdigen.model.names import SPEC_SUFFIXES
from cdigen.store import state as states
from cdigen.store import tempfiles
from cdigen.store.directory import (
    STATE_DIRECTORY,
    open_existing,
    open_or_create,
    open_owned,
    require_owned,
    writable_by_others,
)
from cdigen.store.failures import store_error
from cdigen.store.lock import exclusive
from cdigen.store.snapshot import NO_FILE, identity, read_all, take_snapshot
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from cdigen.store.directory import Directory
    from cdigen.store.snapshot import FileSnapshot
    from cdigen.store.state import OwnedSpec, State

    Result = Literal["written", "unchanged"]
    Removal = Literal["removed", "absent", "foreign"]


@frozen
class PublishedSpec:
    """The result for a spec: its path, whether it was written, foreign files that were moved aside."""

    path: str
    result: Result
    set_aside: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def publish(  # noqa: PLR0913  what, where, whose, checked how; the rest has defaults
    directory: str,
    name: str,
    content: bytes,
    *,
    kind: str,
    state_dir: str,
    check: Callable[[bytes], None],
    driver: str = "",
    replace_foreign: bool = False,
    also_set_aside: tuple[str, ...] = (),
    now: Callable[[], float] = time.time,
) -> PublishedSpec:
    """Write CONTENT, the spec of KIND, into the file NAME of DIRECTORY.

    CHECK gets the bytes as read back from the disk and raises to refuse them. DRIVER is the driver version
    that the spec is for, if any. ``also_set_aside`` names foreign files of the same directory that are also
    moved aside. A file with the same bytes, mode and owner is not touched, and is ours from then on.

    SpecError: NAME is a foreign file and ``replace_foreign`` is not set. StoreError: the system refused
    (space, permission, read-only, the lock). Either leaves the directory as it was.
    """
    if posixpath.basename(name) != name or not name.endswith(SPEC_SUFFIXES):
        raise ValueError(f"not a spec file's name: {name!r}")
    with (
        open_owned(state_dir, what=STATE_DIRECTORY) as home,
        exclusive(home),
        open_or_create(directory) as place,
    ):
        tempfiles.sweep(home)
        tempfiles.sweep(place)
        state, findings = states.read_for_update(home)
        write = _Write(
            place=place,
            name=name,
            content=content,
            kind=kind,
            driver=driver,
            home=home,
            state=state,
            present=take_snapshot(place, name),
        )
        aside = tuple(other for other in also_set_aside if other != name)
        if _is_foreign(write):
            if not replace_foreign:
                raise _foreign(write, findings)
            aside = (name, *aside)
        moved = _put_in_place(write, aside, check, now)
        return PublishedSpec(
            path=place.file(name),
            result="unchanged" if _is_done(write) else "written",
            set_aside=moved,
            findings=(*findings, *_exposed(place), *_record_last(write)),
        )


def _put_in_place(
    write: _Write, aside: tuple[str, ...], check: Callable[[bytes], None], now: Callable[[], float]
) -> tuple[str, ...]:
    """Carry out WRITE unless it is done, and move the files ASIDE away; returns their new paths."""
    if _is_done(write):
        check(write.content)
        return _exchange(write, None, aside, now)
    with tempfiles.staged(write.place, write.name, write.content) as staged:
        check(_read_back(staged, write))
        _record(write, _digests_during(write))
        return _exchange(write, staged, aside, now)


def recorded(directory: str, *, state_dir: str) -> tuple[tuple[OwnedSpec, ...], tuple[Finding, ...]]:
    """Return what the state file records of the files of DIRECTORY, and what is wrong with it.

    A record stays when its file is removed or edited; ``withdraw`` finds that out. StoreError: the state file
    or the directory cannot be read.
    """
    with open_existing(state_dir, what=STATE_DIRECTORY) as home, open_existing(directory) as place:
        if home is None or place is None:
            return (), ()
        state, findings = states.read_only(home)
        return state.within(place.real), findings


def withdraw(directory: str, name: str, *, state_dir: str, dry_run: bool = False) -> Removal:
    """Remove our own spec file; a foreign file is left alone. With DRY_RUN only return what would happen.

    ``foreign``: it was ours and has been changed since. StoreError: the system refused.
    """
    with open_existing(state_dir, what=STATE_DIRECTORY) as home, open_existing(directory) as place:
        if home is None or place is None:
            return "absent"
        # Only the state says what is ours and may be removed.
        require_owned(home, what=STATE_DIRECTORY)
        with nullcontext() if dry_run else exclusive(home):
            if not dry_run:
                tempfiles.sweep(place)
            state, _ = states.read_only(home)
            present = take_snapshot(place, name)
            if not state.owns(place.record(name), present.content):
                changed = present != NO_FILE and state.of(place.record(name)) is not None
                return "foreign" if changed else "absent"
            if dry_run:
                return "removed"
            try:
                os.unlink(name, dir_fd=place.fd)
            except OSError as error:
                raise store_error("cannot remove", place.file(name), error) from error
            tempfiles.fsync_directory(place)
            # The file is gone: if its record stays, for lack of space, it makes no other file ours.
            with suppress(StoreError):
                states.write(home, state.forgetting(place.record(name)))
            return "removed"


@frozen
class _Write:
    # One publication: the wanted file, and the state when the lock was taken.
    place: Directory
    name: str
    content: bytes
    kind: str
    driver: str
    home: Directory
    state: State
    present: FileSnapshot


def _is_done(write: _Write) -> bool:
    # A wrong mode or owner is fixed by writing anew: a chmod wakes no runtime's watch (docs/cdi.md,
    # "Watching"), and another user could change their file meanwhile.
    present = write.present
    mine = present.mode == tempfiles.MODE and present.uid == os.geteuid()
    return mine and present.content == write.content


def _is_ours(write: _Write) -> bool:
    return write.state.owns(write.place.record(write.name), write.present.content)


def _is_foreign(write: _Write) -> bool:
    present = write.present
    return present != NO_FILE and present.content != write.content and not _is_ours(write)


def _foreign(write: _Write, findings: tuple[Finding, ...]) -> SpecError:
    # A damaged state file is part of the reason: the file may have been ours.
    path = shown(write.place.file(write.name))
    reasons = "".join(f"; {finding.message}" for finding in findings)
    return SpecError(
        f"{path}: {write.present.description} not known as ours is here and was not replaced{reasons}",
        hint="see whether it is still needed; 'cdigen generate --write --replace-foreign' moves it aside",
        kind="foreign-file",
    )


def _exposed(place: Directory) -> tuple[Finding, ...]:
    """Return the finding for a spec directory that others may write to.

    It is written to nevertheless: our spec makes that no worse.
    """
    if not (problem := writable_by_others(place)):
        return ()
    return (
        Finding(
            severity="warning",
            rule="spec-directory-exposed",
            path=place.path,
            message=f"{shown(place.path)} {problem}: who adds a spec there can get any file of the host",
            hint=f"'chown root:root' and 'chmod go-w' it, or take {shown(place.path)} out of spec_dirs",
        ),
    )


def _read_back(staged: tempfiles.Staged, write: _Write) -> bytes:
    try:
        return read_all(staged.fd)
    except OSError as error:
        raise store_error("cannot read back", write.place.file(write.name), error) from error


def _exchange(
    write: _Write, staged: tempfiles.Staged | None, aside: tuple[str, ...], now: Callable[[], float]
) -> tuple[str, ...]:
    # Foreign files are moved away before ours is written; if that fails, they are moved back.
    place = write.place
    leaving = [name for name in dict.fromkeys(aside) if _identity(place, name) is not None]
    if staged is not None and _identity(place, write.name) != write.present.identity:
        raise StoreError(
            f"{shown(place.file(write.name))}: another program changed it meanwhile",
            hint="run the command again",
        )
    moved: list[str] = []
    with ExitStack() as undo:
        for name in leaving:
            moved.append(_move_aside(place, name, now))
            undo.callback(_rename, place, moved[-1], name, "cannot move back")
        if staged is not None:
            tempfiles.rename_into_place(staged, place, write.name)
        undo.pop_all()
    if staged is not None or moved:
        tempfiles.fsync_directory(place)
    return tuple(place.file(name) for name in moved)


def _move_aside(place: Directory, name: str, now: Callable[[], float]) -> str:
    # The extension (from the last dot on) is neither .json nor .yaml, so no runtime loads it.
    base = f"{name}.foreign-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now()))}"
    aside = base
    number = 1
    while _identity(place, aside) is not None:
        number += 1
        aside = f"{base}-{number}"
    _rename(place, name, aside, "cannot move aside")
    return aside


def _rename(place: Directory, name: str, to: str, what: str) -> None:
    try:
        os.rename(name, to, src_dir_fd=place.fd, dst_dir_fd=place.fd)
    except OSError as error:
        raise store_error(what, place.file(name), error) from error


def _identity(place: Directory, name: str) -> tuple[int, ...] | None:
    try:
        return identity(place, name)
    except OSError as error:
        raise store_error("cannot look at", place.file(name), error) from error


def _digests_during(write: _Write) -> tuple[str, ...]:
    # The old file stays ours until the rename, the new one is ours from the rename on.
    ours = write.present.content if _is_ours(write) else None
    before = () if ours is None else (states.digest(ours),)
    return tuple(dict.fromkeys((*before, states.digest(write.content))))


def _record(write: _Write, digests: tuple[str, ...]) -> None:
    path = write.place.record(write.name)
    owned = states.OwnedSpec(path=path, kind=write.kind, digests=digests, driver=write.driver)
    if write.state.of(path) != owned:
        states.write(write.home, write.state.recording(owned))


def _record_last(write: _Write) -> tuple[Finding, ...]:
    # The spec is in place and recorded already: one digest too many is no failure.
    try:
        _record(write, (states.digest(write.content),))
    except StoreError as error:
        path = write.home.file(states.STATE_FILE)
        return (
            Finding(
                severity="warning",
                rule="state-not-written",
                path=path,
                message=error.message,
                hint=error.hint,
            ),
        )
    return ()
