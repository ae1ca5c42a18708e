"""Write a file under a temporary name and rename it, and remove the temporary files of ended writers.

The temporary name ends in ``.tmp``. No runtime loads files with this suffix. The temporary file is in the
directory of the final file, because the runtimes do not notice a rename from another directory
(docs/reference/cdi-loaders.md, "Watching"). While a writer runs, it holds an flock on its temporary file. If
``sweep`` can lock a temporary file, its writer has ended. This is also true for a writer in another PID
namespace. ``copy_ownership`` copies the owner, mode, access list and label of the replaced file to the new
file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from contextlib import contextmanager, suppress

from cdigen.host.root import shown
from cdigen.host.trust import ACCESS_LIST
from cdigen.model.errors import StoreError
from cdigen.store.failures import closing, store_error, store_errors
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.store.directory import Directory

# The names that ``temporary_name`` returns.
TEMPORARY = re.compile(r"\.cdigen-.+\.[0-9]+\.[0-9a-f]{8}\.tmp", re.DOTALL)
# 0644: with the mode 0600 of upstream's WriteSpec, rootless users cannot read the file (CDI issue 224).
MODE = 0o644

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SWEEP_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# NAME_MAX is 255. The prefix, process ID, random part and suffix have at most 33 bytes.
_MAX_NAME_BYTES = 200
_ATTEMPTS = 10
# The errors of file systems that cannot sync a directory (fsync(2)).
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})


@frozen
class Staged:
    """A temporary file with the complete content."""

    name: str
    fd: int


@contextmanager
def staged(directory: Directory, name: str, content: bytes, *, mode: int = MODE) -> Iterator[Staged]:
    """Yield a temporary file for NAME that has CONTENT and MODE.

    The function removes the temporary file at the end if ``rename_into_place`` has not renamed it. Raises
    StoreError if there is no space or no permission, or the file system is read-only or fails. Then no file
    remains.
    """
    fd, temporary = _create(directory, name)
    try:
        with store_errors("cannot write", directory.file(name)):
            _fill(fd, content, mode)
        yield Staged(name=temporary, fd=fd)
    finally:
        # If the file cannot be removed, the next writer removes the file. An error here must not hide an
        # earlier error.
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory.fd)
        os.close(fd)


def replace_file(directory: Directory, name: str, content: bytes, *, mode: int = MODE) -> None:
    """Replace the file NAME in one step, and sync it to the disk.

    Raises StoreError if a system call failed.
    """
    with staged(directory, name, content, mode=mode) as temporary:
        rename_into_place(temporary, directory, name)
        fsync_directory(directory)


def rename_into_place(content: Staged, directory: Directory, name: str) -> None:
    """Rename the temporary file CONTENT to NAME in one step. Raises StoreError if a system call failed."""
    with store_errors("cannot write", directory.file(name)):
        os.rename(content.name, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)


def remove_file(directory: Directory, name: str) -> None:
    """Remove the file NAME, which may be missing, and sync DIRECTORY. Raises StoreError if a call failed."""
    with store_errors("cannot remove", directory.file(name)), suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory.fd)
    fsync_directory(directory)


def fsync_directory(directory: Directory) -> None:
    """Sync the entries of DIRECTORY to the disk. Raises StoreError if the storage failed."""
    try:
        os.fsync(directory.fd)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise store_error("cannot sync", directory.path, error) from error


def sweep(directory: Directory) -> None:
    """Remove the temporary files of ended writers.

    The function removes only regular files that have a temporary name and belong to the user of this process.
    A file that cannot be removed stays and is harmless. The next write reports the error of the file system.
    """
    with store_errors("cannot list", directory.path):
        names = os.listdir(directory.fd)
    for name in names:
        if TEMPORARY.fullmatch(name):
            _remove(directory, name)


def temporary_name(name: str) -> str:
    """Return a new temporary name for NAME."""
    stem = os.fsdecode(os.fsencode(name)[:_MAX_NAME_BYTES])
    return f".cdigen-{stem}.{os.getpid()}.{os.urandom(4).hex()}.tmp"


def status_of(folder: Directory, name: str) -> os.stat_result | None:
    """Return the status of the file NAME in FOLDER, or None if there is no file.

    Raises StoreError if the status cannot be read.
    """
    with store_errors("cannot examine", folder.file(name)), suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    return None


def copy_ownership(fd: int, folder: Directory, name: str, status: os.stat_result) -> None:
    """Copy the owner, mode, access list and security label of the old file to the new file FD.

    The old file is NAME in FOLDER, with the status STATUS. Raises StoreError if a system call failed.
    """
    # The path uses the descriptor of the folder, because another process can replace the folder at its path.
    path = f"/proc/self/fd/{folder.fd}/{name}"
    with store_errors("cannot copy the owner and the mode of", folder.file(name)):
        os.fchown(fd, status.st_uid, status.st_gid)
        os.fchmod(fd, stat.S_IMODE(status.st_mode) & 0o777)
        for attribute in _attributes(path):
            value = os.getxattr(path, attribute, follow_symlinks=False)
            # The copy of the access list must succeed. If a label cannot be copied, the new file keeps its
            # default label.
            with suppress(*() if attribute == ACCESS_LIST else (OSError,)):
                os.setxattr(fd, attribute, value)
        os.fsync(fd)


def _create(directory: Directory, name: str) -> tuple[int, str]:
    for _ in range(_ATTEMPTS):
        temporary = temporary_name(name)
        try:
            fd = os.open(temporary, _FLAGS, 0o600, dir_fd=directory.fd)
        except FileExistsError:
            continue
        except OSError as error:
            raise store_error("cannot write", directory.file(name), error) from error
        if _claimed(fd):
            return fd, temporary
        os.close(fd)
    raise StoreError(
        f"cannot write {shown(directory.file(name))}: another program removes cdigen's temporary files"
    )


def _claimed(fd: int) -> bool:
    # Between open and flock, a sweep of another process can lock the file. Then the sweep still holds the
    # lock, or has removed the file.
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # the file system has no locks, and a sweep cannot lock the file
    return os.fstat(fd).st_nlink > 0


def _fill(fd: int, content: bytes, mode: int) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.fchmod(fd, mode)
    os.fsync(fd)
    # NFS and file systems with quotas sometimes report a failed write only when the file is closed. Closing a
    # duplicate reports the error. The lock stays, because it belongs to the open file.
    os.close(os.dup(fd))


def _remove(directory: Directory, name: str) -> None:
    # An OSError means that a running writer holds the lock, or the file is missing or cannot be removed.
    with suppress(OSError), closing(os.open(name, _SWEEP_FLAGS, dir_fd=directory.fd)) as fd:
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=directory.fd)


def _attributes(path: str) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []  # the file system has no attributes
