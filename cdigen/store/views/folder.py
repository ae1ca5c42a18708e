"""Look after the directory that holds the views: find them, begin one, sweep what dead builders left.

A view grows under a temporary name (``.cdigen-<view>.<pid>.<random>.tmp``) and a view to be removed
is renamed back to one, so a view's own name is never that of half a view. A process at work in such a folder
holds an flock on it: if ``sweep`` can take the lock, that process is dead. The file ``boot-id``
beside the views says in which boot they were last pruned.
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
from cdigen.store.failures import store_error
from cdigen.store.snapshot import take_snapshot
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cdigen.store.views.sources import ViewLayout

    # The entry at a path: a file's size and time in seconds, a link's target, None for all else.
    Content = Mapping[str, tuple[int, int] | str | None]

VIEWS = "views"
VIEW_DIRECTORY = "view directory"
BOOT_FILE = "boot-id"
# Views and, if a damaged one keeps its name, its replacement: nvidia-<16 hex digits>-2.
VIEW_NAME = re.compile(r"[a-z0-9]+-[0-9a-f]{16}(?:-[1-9][0-9]{0,5})?")

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NS_PER_S = 10**9


@frozen
class IntactView:
    """An existing view. The files ``apart`` are empty in it; their sources are mounted on them."""

    name: str
    apart: tuple[str, ...] = ()


def view_names(place: Directory) -> tuple[str, ...]:
    """Return the names of the views in PLACE, sorted; everything else there is ignored."""
    try:
        with os.scandir(place.fd) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise store_error("cannot list", place.path, error) from error
    return tuple(sorted(name for name in names if VIEW_NAME.fullmatch(name)))


def find_intact(place: Directory, layout: ViewLayout, *, whole: bool = False) -> IntactView | None:
    """Return the view that has exactly the content of LAYOUT, or None.

    Files that could not enter it have an empty file in their place; with WHOLE such a view does not count.
    """
    wanted = expected_content(layout)
    for name in view_names(place):
        if name == layout.name or name.startswith(f"{layout.name}-"):
            apart = _apart(place, name, wanted)
            if apart is not None and not (whole and apart):
                return IntactView(name=name, apart=apart)
    return None


def free_name(place: Directory, name: str) -> str:
    """Return NAME for a new view, with a number appended if a damaged view has the name.

    A damaged view is not repaired: running containers may have it mounted, and would see every change.
    """
    taken = set(os.listdir(place.fd))
    number = 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return free


def expected_content(layout: ViewLayout) -> Content:
    """Return what ``folder_content`` returns for a view with the content of LAYOUT."""
    files = {source.path: (source.size, source.mtime_ns // _NS_PER_S) for source in layout.files}
    return {**files, **{link.path: link.target for link in layout.links}}


def folder_content(folder: int, prefix: str = "") -> Content:
    """Return everything below the open FOLDER. Raises OSError.

    Times are in seconds: a file system may keep no finer ones for a copy.
    """
    found: dict[str, tuple[int, int] | str | None] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                below = os.open(entry.name, FOLDER, dir_fd=folder)
                try:
                    found |= folder_content(below, f"{path}/")
                finally:
                    os.close(below)
            elif entry.is_symlink():
                found[path] = os.readlink(entry.name, dir_fd=folder)
            else:
                found[path] = _file(entry.stat(follow_symlinks=False))
    return found


@contextmanager
def temporary_view(place: Directory, name: str) -> Iterator[Directory]:
    """Make the folder in which the view NAME grows, and remove it unless it was renamed.

    The caller holds the store's lock at the beginning, so that no sweep comes between making the folder
    and locking it. StoreError: the system refused.
    """
    temporary = tempfiles.temporary_name(name)
    try:
        os.mkdir(temporary, 0o700, dir_fd=place.fd)
        fd = os.open(temporary, FOLDER, dir_fd=place.fd)
    except OSError as error:
        raise store_error("cannot make", place.file(temporary), error) from error
    try:
        _hold(fd)
        yield Directory(path=place.file(temporary), real=place.record(temporary), fd=fd)
    finally:
        with suppress(OSError):  # the next sweep removes the rest
            remove(place, temporary)
        os.close(fd)


def remove(place: Directory, name: str) -> None:
    """Remove the folder NAME of PLACE, if there is one, with its content. Raises OSError."""
    try:
        fd = os.open(name, FOLDER, dir_fd=place.fd)
    except FileNotFoundError:
        return
    try:
        _empty(fd)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=place.fd)


def sweep(place: Directory) -> None:
    """Remove what builders and removers left when killed; the caller holds the store's lock.

    What cannot be removed stays: it does no harm, and lack of space is reported when it occurs.
    """
    tempfiles.sweep(place)
    for name in os.listdir(place.fd):
        if tempfiles.TEMPORARY.fullmatch(name):
            with suppress(OSError):
                _sweep(place, name)


def host_path(path: str, root: Root) -> str:
    """Return PATH of this machine as the host of ROOT has it; one that is not within it stays as it is."""
    inside = os.path.realpath(root.outer_path("/")).rstrip("/") + "/"
    return root.host_path(path[len(inside) - 1 :]) if path.startswith(inside) else path


def pruned_in(place: Directory) -> str:
    """Return the boot in which the views of PLACE were last pruned; empty where there is no record."""
    return (take_snapshot(place, BOOT_FILE).content or b"").decode("ascii", "replace").strip()


def record_boot(place: Directory) -> None:
    """Record this boot for ``pruned_in``; the caller holds the store's lock."""
    tempfiles.replace_file(place, BOOT_FILE, f"{boot_id(Root())}\n".encode())


def _sweep(place: Directory, name: str) -> None:
    fd = os.open(name, FOLDER, dir_fd=place.fd)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: its builder is running
        remove(place, name)
    finally:
        os.close(fd)


def _apart(place: Directory, name: str, wanted: Content) -> tuple[str, ...] | None:
    """Return which files of the view NAME are empty placeholders; None if its content is not WANTED."""
    try:
        fd = os.open(name, FOLDER, dir_fd=place.fd)
    except OSError:
        return None
    try:
        found = folder_content(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    apart = tuple(path for path, told in wanted.items() if found.get(path) == _place_of(told) != told)
    return apart if found == {**wanted, **{path: _place_of(wanted[path]) for path in apart}} else None


def _place_of(told: tuple[int, int] | str | None) -> tuple[int, int] | str | None:
    # An empty file with its source's time: a truncated file has another time.
    return (0, told[1]) if isinstance(told, tuple) else told


def _file(status: os.stat_result) -> tuple[int, int] | None:
    # A hard link shares its source's mode: making the source setuid damages the view.
    if not stat.S_ISREG(status.st_mode) or status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return None
    return status.st_size, status.st_mtime_ns // _NS_PER_S


def _hold(fd: int) -> None:
    # A file system without locks: a sweep cannot lock the folder either.
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _empty(folder: int) -> None:
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        fd = os.open(name, FOLDER, dir_fd=folder)
        try:
            _empty(fd)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=folder)
