"""Write spec files (``publish``), remove them (``withdraw``), and read the record of them (``recorded``).

docs/explanation/how-specs-stay-correct.md, "Writing", describes the protocol. A reader of the directory
always finds the complete old content or the complete new content. cdigen replaces or removes only files
that the state file records. All other files are foreign. The only change to a foreign file is a rename to a
name that no runtime loads. cdigen holds the lock during all changes.
"""

from __future__ import annotations

import os
import posixpath
import time
from contextlib import ExitStack, nullcontext, suppress

from cdigen.host.root import shown
from cdigen.model.errors import SpecError, StoreError
from cdigen.model.findings import Finding, finding_of
from cdigen.model.names import SPEC_SUFFIXES
from cdigen.store import tempfiles
from cdigen.store.directory import (
    STATE_DIRECTORY,
    open_existing,
    open_or_create,
    open_owned,
    require_owned,
    writable_by_others,
)
from cdigen.store.failures import store_errors
from cdigen.store.lock import exclusive
from cdigen.store.records import owned_specs
from cdigen.store.snapshot import NO_FILE, identity, read_all, take_snapshot
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from cdigen.store.directory import Directory
    from cdigen.store.records.owned_specs import OwnedSpec, State
    from cdigen.store.snapshot import FileSnapshot

    Result = Literal["written", "unchanged"]
    Removal = Literal["removed", "absent", "foreign"]


@frozen
class PublishedSpec:
    """The result for a spec: its path, whether cdigen wrote it, the new paths of renamed foreign files."""

    path: str
    result: Result
    set_aside: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def publish(  # noqa: PLR0913  content, path, owner, check; all others have defaults
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

    CHECK gets the bytes that are read back from the disk, and raises an error if the bytes are invalid.
    DRIVER is the driver version of the spec, or "". ``also_set_aside`` are the names of more foreign files in
    the directory. The function renames these files. If the file already has CONTENT and the right mode and
    owner, the function does not write the file, but records it.

    Raises SpecError if NAME is a foreign file and ``replace_foreign`` is not set. Raises StoreError if there
    is no space or no permission, the file system is read-only, or another process holds the lock. After an
    error, the directory is unchanged.
    """
    if posixpath.basename(name) != name or not name.endswith(SPEC_SUFFIXES):
        raise ValueError(f"not a spec file's name: {name!r}")
    with (
        open_owned(state_dir, what=STATE_DIRECTORY) as home,
        exclusive(home),
        open_or_create(directory) as spec_dir,
    ):
        tempfiles.sweep(home)
        tempfiles.sweep(spec_dir)
        state, findings = owned_specs.read_for_update(home)
        write = _Write(
            spec_dir=spec_dir,
            name=name,
            content=content,
            kind=kind,
            driver=driver,
            home=home,
            state=state,
            present=take_snapshot(spec_dir, name),
        )
        aside = tuple(other for other in also_set_aside if other != name)
        if _is_foreign(write):
            if not replace_foreign:
                raise _foreign(write, findings)
            aside = (name, *aside)
        moved = _put_in_place(write, aside, check, now)
        return PublishedSpec(
            path=spec_dir.file(name),
            result="unchanged" if _is_done(write) else "written",
            set_aside=moved,
            findings=(*findings, *_exposed(spec_dir), *_record_last(write)),
        )


def _put_in_place(
    write: _Write, aside: tuple[str, ...], check: Callable[[bytes], None], now: Callable[[], float]
) -> tuple[str, ...]:
    """Write the spec if necessary, rename the foreign files ASIDE, and return their new paths."""
    if _is_done(write):
        check(write.content)
        return _exchange(write, None, aside, now)
    with tempfiles.staged(write.spec_dir, write.name, write.content) as staged:
        with store_errors("cannot read back", write.spec_dir.file(write.name)):
            content = read_all(staged.fd)
        check(content)
        _record(write, _digests_during(write))
        return _exchange(write, staged, aside, now)


def recorded(directory: str, *, state_dir: str) -> tuple[tuple[OwnedSpec, ...], tuple[Finding, ...]]:
    """Return the records of the state file for DIRECTORY, and the findings on the state file.

    A record stays if another program removes or edits the file. ``withdraw`` compares the file with the
    record. Raises StoreError if the state file or the directory cannot be read.
    """
    with open_existing(state_dir, what=STATE_DIRECTORY) as home, open_existing(directory) as spec_dir:
        if home is None or spec_dir is None:
            return (), ()
        state, findings = owned_specs.read_only(home)
        return state.within(spec_dir.real), findings


def withdraw(directory: str, name: str, *, state_dir: str, dry_run: bool = False) -> Removal:
    """Remove a spec file that cdigen wrote. With DRY_RUN, only return the result.

    The function never removes a foreign file. The result is ``foreign`` if another program changed the file
    after cdigen wrote it. Raises StoreError if a system call failed.
    """
    with open_existing(state_dir, what=STATE_DIRECTORY) as home, open_existing(directory) as spec_dir:
        if home is None or spec_dir is None:
            return "absent"
        # cdigen removes only files in the state file. Therefore, only trusted users may write to the state
        # directory.
        require_owned(home, what=STATE_DIRECTORY)
        with nullcontext() if dry_run else exclusive(home):
            if not dry_run:
                tempfiles.sweep(spec_dir)
            state, _ = owned_specs.read_only(home)
            present = take_snapshot(spec_dir, name)
            if not state.owns(spec_dir.record(name), present.content):
                changed = present != NO_FILE and state.of(spec_dir.record(name)) is not None
                return "foreign" if changed else "absent"
            if dry_run:
                return "removed"
            with store_errors("cannot remove", spec_dir.file(name)):
                os.unlink(name, dir_fd=spec_dir.fd)
            tempfiles.fsync_directory(spec_dir)
            # The file is removed. If the disk is full, the record of the file stays. The record then applies
            # to no file.
            with suppress(StoreError):
                owned_specs.write(home, state.forgetting(spec_dir.record(name)))
            return "removed"


@frozen
class _Write:
    # The new file, and the state when ``publish`` acquired the lock.
    spec_dir: Directory
    name: str
    content: bytes
    kind: str
    driver: str
    home: Directory
    state: State
    present: FileSnapshot


def _is_done(write: _Write) -> bool:
    # cdigen corrects a wrong mode or owner with a new file. Runtimes do not notice a chmod
    # (docs/reference/cdi-loaders.md, "Watching"), and another owner can change the file at any time.
    present = write.present
    has_owner_and_mode = present.mode == tempfiles.MODE and present.uid == os.geteuid()
    return has_owner_and_mode and present.content == write.content


def _is_ours(write: _Write) -> bool:
    return write.state.owns(write.spec_dir.record(write.name), write.present.content)


def _is_foreign(write: _Write) -> bool:
    present = write.present
    return present != NO_FILE and present.content != write.content and not _is_ours(write)


def _foreign(write: _Write, findings: tuple[Finding, ...]) -> SpecError:
    # The message contains the damage of the state file, because cdigen may have written the spec file.
    path = shown(write.spec_dir.file(write.name))
    reasons = "".join(f"; {finding.message}" for finding in findings)
    return SpecError(
        f"{path}: not replaced: cdigen did not write this file ({write.present.description}){reasons}",
        hint="if the file is not needed any more: 'cdigen generate --write --replace-foreign' moves it aside",
        kind="foreign-file",
    )


def _exposed(spec_dir: Directory) -> tuple[Finding, ...]:
    """Return the finding for a spec directory that other users may write to.

    cdigen writes to the directory in spite of the finding, because cdigen's spec does not increase the risk.
    """
    if not (problem := writable_by_others(spec_dir)):
        return ()
    return (
        Finding(
            severity="warning",
            rule="spec-directory-exposed",
            path=spec_dir.path,
            message=f"{shown(spec_dir.path)} {problem}: a spec there can inject any file of the host",
            hint=f"'chown root:root' and 'chmod go-w' it, or remove {shown(spec_dir.path)} from spec_dirs",
        ),
    )


def _exchange(
    write: _Write, staged: tempfiles.Staged | None, aside: tuple[str, ...], now: Callable[[], float]
) -> tuple[str, ...]:
    # cdigen renames the foreign files before it installs its own file. If the installation fails, cdigen
    # renames the foreign files back.
    spec_dir = write.spec_dir
    leaving = [name for name in dict.fromkeys(aside) if _identity(spec_dir, name) is not None]
    if staged is not None and _identity(spec_dir, write.name) != write.present.identity:
        raise StoreError(
            f"{shown(spec_dir.file(write.name))}: another program changed the file meanwhile",
            hint="run the command again",
        )
    moved: list[str] = []
    with ExitStack() as undo:
        for name in leaving:
            moved.append(_move_aside(spec_dir, name, now))
            undo.callback(_rename, spec_dir, moved[-1], name, "cannot move back")
        if staged is not None:
            tempfiles.rename_into_place(staged, spec_dir, write.name)
        undo.pop_all()
    if staged is not None or moved:
        tempfiles.fsync_directory(spec_dir)
    return tuple(spec_dir.file(name) for name in moved)


def _move_aside(spec_dir: Directory, name: str, now: Callable[[], float]) -> str:
    # The suffix after the last dot is not json or yaml. Therefore, no runtime loads the file.
    base = f"{name}.foreign-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now()))}"
    aside = base
    number = 1
    while _identity(spec_dir, aside) is not None:
        number += 1
        aside = f"{base}-{number}"
    _rename(spec_dir, name, aside, "cannot move aside")
    return aside


def _rename(spec_dir: Directory, name: str, to: str, what: str) -> None:
    with store_errors(what, spec_dir.file(name)):
        os.rename(name, to, src_dir_fd=spec_dir.fd, dst_dir_fd=spec_dir.fd)


def _identity(spec_dir: Directory, name: str) -> tuple[int, ...] | None:
    with store_errors("cannot examine", spec_dir.file(name)):
        return identity(spec_dir, name)


def _digests_during(write: _Write) -> tuple[str, ...]:
    # cdigen owns the old file before the rename and the new file after the rename.
    ours = write.present.content if _is_ours(write) else None
    before = () if ours is None else (owned_specs.digest(ours),)
    return tuple(dict.fromkeys((*before, owned_specs.digest(write.content))))


def _record(write: _Write, digests: tuple[str, ...]) -> None:
    path = write.spec_dir.record(write.name)
    owned = owned_specs.OwnedSpec(path=path, kind=write.kind, digests=digests, driver=write.driver)
    if write.state.of(path) != owned:
        owned_specs.write(write.home, write.state.recording(owned))


def _record_last(write: _Write) -> tuple[Finding, ...]:
    # The spec is written and recorded. If this update fails, the record only has an additional digest.
    try:
        _record(write, (owned_specs.digest(write.content),))
    except StoreError as error:
        found = finding_of(error, write.home.file(owned_specs.STATE_FILE))
        return (replace(found, severity="warning", rule="state-not-written"),)
    return ()
