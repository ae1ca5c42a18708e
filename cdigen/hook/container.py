"""Functions that open, read and write files below a container's root, and never outside of the root.

A path is opened one component at a time, by the descriptor of the parent folder, with O_NOFOLLOW and without
``..``. A symbolic link is refused, even if it replaces a folder during the operation. A file that the hook
writes must be on the mount of the container's root. Otherwise, the hook could change a file of the host. For
example, with ``-v /etc:/etc``, the container's /etc is the host's /etc. The same rule applies to a file that
the hook reads and then writes again. A file is first opened with O_PATH, which has no side effects. Only
regular files are then opened for reading, because opening a FIFO or a device can have side effects.
"""

from __future__ import annotations

import posix
from _stat import S_ISDIR, S_ISLNK, S_ISREG
from posix import O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_WRONLY

from cdigen.value import frozen

FILE_MODE = 0o644
FOLDER_MODE = 0o755

_FOLDER = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
EXAMINE = O_PATH | O_NOFOLLOW | O_CLOEXEC
_READ = O_RDONLY | O_NONBLOCK | O_CLOEXEC
NEW = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
_RANDOM_BYTES = 8
_PIECE = 1 << 20
_FDINFO_SIZE = 4096  # bytes; fdinfo of a file or folder has three lines (proc(5), /proc/pid/fdinfo)


class ContainerPathError(Exception):
    """The error for a step that fails at the path WHERE in the container. WHY is the reason."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, why)
        self.where = where
        self.why = why


class MissingPathError(ContainerPathError):
    """The error for a path that does not exist in the image."""


@frozen
class ContainerRoot:
    """The descriptor of a container's root, and the ID of the root's mount."""

    fd: int
    mount: int


def open_container(path: str) -> ContainerRoot:
    """Return the folder PATH of the host as a container's root.

    Raise ContainerPathError if the folder cannot be opened, or if it is the host's root.
    """
    try:
        fd = posix.open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)
        ours, host = posix.fstat(fd), posix.stat("/")
    except OSError as error:
        raise path_error(path, error) from error
    if (ours.st_dev, ours.st_ino) == (host.st_dev, host.st_ino):
        raise ContainerPathError(path, "the container's root is the host's root")
    return ContainerRoot(fd=fd, mount=mount_of(fd))


def open_current() -> ContainerRoot:
    """Return the current folder as a container's root. runc starts the hook in the container's root.

    Raise ContainerPathError as in ``open_container``, or if the current folder is not a mount point.
    """
    container = open_container(".")
    try:
        above = posix.open("..", O_PATH | O_DIRECTORY | O_CLOEXEC, dir_fd=container.fd)
    except OSError as error:
        raise path_error("..", error) from error
    if mount_of(above) == container.mount:
        raise ContainerPathError(
            ".", "the bundle cannot be read, and the current folder is not a container's root"
        )
    posix.close(above)
    return container


def mount_of(fd: int) -> int:
    """Return the ID of the mount that contains the open file FD.

    The ID comes from /proc, which is the host's /proc when the hook runs. statx(2) also reports the ID, but
    Python has no function for statx. Raise ContainerPathError if the kernel does not report the ID.
    """
    where = f"/proc/self/fdinfo/{fd}"
    try:
        source = posix.open(where, O_RDONLY | O_CLOEXEC)
        try:
            text = posix.read(source, _FDINFO_SIZE)
        finally:
            posix.close(source)
    except OSError as error:
        raise path_error(where, error) from error
    _, found, rest = text.partition(b"\nmnt_id:")
    number = rest.partition(b"\n")[0].strip()
    if not found or not number.isdigit():
        raise ContainerPathError(where, "has no mnt_id, so mounts cannot be distinguished")
    return int(number)


def open_folder(container: ContainerRoot, path: str, *, make_below: str | None = None) -> int:
    """Return a descriptor of the folder at the absolute PATH in the container.

    The folder must be on the mount of the container's root. Missing folders below MAKE_BELOW are created with
    the mode 0755. Raise MissingPathError if any other folder is missing. Raise ContainerPathError if a
    component is a symbolic link, is not a folder, is on another mount, or is the host's own folder.
    """
    fd = posix.dup(container.fd)
    where = ""
    try:
        for name in path.split("/")[1:]:
            make = where.startswith(make_below) if make_below else False
            where += "/" + name
            step = _enter(fd, name, where, make=make)
            posix.close(fd)
            fd = step
            check_mount(container, fd, where)
            _check_own(fd, where)
    except BaseException:
        posix.close(fd)
        raise
    return fd


def check_mount(container: ContainerRoot, fd: int, where: str) -> None:
    """Raise ContainerPathError if FD is on another mount than the container's root."""
    if mount_of(fd) != container.mount:
        raise ContainerPathError(
            where, "is on another mount than the container's root, possibly a mount of the host"
        )


def _check_own(fd: int, where: str) -> None:
    """Raise ContainerPathError if FD is the host's own folder at the path WHERE."""
    try:
        host = posix.stat(where)
    except OSError:
        return
    ours = posix.fstat(fd)
    if (ours.st_dev, ours.st_ino) == (host.st_dev, host.st_ino):
        raise ContainerPathError(where, "is the host's own folder")


def read_file(container: ContainerRoot, folder: int, name: str, where: str, limit: int) -> bytes | None:
    """Return the content of the regular file NAME in the open FOLDER, or None if the file does not exist.

    Raise ContainerPathError if the file is not a regular file, is on another mount than the container's root,
    has more than LIMIT bytes, or cannot be read.
    """
    try:
        opened = posix.open(name, EXAMINE, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise path_error(where, error) from error
    try:
        size = regular_size(opened, where)
        check_mount(container, opened, where)
        if size > limit:
            raise ContainerPathError(where, f"{size} bytes exceed the limit of {limit}")
        return _content(opened, where, limit)
    finally:
        posix.close(opened)


def regular_size(fd: int, where: str) -> int:
    """Return the size of the regular file FD; raise ContainerPathError if FD is not a regular file."""
    status = posix.fstat(fd)
    if not S_ISREG(status.st_mode):
        raise ContainerPathError(where, f"is {_kind(status.st_mode)}, not a regular file")
    return status.st_size


def reopen(opened: int) -> int:
    """Return a descriptor for reading the same file as OPENED, which was opened with O_PATH."""
    return posix.open(f"/proc/self/fd/{opened}", _READ)


def write_file(folder: int, name: str, content: bytes, where: str) -> None:
    """Write the file NAME with CONTENT and the mode 0644 into the open FOLDER, in one atomic step.

    The function replaces an existing file or link, and never writes to it. Therefore, a file of the host does
    not change, even if the replaced file is a hard link to it. Processes that have mapped the old file keep
    the old file. Raise ContainerPathError if the system refuses the write.
    """
    temporary = f".{name}.cdigen-{posix.urandom(_RANDOM_BYTES).hex()}"
    try:
        fd = posix.open(temporary, NEW, 0o600, dir_fd=folder)
        try:
            write_all(fd, content)
            posix.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            posix.unlink(temporary, dir_fd=folder)
            raise
        finally:
            posix.close(fd)
    except OSError as error:
        raise path_error(where, error) from error


def write_all(fd: int, content: bytes) -> None:
    """Write all of CONTENT to FD, and make the file readable for all users, independent of the umask."""
    view = memoryview(content)
    while view:
        view = view[posix.write(fd, view) :]
    posix.fchmod(fd, FILE_MODE)


def make_link(container: ContainerRoot, target: str, link: str) -> None:
    """Create a symbolic link with the text TARGET at LINK, an absolute path in the container.

    Software expects such links in library folders (libcuda.so). An existing file at LINK stays, because the
    file comes from the image or the user. The function does not create missing folders, because no program of
    the image searches them for libraries. Raise ContainerPathError if the hook must not write to the folder,
    or if the system refuses the link.
    """
    path, _, name = link.rpartition("/")
    try:
        folder = open_folder(container, path)
    except MissingPathError:
        return
    try:
        posix.symlink(target, name, dir_fd=folder)
    except FileExistsError:
        return
    except OSError as error:
        raise path_error(link, error) from error
    finally:
        posix.close(folder)


def path_error(where: str, error: OSError) -> ContainerPathError:
    """Return a ContainerPathError for WHERE with the system's text for ERROR."""
    return ContainerPathError(where, error.strerror or type(error).__name__)


def _enter(fd: int, name: str, where: str, *, make: bool) -> int:
    try:
        try:
            return posix.open(name, _FOLDER, dir_fd=fd)
        except FileNotFoundError:
            if not make:
                raise
        try:  # noqa: SIM105 - the import of contextlib takes longer than this step
            posix.mkdir(name, FOLDER_MODE, dir_fd=fd)
        except FileExistsError:
            pass  # the hook of another container with the same root has created the folder
        return posix.open(name, _FOLDER, dir_fd=fd)
    except FileNotFoundError:
        raise MissingPathError(where, "the image has no such folder") from None
    except NotADirectoryError:
        raise ContainerPathError(where, f"is {_kind_of(name, fd)}, which is not followed") from None
    except OSError as error:
        raise path_error(where, error) from error


def _kind_of(name: str, fd: int) -> str:
    try:
        return _kind(posix.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
    except OSError:
        return "no folder"


def _kind(mode: int) -> str:
    if S_ISLNK(mode):
        return "a link"
    if S_ISDIR(mode):
        return "a folder"
    return "a file" if S_ISREG(mode) else "a FIFO, socket or device"


def _content(opened: int, where: str, limit: int) -> bytes:
    """Return the content of OPENED.

    The file is read in pieces. Raise ContainerPathError if the file grows beyond LIMIT bytes, or if the
    system refuses the read.
    """
    pieces: list[bytes] = []
    left = limit
    try:
        fd = reopen(opened)
        try:
            while piece := posix.read(fd, _PIECE):
                pieces.append(piece)
                left -= len(piece)
                if left < 0:
                    raise ContainerPathError(where, f"the file grows beyond {limit} bytes")
        finally:
            posix.close(fd)
    except OSError as error:
        raise path_error(where, error) from error
    return b"".join(pieces)
