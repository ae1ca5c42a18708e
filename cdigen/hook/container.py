"""Open, read and write files below a container's root, such that no path can lead out of it.

One component at a time, each by the descriptor of the one before, O_NOFOLLOW on all, never ``..``: a
link is refused, not resolved, and what is swapped meanwhile is refused too. What we write, and what we
read to write it again, must be on the mount of the root itself: ``-v /etc:/etc`` makes the host's own
folder part of the container. Files are first opened with O_PATH, which touches nothing, and read only
when they turn out to be regular: opening a FIFO or a device has effects of its own.
"""

from __future__ import annotations

import posix
from _stat import S_ISDIR, S_ISLNK, S_ISREG
from posix import O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_WRONLY

from cdigen.value import frozen

FILE_MODE = 0o644
FOLDER_MODE = 0o755

_FOLDER = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
_LOOK = O_PATH | O_NOFOLLOW | O_CLOEXEC
_READ = O_RDONLY | O_NONBLOCK | O_CLOEXEC
_NEW = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
_RANDOM_BYTES = 8
_PIECE = 1 << 20
_FDINFO_SIZE = 4096  # three lines for what we open (proc(5), /proc/pid/fdinfo)


class ContainerPathError(Exception):
    """Report the path in the container at which a step stopped, and why."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, why)
        self.where = where
        self.why = why


class MissingPathError(ContainerPathError):
    """Report that the path, or a folder on the way, is not in the image."""


@frozen
class ContainerRoot:
    """A container's root: its descriptor, and the number of the mount that it is on."""

    fd: int
    mount: int


def open_container(path: str) -> ContainerRoot:
    """Open the folder PATH of the host as a container's root.

    ContainerPathError: it cannot be opened, or it is the host's own root.
    """
    try:
        fd = posix.open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)
        ours, host = posix.fstat(fd), posix.stat("/")
    except OSError as error:
        raise path_error(path, error) from error
    if (ours.st_dev, ours.st_ino) == (host.st_dev, host.st_ino):
        raise ContainerPathError(path, "the container's root is the host's")
    return ContainerRoot(fd=fd, mount=mount_of(fd))


def open_current() -> ContainerRoot:
    """Open the current folder as a container's root, which runc makes a mount of its own.

    ContainerPathError: as ``open_container``, or nothing is mounted on it.
    """
    container = open_container(".")
    try:
        above = posix.open("..", O_PATH | O_DIRECTORY | O_CLOEXEC, dir_fd=container.fd)
    except OSError as error:
        raise path_error("..", error) from error
    if mount_of(above) == container.mount:
        raise ContainerPathError(
            ".", "the bundle may not be read, and the current folder is not a container's root"
        )
    posix.close(above)
    return container


def mount_of(fd: int) -> int:
    """Return the number of the mount that the open FD is on. ContainerPathError: the kernel does not tell.

    From /proc, which is the host's when the hook runs; statx(2) tells it, too, but Python has no statx.
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
        raise ContainerPathError(where, "it has no mnt_id: mounts cannot be told apart")
    return int(number)


def open_folder(container: ContainerRoot, path: str, *, make_below: str | None = None) -> int:
    """Return a descriptor of the folder PATH, absolute in the container, on the mount of its root.

    Folders that are missing below MAKE_BELOW are made, mode 0755. MissingPathError: another one is not
    there. ContainerPathError: it, or one before it, is a link, not a folder, or on another mount.
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
    """Raise ContainerPathError where FD is on another mount than the container's root."""
    if mount_of(fd) != container.mount:
        raise ContainerPathError(
            where, "another mount than the container's root lies there, which may be the host's"
        )


def _check_own(fd: int, where: str) -> None:
    """Raise ContainerPathError where FD is the host's own folder of that name, however it came there."""
    try:
        host = posix.stat(where)
    except OSError:
        return
    ours = posix.fstat(fd)
    if (ours.st_dev, ours.st_ino) == (host.st_dev, host.st_ino):
        raise ContainerPathError(where, "it is the host's own folder")


def read_file(container: ContainerRoot, folder: int, name: str, where: str, limit: int) -> bytes | None:
    """Return the content of the regular file NAME in the open FOLDER; None where nothing has that name.

    ContainerPathError: it is not a regular file, on another mount than the root, longer than LIMIT bytes,
    or cannot be read.
    """
    try:
        seen = posix.open(name, _LOOK, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise path_error(where, error) from error
    try:
        size = regular_size(seen, where)
        check_mount(container, seen, where)
        if size > limit:
            raise ContainerPathError(where, f"{size} bytes are more than {limit}")
        return _content(seen, where, limit)
    finally:
        posix.close(seen)


def regular_size(fd: int, where: str) -> int:
    """Return the size of the regular file FD. ContainerPathError: it is something else."""
    status = posix.fstat(fd)
    if not S_ISREG(status.st_mode):
        raise ContainerPathError(where, f"it is {_kind(status.st_mode)}, not a regular file")
    return status.st_size


def reopen(seen: int) -> int:
    """Return a descriptor to read what SEEN, opened with O_PATH, stands for, and nothing else."""
    return posix.open(f"/proc/self/fd/{seen}", _READ)


def write_file(folder: int, name: str, content: bytes, where: str) -> None:
    """Put a file NAME with CONTENT, mode 0644, into the open FOLDER, in one step.

    What had the name is replaced, never written through, be it a link or another name of a host's file;
    processes that have mapped it keep what they have. ContainerPathError: the system does not let us.
    """
    temporary = f".{name}.cdigen-{posix.urandom(_RANDOM_BYTES).hex()}"
    try:
        fd = posix.open(temporary, _NEW, 0o600, dir_fd=folder)
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
    """Write all of CONTENT to FD, and make the file readable for all whatever the umask is."""
    view = memoryview(content)
    while view:
        view = view[posix.write(fd, view) :]
    posix.fchmod(fd, FILE_MODE)


def path_error(where: str, error: OSError) -> ContainerPathError:
    """Return the ContainerPathError that says what the system said."""
    return ContainerPathError(where, error.strerror or type(error).__name__)


def _enter(fd: int, name: str, where: str, *, make: bool) -> int:
    try:
        try:
            return posix.open(name, _FOLDER, dir_fd=fd)
        except FileNotFoundError:
            if not make:
                raise
        try:  # noqa: SIM105 - contextlib's import would cost more than this step
            posix.mkdir(name, FOLDER_MODE, dir_fd=fd)
        except FileExistsError:
            pass  # another start of a container with the same root made it meanwhile
        return posix.open(name, _FOLDER, dir_fd=fd)
    except FileNotFoundError:
        raise MissingPathError(where, "the image has no such folder") from None
    except NotADirectoryError:
        raise ContainerPathError(where, f"it is {_kind_of(name, fd)}, which is not followed") from None
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


def _content(seen: int, where: str, limit: int) -> bytes:
    """Return what SEEN holds, read in pieces: a file that grows meanwhile costs no more than its bound."""
    pieces: list[bytes] = []
    room = limit
    try:
        fd = reopen(seen)
        try:
            while piece := posix.read(fd, _PIECE):
                pieces.append(piece)
                room -= len(piece)
                if room < 0:
                    raise ContainerPathError(where, f"it grows beyond {limit} bytes")
        finally:
            posix.close(fd)
    except OSError as error:
        raise path_error(where, error) from error
    return b"".join(pieces)
