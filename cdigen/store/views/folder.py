"""The directory of the views: find views, begin a view, and remove the folders of ended processes.

cdigen builds a new view in a folder with a temporary name (``.cdigen-<view>.<pid>.<random>.tmp``). Before
cdigen removes a view, it renames the view to a temporary name. Therefore, an incomplete view never has the
name of a view. A process holds an flock on its temporary folder. If ``sweep`` can lock the folder, the
process has ended. The file ``boot-id`` in the directory of the views contains the ID of the boot in which
unused views were last removed (pruned).
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from contextlib import contextmanager, suppress

from cdigen.host.procfs import boot_id
from cdigen.host.root import Root
from cdigen.store import tempfiles
from cdigen.store.directory import Directory
from cdigen.store.failures import closing, store_errors
from cdigen.store.snapshot import take_snapshot
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cdigen.store.views.sources import ViewLayout

    # Path -> entry. The entry of a regular file is its size and its modification time in seconds. The entry
    # of a link is its target. The entry of any other file is None.
    Content = Mapping[str, tuple[int, int] | str | None]

VIEWS = "views"
VIEW_DIRECTORY = "view directory"
BOOT_FILE = "boot-id"
# The names of views, such as nvidia-<16 hex digits>. A view that replaces a damaged view has the suffix -2.
VIEW_NAME = re.compile(r"[a-z0-9]+-[0-9a-f]{16}(?:-[1-9][0-9]{0,5})?")

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NS_PER_S = 10**9


@frozen
class IntactView:
    """An existing view. The files ``separate`` in it are empty, and runtimes mount the sources on them."""

    name: str
    separate: tuple[str, ...] = ()


def view_names(views_dir: Directory) -> tuple[str, ...]:
    """Return the sorted names of the views in VIEWS_DIR. All other files in VIEWS_DIR are ignored."""
    with store_errors("cannot list", views_dir.path), os.scandir(views_dir.fd) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return tuple(sorted(name for name in names if VIEW_NAME.fullmatch(name)))


def find_intact(views_dir: Directory, layout: ViewLayout, *, whole: bool = False) -> IntactView | None:
    """Return the view that has exactly the content of LAYOUT, or None.

    A view has empty files at the paths of files that could not be added. If WHOLE is set, a view with empty
    files is ignored.
    """
    expected = expected_content(layout)
    for name in view_names(views_dir):
        if name == layout.name or name.startswith(f"{layout.name}-"):
            separate = _placeholders(views_dir, name, expected)
            if separate is not None and not (whole and separate):
                return IntactView(name=name, separate=separate)
    return None


def free_name(views_dir: Directory, name: str) -> str:
    """Return the free name for a new view: NAME, or NAME with a number if a damaged view has the name NAME.

    cdigen does not repair a damaged view, because the change would be visible in running containers.
    """
    used = set(os.listdir(views_dir.fd))
    number = 1
    while (free := name if number == 1 else f"{name}-{number}") in used:
        number += 1
    return free


def expected_content(layout: ViewLayout) -> Content:
    """Return the result of ``folder_content`` for a view with the content of LAYOUT."""
    files = {source.path: (source.size, source.mtime_ns // _NS_PER_S) for source in layout.files}
    return {**files, **{link.path: link.target for link in layout.links}}


def folder_content(folder: int, prefix: str = "") -> Content:
    """Return all files and links below the open FOLDER. Raises OSError.

    Times are in seconds, because some file systems store the time of a copy in seconds.
    """
    found: dict[str, tuple[int, int] | str | None] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                with closing(os.open(entry.name, FOLDER, dir_fd=folder)) as below:
                    found |= folder_content(below, f"{path}/")
            elif entry.is_symlink():
                found[path] = os.readlink(entry.name, dir_fd=folder)
            else:
                found[path] = _file(entry.stat(follow_symlinks=False))
    return found


@contextmanager
def temporary_view(views_dir: Directory, name: str) -> Iterator[Directory]:
    """Yield a new temporary folder for the view NAME, and remove the folder at the end if it was not renamed.

    The caller must hold the lock of the store at the beginning, because no sweep may run before the folder is
    locked. Raises StoreError if a system call failed.
    """
    temporary = tempfiles.temporary_name(name)
    with store_errors("cannot make", views_dir.file(temporary)):
        os.mkdir(temporary, 0o700, dir_fd=views_dir.fd)
        fd = os.open(temporary, FOLDER, dir_fd=views_dir.fd)
    try:
        _hold(fd)
        yield Directory(path=views_dir.file(temporary), real=views_dir.record(temporary), fd=fd)
    finally:
        with suppress(OSError):  # the next sweep removes the remaining files
            remove(views_dir, temporary)
        os.close(fd)


def remove(views_dir: Directory, name: str) -> None:
    """Remove the folder NAME of VIEWS_DIR with its content. A missing folder is no error. Raises OSError."""
    try:
        fd = os.open(name, FOLDER, dir_fd=views_dir.fd)
    except FileNotFoundError:
        return
    with closing(fd):
        _empty(fd)
    os.rmdir(name, dir_fd=views_dir.fd)


def sweep(views_dir: Directory) -> None:
    """Remove the temporary folders of killed processes. The caller holds the lock of the store.

    A folder that cannot be removed stays and is harmless. If space is missing, a later write reports the
    error.
    """
    tempfiles.sweep(views_dir)
    for name in os.listdir(views_dir.fd):
        if tempfiles.TEMPORARY.fullmatch(name):
            with suppress(OSError):
                _sweep(views_dir, name)


def host_path(path: str, root: Root) -> str:
    """Return PATH of this machine as a path of the host of ROOT, or PATH itself if it is outside ROOT."""
    inside = os.path.realpath(root.outer_path("/")).rstrip("/") + "/"
    return root.host_path(path[len(inside) - 1 :]) if path.startswith(inside) else path


def pruned_in(views_dir: Directory) -> str:
    """Return the ID of the boot of the last pruning in VIEWS_DIR, or "" if there is no record."""
    return (take_snapshot(views_dir, BOOT_FILE).content or b"").decode("ascii", "replace").strip()


def record_boot(views_dir: Directory) -> None:
    """Record the ID of this boot for ``pruned_in``. The caller holds the lock of the store."""
    tempfiles.replace_file(views_dir, BOOT_FILE, f"{boot_id(Root())}\n".encode())


def _sweep(views_dir: Directory, name: str) -> None:
    with closing(os.open(name, FOLDER, dir_fd=views_dir.fd)) as fd:
        if os.fstat(fd).st_uid == os.geteuid():
            # BlockingIOError if the builder of the folder runs.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(views_dir, name)


def _placeholders(views_dir: Directory, name: str, expected: Content) -> tuple[str, ...] | None:
    """Return the empty placeholders in the view NAME, or None if the view's content is not EXPECTED."""
    try:
        with closing(os.open(name, FOLDER, dir_fd=views_dir.fd)) as fd:
            found = folder_content(fd)
    except OSError:
        return None
    empty = tuple(path for path, entry in expected.items() if found.get(path) == _placeholder(entry) != entry)
    return empty if found == {**expected, **{path: _placeholder(expected[path]) for path in empty}} else None


def _placeholder(entry: tuple[int, int] | str | None) -> tuple[int, int] | str | None:
    # A placeholder is an empty file with the time of its source. A truncated file has another time.
    return (0, entry[1]) if isinstance(entry, tuple) else entry


def _file(status: os.stat_result) -> tuple[int, int] | None:
    # A hard link has the mode of its source. If the source becomes setuid, the result is None, so the view is
    # treated as damaged.
    if not stat.S_ISREG(status.st_mode) or status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return None
    return status.st_size, status.st_mtime_ns // _NS_PER_S


def _hold(fd: int) -> None:
    # If the file system has no locks, a sweep cannot lock the folder either.
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _empty(folder: int) -> None:
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        with closing(os.open(name, FOLDER, dir_fd=folder)) as fd:
            _empty(fd)
        os.rmdir(name, dir_fd=folder)
