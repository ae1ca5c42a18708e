"""Add the files to a view: ``fill`` adds each file by the method that needs the least space on this host.

A hard link needs no space and keeps the SELinux label. Both files must be on the same mount. A reflink (XFS,
Btrfs) shares the blocks. Both files must be on the same file system. A copy needs space. By default, only
small files are copied. For a larger file, the view has an empty file, and the runtime mounts the source on
the empty file. ``fill`` opens and checks each file. Then it uses the descriptor to link, reflink or copy the
file. Another process can replace the file at the path, but not the open file.

Each capability kind of a driver has a separate view. If a file must be copied, cdigen copies the file only
once, and links the copy into the other views.
"""

from __future__ import annotations

import errno
import fcntl
import os
import posixpath
import stat
from contextlib import ExitStack, contextmanager, suppress

from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError
from cdigen.store import tempfiles
from cdigen.store.directory import Directory
from cdigen.store.failures import closing, store_error, store_errors
from cdigen.store.views.folder import FOLDER, view_names
from cdigen.store.views.sources import unfit
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Literal

    from cdigen.host.root import OpenFile, Root
    from cdigen.store.views.sources import ViewLayout, ViewSource

    Method = Literal["linked", "cloned", "copied"]

LABEL = "security.selinux"
# The maximum size of a small file. Manifests and configuration files have a few hundred bytes.
SMALL = 1 << 20
# The space that must stay free after the copies. The host needs it for its journal, logs and specs.
MARGIN = 64 << 20

_FICLONE = 0x40049409  # ioctl_ficlone(2), the number on x86 and Arm
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER_MODE = 0o755
_CHUNK = 1 << 26
_COMPARED = 1 << 20  # bytes of two files that are compared at a time
# Errors of a full or failing disk. After one of these errors, ``fill`` tries no other method.
_FINAL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENAMETOOLONG, errno.ENOMEM})
_BY_COST: tuple[Method, ...] = ("copied", "cloned", "linked")
# The likely causes of errors of link(2), for messages.
_MEANINGS = {
    errno.EXDEV: "the two are on different file systems, or on different mounts of one file system",
    errno.EPERM: "see fs.protected_hardlinks and lsattr",
    errno.EACCES: "see SELinux and AppArmor",
    errno.ENOENT: "the file has been removed, or /proc is not mounted",
}


@frozen
class FilledView:
    """The result of ``fill``: the used method that needs most space, and the files to mount separately."""

    method: Method
    separate: tuple[str, ...] = ()


@frozen
class _Refused:
    # The errors of a hard link and of a reflink for a file.
    source: ViewSource
    link: OSError
    clone: OSError


def fill(  # noqa: PLR0913  the content and the folders; all others have defaults
    view: Directory,
    layout: ViewLayout,
    root: Root,
    *,
    copies: bool,
    margin: int = MARGIN,
    views_dir: Directory | None = None,
) -> FilledView:
    """Add the files of LAYOUT to the empty folder VIEW, sync the folder, and return the result.

    The function makes copies only if MARGIN bytes stay free. If ``copies`` is false, it copies only small
    files. If a view in VIEWS_DIR has a copy, the function links that copy. Raises StoreError if half of the
    libraries or more cannot be linked or reflinked and ``copies`` is not set. Raises StoreError also if there
    is no space for copies, or a source was changed, or a system call failed.
    """
    with ExitStack() as stack:
        folders = _make_folders(stack, view, layout)
        refused: list[_Refused] = []
        methods: set[Method] = set()
        for source in layout.files:
            with _opened(root, source) as file:
                method = _link_or_clone(file, folders, source)
            if isinstance(method, _Refused):
                refused.append(method)
            else:
                methods.add(method)
        if not copies and not _is_worth_it(layout, refused):
            raise _impossible(view, refused, root)
        to_copy = [entry for entry in refused if copies or entry.source.size <= SMALL]
        separate = [entry.source for entry in refused if not (copies or entry.source.size <= SMALL)]
        copied = [entry for entry in to_copy if not _is_shared(views_dir, root, folders, entry.source)]
        if copied:
            _require_space(view, copied, margin)
            for entry in copied:
                with _opened(root, entry.source) as file:
                    _copy(file, folders, entry.source)
        if to_copy:
            methods.add("copied")
        for source in separate:
            _make_placeholder(folders, source)
        for link in layout.links:
            _symlink(folders, link.path, link.target)
        _finish(folders, _label(_library_folder(layout, root)))
    return FilledView(
        method=next(method for method in _BY_COST if method in methods),
        separate=tuple(source.path for source in separate),
    )


def _is_worth_it(layout: ViewLayout, refused: list[_Refused]) -> bool:
    """Return whether more than half of the libraries of LAYOUT are linked or reflinked.

    If LAYOUT has no libraries, all files are considered.
    """
    paths = [source.path for source in layout.files]
    counted = {path for path in paths if path.startswith("lib")} or {*paths}
    return 2 * sum(entry.source.path in counted for entry in refused) < len(counted)


def _make_folders(stack: ExitStack, view: Directory, layout: ViewLayout) -> dict[str, Directory]:
    """Return the new open folders of the view, by path. The path "" is the view itself."""
    folders = {"": view}
    for path in _folders([*[file.path for file in layout.files], *[link.path for link in layout.links]]):
        parent, name = posixpath.split(path)
        above = folders[parent]
        with store_errors("cannot make", above.file(name)):
            os.mkdir(name, 0o700, dir_fd=above.fd)
            fd = os.open(name, FOLDER, dir_fd=above.fd)
        stack.callback(os.close, fd)
        folders[path] = Directory(path=above.file(name), real=above.record(name), fd=fd)
    return folders


def _folders(paths: list[str]) -> list[str]:
    """Return the folders of PATHS, sorted. A parent is before its subfolders."""
    needed: set[str] = set()
    for path in paths:
        while path := posixpath.dirname(path):
            needed.add(path)
    return sorted(needed)


@contextmanager
def _opened(root: Root, source: ViewSource) -> Iterator[OpenFile]:
    """Yield the open file SOURCE, or raise StoreError if the file was changed after the check."""
    path = root.outer_path(source.real)
    with store_errors("cannot open", path):
        opened = root.open(source.real)
    with opened as file:
        if file.path != source.real or not _is_same(os.fstat(file.descriptor), source, file):
            raise _changed(path)
        yield file


def _is_same(status: os.stat_result, source: ViewSource, file: OpenFile) -> bool:
    examined = (source.size, source.mtime_ns)
    return (status.st_size, status.st_mtime_ns) == examined and not unfit(status, file.descriptor)


def _changed(path: str) -> StoreError:
    return StoreError(
        f"{shown(path)} was changed while the view was made",
        hint="run the command again after the installation of the driver",
    )


def _link_or_clone(file: OpenFile, folders: Mapping[str, Directory], source: ViewSource) -> Method | _Refused:
    folder, name = _place(folders, source.path)
    try:
        _link(file, folder, name, source)
    except OSError as error:
        _raise_final(error, folder.file(name))
        link_error = error
    else:
        return "linked"
    try:
        with _new_file(folder, name) as fd:
            fcntl.ioctl(fd, _FICLONE, file.descriptor)
            _copy_metadata(fd, file, source)
    except OSError as error:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder.fd)
        _raise_final(error, folder.file(name))
        return _Refused(source=source, link=link_error, clone=error)
    return "cloned"


def _link(file: OpenFile, folder: Directory, name: str, source: ViewSource) -> None:
    # The link in /proc leads to the open file, even if another file has its name now. A hard link by name
    # could link the other file. Without /proc, the call fails (ENOENT), and only reflinks and copies are
    # possible.
    os.link(f"/proc/self/fd/{file.descriptor}", name, dst_dir_fd=folder.fd, follow_symlinks=True)
    status = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    # The inode is not compared. For a link, overlayfs copies the file up, and the copy has a new inode.
    if not _is_same(status, source, file):
        raise _changed(file.path)


def _raise_final(error: OSError, path: str) -> None:
    """Raise StoreError if all other methods would also fail with ERROR."""
    if error.errno in _FINAL:
        raise store_error("cannot write", path, error) from error


def _new_file(folder: Directory, name: str) -> AbstractContextManager[int]:
    return closing(os.open(name, _NEW, 0o600, dir_fd=folder.fd))


def _copy_metadata(fd: int, file: OpenFile, source: ViewSource) -> None:
    """Copy the metadata of SOURCE to its copy FD, and sync the copy to the disk."""
    os.fchmod(fd, source.copy_mode)
    _set_label(fd, _label(file.descriptor))
    os.utime(fd, ns=(source.mtime_ns, source.mtime_ns))
    os.fsync(fd)


def _impossible(view: Directory, refused: list[_Refused], root: Root) -> StoreError:
    first = refused[0]
    state_dir = posixpath.dirname(posixpath.dirname(view.path))
    meaning = _MEANINGS.get(first.link.errno or 0, "the file system does not support hard links")
    return StoreError(
        f"{shown(root.outer_path(first.source.real))} cannot be hard-linked into {shown(state_dir)} "
        f"({reason(first.link)}: {meaning}), and cannot be reflinked ({reason(first.clone)})",
        hint=f"set 'copy_driver_files: true' ({_mib(_size(refused))} MiB per driver), or 'layout: files' in "
        "the profile, or put state_dir on the driver's file system and mount",
        kind="view-impossible",
    )


def _require_space(view: Directory, refused: list[_Refused], margin: int) -> None:
    """Raise StoreError if there is not enough space for copies of all REFUSED files."""
    with store_errors("cannot read the free space of", view.path):
        space = os.fstatvfs(view.fd)
    size, free = _size(refused), space.f_bavail * space.f_frsize
    if free < size + margin:
        raise StoreError(
            f"the copies of the view take {_mib(size)} MiB, and {shown(view.path)} has {_mib(free)} MiB free "
            f"({_mib(margin)} MiB must stay free)",
            hint="free space there, or put state_dir on the same file system and mount as the driver",
        )


def _size(refused: list[_Refused]) -> int:
    return sum(entry.source.size for entry in refused)


def _mib(size: int) -> int:
    return -(-size >> 20)


def _is_shared(
    views_dir: Directory | None, root: Root, folders: Mapping[str, Directory], source: ViewSource
) -> bool:
    """Link a copy of SOURCE from a view in VIEWS_DIR, and return whether there was a copy."""
    if views_dir is None:
        return False
    with _opened(root, source) as file:
        return _link_copy(views_dir, file.descriptor, source, _place(folders, source.path))


def _link_copy(views_dir: Directory, file: int, source: ViewSource, at: tuple[Directory, str]) -> bool:
    """Hard-link a copy of SOURCE from a view in VIEWS_DIR, and return whether a copy was linked.

    AT is the folder and the name of the new link. FILE is the descriptor of SOURCE. The function ignores a
    copy that cannot be read or linked.
    """
    folder, name = at
    for view in view_names(views_dir):
        with suppress(OSError), closing(os.open(f"{view}/{source.path}", _READ, dir_fd=views_dir.fd)) as fd:
            if _is_copy(fd, file, source):
                os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder.fd, follow_symlinks=True)
                return True
    return False


def _is_copy(fd: int, file: int, source: ViewSource) -> bool:
    status = os.fstat(fd)
    properties = (status.st_size, status.st_mtime_ns, stat.S_IMODE(status.st_mode))
    return (
        properties == (source.size, source.mtime_ns, source.copy_mode)
        and not unfit(status, fd)
        and _is_equal(fd, file)
    )


def _is_equal(one: int, other: int) -> bool:
    """Return whether two open files have the same bytes. An equal size and time is not sufficient."""
    offset = 0
    while part := os.pread(one, _COMPARED, offset):
        if part != os.pread(other, _COMPARED, offset):
            return False
        offset += len(part)
    return not os.pread(other, 1, offset)


def _copy(file: OpenFile, folders: Mapping[str, Directory], source: ViewSource) -> None:
    folder, name = _place(folders, source.path)
    with store_errors("cannot write", folder.file(name)), _new_file(folder, name) as fd:
        offset = 0
        while sent := os.sendfile(fd, file.descriptor, offset, _CHUNK):
            offset += sent
        _copy_metadata(fd, file, source)
    if offset != source.size or not _is_same(os.fstat(file.descriptor), source, file):
        raise _changed(file.path)


def _make_placeholder(folders: Mapping[str, Directory], source: ViewSource) -> None:
    """Make the empty file on which the runtime mounts SOURCE.

    The modification time of the empty file is the time of SOURCE. This time identifies the empty file.
    """
    folder, name = _place(folders, source.path)
    with store_errors("cannot write", folder.file(name)), _new_file(folder, name) as fd:
        os.fchmod(fd, 0)
        os.utime(fd, ns=(source.mtime_ns, source.mtime_ns))


def _symlink(folders: Mapping[str, Directory], path: str, target: str) -> None:
    folder, name = _place(folders, path)
    with store_errors("cannot make", folder.file(name)):
        os.symlink(target, name, dir_fd=folder.fd)


def _place(folders: Mapping[str, Directory], path: str) -> tuple[Directory, str]:
    parent, name = posixpath.split(path)
    return folders[parent], name


def _library_folder(layout: ViewLayout, root: Root) -> str:
    """Return the folder on the host that contains the first library of LAYOUT.

    Containers may read files that have the SELinux label of this folder.
    """
    libraries = [source for source in layout.files if source.path.startswith("lib")]
    return root.outer_path(posixpath.dirname((libraries or list(layout.files))[0].real))


def _label(file: int | str) -> bytes:
    # Without SELinux, the result is b"".
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
        # A file system without labels has a single label for all files (mount option context=). Without
        # SELinux, only root may set the label.
        if error.errno != errno.ENOTSUP and os.geteuid() == 0:
            raise


def _finish(folders: Mapping[str, Directory], label: bytes) -> None:
    """Set the mode and label of the folders, and sync them. A parent is after its subfolders."""
    for path in sorted(folders, reverse=True):
        folder = folders[path]
        with store_errors("cannot set mode and label of", folder.path):
            os.fchmod(folder.fd, _FOLDER_MODE)
            _set_label(folder.fd, label)
        tempfiles.fsync_directory(folder)
