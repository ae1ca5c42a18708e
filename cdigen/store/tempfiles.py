"""Write content under a temporary name, rename it into place, and sweep what dead writers left.

The name ends in ``.tmp``, which no runtime loads, and the file is in the directory of its target:
a rename from elsewhere is not seen by the runtimes' watches (docs/cdi.md, "Watching"). A writer holds
an flock on its temporary file while it runs, so a sweep recognizes a dead writer's file, even across pid
namespaces: the lock can be taken.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from contextlib import contextmanager, suppress

from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.store.failures import store_error
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.store.directory import Directory

# What ``temporary_name`` gives.
TEMPORARY = re.compile(r"\.cdigen-.+\.[0-9]+\.[0-9a-f]{8}\.tmp", re.DOTALL)
# 0644: upstream's WriteSpec leaves 0600 and rootless users cannot read it (CDI issue 224).
MODE = 0o644

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SWEEP_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# NAME_MAX is 255; prefix, pid, random part and suffix take at most 33.
_MAX_NAME_BYTES = 200
_ATTEMPTS = 10
# The errors of file systems that cannot sync a directory (fsync(2)): there is nothing to wait for.
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})


@frozen
class Staged:
    """Content that is on the disk under a temporary name."""

    name: str
    fd: int


@contextmanager
def staged(directory: Directory, name: str, content: bytes, *, mode: int = MODE) -> Iterator[Staged]:
    """Write CONTENT with MODE under a temporary name for NAME; removed unless ``rename_into_place`` took it.

    StoreError: no space, no permission, a read-only or failing file system; nothing is left then.
    """
    fd, temporary = _create(directory, name)
    try:
        try:
            _fill(fd, content, mode)
        except OSError as error:
            raise store_error("cannot write", directory.file(name), error) from error
        yield Staged(name=temporary, fd=fd)
    finally:
        # If this cannot be removed, the next writer sweeps it up; it must not hide the first error.
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory.fd)
        os.close(fd)


def replace_file(directory: Directory, name: str, content: bytes, *, mode: int = MODE) -> None:
    """Write CONTENT to the file NAME in one step, and wait until it is on the disk. StoreError: refused."""
    with staged(directory, name, content, mode=mode) as temporary:
        rename_into_place(temporary, directory, name)
        fsync_directory(directory)


def rename_into_place(content: Staged, directory: Directory, name: str) -> None:
    """Give the staged content its NAME in the directory, in one step. StoreError: that was refused."""
    try:
        os.rename(content.name, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    except OSError as error:
        raise store_error("cannot write", directory.file(name), error) from error


def fsync_directory(directory: Directory) -> None:
    """Wait until the directory's names are on the disk. StoreError: the storage failed."""
    try:
        os.fsync(directory.fd)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise store_error("cannot sync", directory.path, error) from error


def sweep(directory: Directory) -> tuple[str, ...]:
    """Remove the temporary files that dead writers left, and return their names, sorted.

    Only regular files of our own user with exactly our form of name are removed. One that cannot be removed
    stays: it does no harm, and the file system's error will be reported at the next write.
    """
    try:
        names = os.listdir(directory.fd)
    except OSError as error:
        raise store_error("cannot list", directory.path, error) from error
    return tuple(name for name in sorted(names) if TEMPORARY.fullmatch(name) and _removed(directory, name))


def temporary_name(name: str) -> str:
    """Return a new temporary name for NAME."""
    stem = os.fsdecode(os.fsencode(name)[:_MAX_NAME_BYTES])
    return f".cdigen-{stem}.{os.getpid()}.{os.urandom(4).hex()}.tmp"


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
        f"cannot write {shown(directory.file(name))}: another program removes our temporary files"
    )


def _claimed(fd: int) -> bool:
    # Between our open and our flock a sweep may mistake the file for a dead writer's: then it holds the lock,
    # or has unlinked the file.
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: a sweep cannot take the lock either
    return os.fstat(fd).st_nlink > 0


def _fill(fd: int, content: bytes, mode: int) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.fchmod(fd, mode)
    os.fsync(fd)
    # Some file systems (NFS, quotas) report a failed write only at close; closing a duplicate shows it, and
    # keeps our lock, which belongs to the open file.
    os.close(os.dup(fd))


def _removed(directory: Directory, name: str) -> bool:
    try:
        fd = os.open(name, _SWEEP_FLAGS, dir_fd=directory.fd)
    except OSError:
        return False
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name, dir_fd=directory.fd)
    except OSError:  # locked by its running writer, or gone, or cannot be removed
        return False
    else:
        return True
    finally:
        os.close(fd)
