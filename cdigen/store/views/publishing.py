"""Driver views: ``publish_view`` makes the view of a plan (``model.view``), ``find_view`` finds it.

A view is the directory ``views/<vendor>-<digest>`` of the state directory. Containers mount the whole
directory. The digest in the name is computed from the content. Therefore, a view never changes, and another
driver has another view. A view appears in one step. If the process is killed, there is a complete view or no
view. cdigen does not repair a damaged view, because running containers may have it mounted. A second view
replaces the damaged view. The name of the second view has an appended number. ``pruning`` removes unused
views.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from cdigen.host.root import shown
from cdigen.model.errors import ConfigError, StoreError
from cdigen.model.findings import Finding
from cdigen.store.directory import STATE_DIRECTORY, open_existing, open_owned, writable_by_others
from cdigen.store.failures import store_errors
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
    """An existing view, with its name, its path on the host, and ``how`` cdigen made or found the view.

    ``left_out`` are the paths of the plan that are not in the view. The spec must not contain these paths.
    ``findings`` has the reason for each file. A link is left out if its target is left out. ``separate`` are
    the paths of files that could not be added. The view has an empty file at each of these paths, and the
    runtime must mount the source on the empty file.
    """

    name: str
    path: str
    how: How
    left_out: tuple[str, ...] = ()
    separate: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def find_view(plan: ViewPlan, root: Root, state_dir: str) -> PublishedView | None:
    """Return the view of PLAN, or None if there is no complete view. Change nothing.

    The result is also None if a source is missing, or if the state directory cannot be read or is writable by
    others. ``publish_view`` reports the reason. Before you write a spec with the view, call ``publish_view``.
    That function also protects the view from pruning.
    """
    try:
        layout = view_layout(plan, root)
        with (
            open_existing(state_dir, what=STATE_DIRECTORY) as home,
            open_existing(f"{state_dir}/{VIEWS}", what=VIEW_DIRECTORY) as views_dir,
        ):
            if home is None or views_dir is None or writable_by_others(home) or writable_by_others(views_dir):
                return None
            view = find_intact(views_dir, layout)
            return _published(views_dir, view, "found", layout, root) if view else None
    except (ConfigError, StoreError):
        return None


def publish_view(plan: ViewPlan, root: Root, state_dir: str, *, copies: bool) -> PublishedView:
    """Return the view of PLAN, and make it from the files of ROOT if it does not exist.

    STATE_DIR is a path of this machine. If a file cannot be hard-linked or reflinked, the function copies
    the file if it is small or ``copies`` is set. Otherwise, the view has an empty file. The function
    does not hold the lock while it copies files. Raises StoreError if the view cannot be made. Then no files
    remain.
    """
    layout = view_layout(plan, root)
    with ExitStack() as stack:
        home = stack.enter_context(open_owned(state_dir, what=STATE_DIRECTORY))
        views_dir = stack.enter_context(open_owned(f"{state_dir}/{VIEWS}", what=VIEW_DIRECTORY))
        with exclusive(home):
            sweep(views_dir)
            if not pruned_in(views_dir):
                record_boot(views_dir)
            if view := find_intact(views_dir, layout, whole=copies):
                _touch(views_dir, view.name)
                return _published(views_dir, view, "found", layout, root)
            temporary = stack.enter_context(temporary_view(views_dir, layout.name))
        filled = fill(temporary, layout, root, copies=copies, views_dir=views_dir)
        with exclusive(home):
            if view := find_intact(views_dir, layout, whole=copies):
                _touch(views_dir, view.name)
                return _published(views_dir, view, "found", layout, root)
            name = _put(views_dir, temporary, layout)
        return _published(
            views_dir, IntactView(name=name, separate=filled.separate), filled.method, layout, root
        )


def _put(views_dir: Directory, temporary: Directory, layout: ViewLayout) -> str:
    # The name is free while the lock is held. If a process without the lock makes a folder with this name,
    # rename(2) replaces only an empty folder. An empty folder is not a view.
    name = free_name(views_dir, layout.name)
    with store_errors("cannot make the view", views_dir.file(name)):
        os.utime(temporary.fd)
        os.rename(os.path.basename(temporary.path), name, src_dir_fd=views_dir.fd, dst_dir_fd=views_dir.fd)
    fsync_directory(views_dir)
    return name


def _touch(views_dir: Directory, name: str) -> None:
    # The caller writes a spec with the view. Therefore, the grace time of the view for pruning begins again.
    with store_errors("cannot use the view", views_dir.file(name)):
        os.utime(name, dir_fd=views_dir.fd, follow_symlinks=False)


def _published(
    views_dir: Directory, view: IntactView, how: How, layout: ViewLayout, root: Root
) -> PublishedView:
    sources = {source.path: source.real for source in layout.files}
    return PublishedView(
        name=view.name,
        path=host_path(views_dir.record(view.name), root),
        how=how,
        left_out=layout.left_out,
        separate=view.separate,
        findings=(*layout.findings, *(_mounted_separately(sources[path]) for path in view.separate)),
    )


def _mounted_separately(source: str) -> Finding:
    return Finding(
        severity="info",
        rule="view-file-separate",
        path=source,
        message=f"{shown(source)} is mounted separately from the view, because it cannot be hard-linked "
        "or reflinked",
        hint="put state_dir on the same file system and mount as this file, or set copy_driver_files: true",
    )
