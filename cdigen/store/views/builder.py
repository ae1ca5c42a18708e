"""Fill a view's folder: ``fill`` puts every file there in the cheapest way that the host allows.

A hard link costs nothing, keeps the SELinux label and needs both ends on one mount; a reflink (XFS, Btrfs)
shares the blocks and needs one file system; a copy needs space, and only small files are copied by default.
For any other file the view has an empty file, on which the source is mounted. Every file is opened once and
checked, and linked, cloned or copied by its descriptor: a name may be replaced meanwhile, a descriptor stays
the same file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import posixpath
from contextlib import ExitStack, contextmanager, suppress

from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError
from cdigen.store import tempfiles
from cdigen.store.directory import Directory
from cdigen.store.failures import store_error
from cdigen.store.views.folder import FOLDER
from cdigen.store.views.sharing import link_copy
from cdigen.store.views.sources import unfit
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Literal

    from cdigen.host.root import OpenFile, Root
    from cdigen.store.views.sources import ViewLayout, ViewSource

    Way = Literal["linked", "cloned", "copied"]

LABEL = "security.selinux"
# Copies up to this size are negligible: manifests and configuration files have some hundred bytes.
SMALL = 1 << 20
# Space that copies must leave free, for the host's journal, logs and specs.
MARGIN = 64 << 20

_FICLONE = 0x40049409  # ioctl_ficlone(2); the number of x86 and Arm
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_MODE = 0o755
_CHUNK = 1 << 26
# On errors of a full or failing disk, no other way is tried.
_FINAL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENAMETOOLONG, errno.ENOMEM})
_BY_COST: tuple[Way, ...] = ("copied", "cloned", "linked")
# Why link(2) fails, in terms of the host.
_MEANINGS = {
    errno.EXDEV: "they are on different file systems, or on different mounts of one",
    errno.EPERM: "see fs.protected_hardlinks and lsattr",
    errno.EACCES: "see SELinux and AppArmor",
    errno.ENOENT: "it has been removed, or /proc is not mounted",
}


@frozen
class FilledView:
    """How a view was filled: the most expensive way used, and the files that are mounted separately."""

    way: Way
    apart: tuple[str, ...] = ()


@frozen
class _Refused:
    # Why the free ways do not work for a file.
    source: ViewSource
    link: OSError
    clone: OSError


def fill(  # noqa: PLR0913  what and where; the rest has defaults
    view: Directory,
    layout: ViewLayout,
    root: Root,
    *,
    copies: bool,
    margin: int = MARGIN,
    place: Directory | None = None,
) -> FilledView:
    """Put the files of LAYOUT into the empty folder VIEW, sync it, and return how.

    Copies are made only if they leave MARGIN bytes free; without ``copies`` only of small files. One that a
    view of PLACE has already is linked.
    StoreError: most libraries can be neither linked nor cloned and ``copies`` is not set, or there is no
    space for copies, or a source was changed, or the system refused.
    """
    with ExitStack() as stack:
        folders = _make_folders(stack, view, layout)
        refused: list[_Refused] = []
        ways: set[Way] = set()
        for source in layout.files:
            with _opened(root, source) as file:
                way = _link_or_clone(file, folders, source)
            if isinstance(way, _Refused):
                refused.append(way)
            else:
                ways.add(way)
        if not copies and not _is_worth_it(layout, refused):
            raise _impossible(view, refused, root)
        wanted = [entry for entry in refused if copies or entry.source.size <= SMALL]
        apart = [entry.source for entry in refused if not (copies or entry.source.size <= SMALL)]
        copied = [entry for entry in wanted if not _is_shared(place, root, folders, entry.source)]
        if copied:
            _require_space(view, copied, margin)
            for entry in copied:
                with _opened(root, entry.source) as file:
                    _copy(file, folders, entry.source)
        if wanted:
            ways.add("copied")
        for source in apart:
            _keep_place(folders, source)
        for link in layout.links:
            _symlink(folders, link.path, link.target)
        _finish(folders, _label(_library_folder(layout, root)))
    return FilledView(
        way=next(way for way in _BY_COST if way in ways), apart=tuple(source.path for source in apart)
    )


def _is_worth_it(layout: ViewLayout, refused: list[_Refused]) -> bool:
    """Return whether most libraries of LAYOUT (without libraries: files) can be linked or reflinked."""
    paths = [source.path for source in layout.files]
    counted = {path for path in paths if path.startswith("lib")} or {*paths}
    return 2 * sum(entry.source.path in counted for entry in refused) < len(counted)


def _make_folders(stack: ExitStack, view: Directory, layout: ViewLayout) -> dict[str, Directory]:
    """Make and open every folder of the view; "" is the view itself."""
    folders = {"": view}
    for path in _folders([*[file.path for file in layout.files], *[link.path for link in layout.links]]):
        parent, name = posixpath.split(path)
        above = folders[parent]
        try:
            os.mkdir(name, 0o700, dir_fd=above.fd)
            fd = os.open(name, FOLDER, dir_fd=above.fd)
        except OSError as error:
            raise store_error("cannot make", above.file(name), error) from error
        stack.callback(os.close, fd)
        folders[path] = Directory(path=above.file(name), real=above.record(name), fd=fd)
    return folders


def _folders(paths: list[str]) -> list[str]:
    """Return the folders that PATHS need, each after its parent."""
    needed: set[str] = set()
    for path in paths:
        while path := posixpath.dirname(path):
            needed.add(path)
    return sorted(needed)


@contextmanager
def _opened(root: Root, source: ViewSource) -> Iterator[OpenFile]:
    """Open SOURCE; raises StoreError if it is no longer the file that was examined."""
    path = root.outer_path(source.real)
    try:
        opened = root.open(source.real)
    except OSError as error:
        raise store_error("cannot open", path, error) from error
    with opened as file:
        if file.path != source.real or not _is_same(os.fstat(file.descriptor), source, file):
            raise _changed(path)
        yield file


def _is_same(status: os.stat_result, source: ViewSource, file: OpenFile) -> bool:
    looked_at = (source.size, source.mtime_ns)
    return (status.st_size, status.st_mtime_ns) == looked_at and not unfit(status, file.descriptor)


def _changed(path: str) -> StoreError:
    return StoreError(
        f"{shown(path)} was changed while the view was made",
        hint="run the command again when the driver's installation is done",
    )


def _link_or_clone(file: OpenFile, folders: Mapping[str, Directory], source: ViewSource) -> Way | _Refused:
    folder, name = _place(folders, source.path)
    try:
        _link(file, folder, name, source)
    except OSError as error:
        _raise_final(error, folder.file(name))
        against_link = error
    else:
        return "linked"
    try:
        with _new_file(folder, name) as fd:
            fcntl.ioctl(fd, _FICLONE, file.descriptor)
            _dress(fd, file, source)
    except OSError as error:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder.fd)
        _raise_final(error, folder.file(name))
        return _Refused(source=source, link=against_link, clone=error)
    return "cloned"


def _link(file: OpenFile, folder: Directory, name: str, source: ViewSource) -> None:
    # /proc's link is exactly that file, even if its name was replaced. Without /proc this fails (ENOENT); a
    # link by name would have to be undone if the name was replaced, so only reflinks and copies remain.
    os.link(f"/proc/self/fd/{file.descriptor}", name, dst_dir_fd=folder.fd, follow_symlinks=True)
    status = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    # By its properties, not its inode: overlayfs copies the file up for the link, with a new inode.
    if not _is_same(status, source, file):
        raise _changed(file.path)


def _raise_final(error: OSError, path: str) -> None:
    """Raise StoreError if every other way would fail with ERROR as well."""
    if error.errno in _FINAL:
        raise store_error("cannot write", path, error) from error


@contextmanager
def _new_file(folder: Directory, name: str) -> Iterator[int]:
    fd = os.open(name, _NEW, 0o600, dir_fd=folder.fd)
    try:
        yield fd
    finally:
        os.close(fd)


def _dress(fd: int, file: OpenFile, source: ViewSource) -> None:
    """Give the copy FD the source's metadata, and wait until it is on the disk."""
    os.fchmod(fd, source.copy_mode)
    _set_label(fd, _label(file.descriptor))
    os.utime(fd, ns=(source.mtime_ns, source.mtime_ns))
    os.fsync(fd)


def _impossible(view: Directory, refused: list[_Refused], root: Root) -> StoreError:
    first = refused[0]
    state_dir = posixpath.dirname(posixpath.dirname(view.path))
    meaning = _MEANINGS.get(first.link.errno or 0, "that file system makes none")
    return StoreError(
        f"{shown(root.outer_path(first.source.real))} cannot be hard-linked into {shown(state_dir)} "
        f"({reason(first.link)}: {meaning}) nor reflinked ({reason(first.clone)})",
        hint=f"set view_copies: true (it takes {_mib(_size(refused))} MiB for each driver), put state_dir "
        "on the same file system and mount as the driver, or choose 'layout: files' in the profile",
        kind="view-impossible",
    )


def _require_space(view: Directory, refused: list[_Refused], margin: int) -> None:
    """Raise StoreError unless there is space for the copies of all files that are REFUSED."""
    try:
        space = os.fstatvfs(view.fd)
    except OSError as error:
        raise store_error("cannot ask for the free space of", view.path, error) from error
    size, free = _size(refused), space.f_bavail * space.f_frsize
    if free < size + margin:
        raise StoreError(
            f"the copies of the view take {_mib(size)} MiB, and {shown(view.path)} has {_mib(free)} MiB free "
            f"(of which {_mib(margin)} MiB are left alone)",
            hint="free space there, or put state_dir on the same file system and mount as the driver",
        )


def _size(refused: list[_Refused]) -> int:
    return sum(entry.source.size for entry in refused)


def _mib(size: int) -> int:
    return -(-size >> 20)


def _is_shared(
    place: Directory | None, root: Root, folders: Mapping[str, Directory], source: ViewSource
) -> bool:
    """Link SOURCE's copy in a view of PLACE, if there is one; return whether there was."""
    if place is None:
        return False
    with _opened(root, source) as file:
        return link_copy(place, file.descriptor, source, _place(folders, source.path))


def _copy(file: OpenFile, folders: Mapping[str, Directory], source: ViewSource) -> None:
    folder, name = _place(folders, source.path)
    try:
        with _new_file(folder, name) as fd:
            offset = 0
            while sent := os.sendfile(fd, file.descriptor, offset, _CHUNK):
                offset += sent
            _dress(fd, file, source)
    except OSError as error:
        raise store_error("cannot write", folder.file(name), error) from error
    if offset != source.size or not _is_same(os.fstat(file.descriptor), source, file):
        raise _changed(file.path)


def _keep_place(folders: Mapping[str, Directory], source: ViewSource) -> None:
    """Make the empty file on which SOURCE will be mounted, with the time of SOURCE to identify it."""
    folder, name = _place(folders, source.path)
    try:
        with _new_file(folder, name) as fd:
            os.fchmod(fd, 0)
            os.utime(fd, ns=(source.mtime_ns, source.mtime_ns))
    except OSError as error:
        raise store_error("cannot write", folder.file(name), error) from error


def _symlink(folders: Mapping[str, Directory], path: str, target: str) -> None:
    folder, name = _place(folders, path)
    try:
        os.symlink(target, name, dir_fd=folder.fd)
    except OSError as error:
        raise store_error("cannot make", folder.file(name), error) from error


def _place(folders: Mapping[str, Directory], path: str) -> tuple[Directory, str]:
    parent, name = posixpath.split(path)
    return folders[parent], name


def _library_folder(layout: ViewLayout, root: Root) -> str:
    """Return the host's folder of the first library: containers may read files with its label."""
    libraries = [source for source in layout.files if source.path.startswith("lib")]
    return root.outer_path(posixpath.dirname((libraries or list(layout.files))[0].real))


def _label(file: int | str) -> bytes:
    # b"" without SELinux.
    try:
        return os.getxattr(file, LABEL)
    except OSError:
        return b""


def _set_label(fd: int, label: bytes) -> None:
    if not label:
        return
    try:
        os.setxattr(fd, LABEL, label)
    except OSError as error:
        # A file system without labels has one for all files (mount option context=). Without SELinux an
        # ordinary user may set none.
        if error.errno != errno.ENOTSUP and os.geteuid() == 0:
            raise


def _finish(folders: Mapping[str, Directory], label: bytes) -> None:
    """Give the folders their mode and label and sync them, parents last."""
    for path in sorted(folders, reverse=True):
        folder = folders[path]
        try:
            os.fchmod(folder.fd, _FOLDER_MODE)
            _set_label(folder.fd, label)
        except OSError as error:
            raise store_error("cannot set mode and label of", folder.path, error) from error
        tempfiles.fsync_directory(folder)
