"""Publish and find driver views: ``publish_view`` makes the view of a plan, ``find_view`` looks for it.

A view is the directory ``views/<vendor>-<digest>`` of the state directory, mounted into containers as a
whole. Its name is derived from its content, so it is never changed: another driver gets another view. It
appears in one step, and a kill at any moment leaves none or a whole one. One that is damaged later stays as
it is, because running containers have it mounted; another with a number appended to the name replaces it.
``pruning`` removes unused views.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from cdigen.host.root import shown
from cdigen.model.errors import ConfigError, StoreError
from cdigen.model.findings import Finding
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned, writable_by_others
from cdigen.store.failures import store_error
from cdigen.store.lock import exclusive
from cdigen.store.tempfiles import fsync_directory
from cdigen.store.views.builder import fill
from cdigen.store.views.folder import (
    VIEW_DIRECTORY,
    VIEWS,
    IntactView,
    find_intact,
    free_name,
    host_path,
    pruned_in,
    record_boot,
    sweep,
    temporary_view,
)
from cdigen.store.views.sources import view_layout
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.host.root import Root
    from cdigen.model.view import ViewPlan
    from cdigen.store.directory import Directory
    from cdigen.store.views.sources import ViewLayout

    How = Literal["found", "linked", "cloned", "copied"]


@frozen
class PublishedView:
    """An existing view: its name, its path on the host, how it was made.

    ``left_out`` are the paths of the plan that it lacks, each with its reason in ``findings`` (a link's is
    that of its target). They must stay out of the spec. ``apart`` are the paths
    of files that could not enter it: empty files, on which the sources are to be mounted.
    """

    name: str
    path: str
    how: How
    left_out: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def find_view(plan: ViewPlan, root: Root, state_dir: str) -> PublishedView | None:
    """Return the view of PLAN if it exists and is whole, else None; changes nothing.

    Also None if a source is gone, or the state directory cannot be read or is writable by others:
    ``publish_view`` says why. To write a spec that names the view, call ``publish_view``, which also keeps it
    from being pruned.
    """
    try:
        wanted = view_layout(plan, root)
        with (
            open_existing(state_dir, what=STATE_DIRECTORY) as home,
            open_existing(f"{state_dir}/{VIEWS}", what=VIEW_DIRECTORY) as place,
        ):
            if home is None or place is None or writable_by_others(home) or writable_by_others(place):
                return None
            there = find_intact(place, wanted)
            return _published(place, there, "found", wanted, root) if there else None
    except (ConfigError, StoreError):
        return None


def publish_view(plan: ViewPlan, root: Root, state_dir: str, *, copies: bool) -> PublishedView:
    """Make the view of PLAN from the files of ROOT, unless it exists already.

    STATE_DIR is a path of this machine. Files that can be neither hard-linked nor reflinked are copied if
    they are small or ``copies`` is set, and are else empty files in the view. The lock is not
    held while files are copied. StoreError: the view cannot be made, and nothing is left of it.
    """
    wanted = view_layout(plan, root)
    with ExitStack() as stack:
        home = stack.enter_context(open_owned(state_dir, what=STATE_DIRECTORY))
        place = stack.enter_context(open_owned(f"{state_dir}/{VIEWS}", what=VIEW_DIRECTORY))
        with exclusive(home):
            sweep(place)
            if not pruned_in(place):
                record_boot(place)
            if there := find_intact(place, wanted, whole=copies):
                _touch(place, there.name)
                return _published(place, there, "found", wanted, root)
            growing = stack.enter_context(temporary_view(place, wanted.name))
        filled = fill(growing, wanted, root, copies=copies, place=place)
        with exclusive(home):
            if there := find_intact(place, wanted, whole=copies):
                _touch(place, there.name)
                return _published(place, there, "found", wanted, root)
            name = _put(place, growing, wanted)
        return _published(place, IntactView(name=name, apart=filled.apart), filled.way, wanted, root)


def _put(place: Directory, growing: Directory, wanted: ViewLayout) -> str:
    # Under the lock the name is free. Even if another process took it, rename(2) replaces at most an empty
    # folder, which is not a view.
    name = free_name(place, wanted.name)
    try:
        os.utime(growing.fd)
        os.rename(os.path.basename(growing.path), name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
    except OSError as error:
        raise store_error("cannot make the view", place.file(name), error) from error
    fsync_directory(place)
    return name


def _touch(place: Directory, name: str) -> None:
    # A spec is about to name it: its grace time for pruning begins anew.
    try:
        os.utime(name, dir_fd=place.fd, follow_symlinks=False)
    except OSError as error:
        raise store_error("cannot use the view", place.file(name), error) from error


def _published(
    place: Directory, there: IntactView, how: How, wanted: ViewLayout, root: Root
) -> PublishedView:
    sources = {source.path: source.real for source in wanted.files}
    return PublishedView(
        name=there.name,
        path=host_path(place.record(there.name), root),
        how=how,
        left_out=wanted.left_out,
        apart=there.apart,
        findings=(*wanted.findings, *(_mounted_by_itself(sources[path]) for path in there.apart)),
    )


def _mounted_by_itself(source: str) -> Finding:
    return Finding(
        severity="info",
        rule="view-apart",
        path=source,
        message=f"{shown(source)} is mounted separately from the view: it can be neither hard-linked nor "
        "reflinked into it",
        hint="put state_dir on the same file system and mount as that file, or set view_copies: true",
    )
