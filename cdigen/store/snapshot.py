"""Read a file of a directory by its name, and open only regular files: ``take_snapshot``."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from cdigen.host.root import shown
from cdigen.store.failures import closing, store_errors
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.store.directory import Directory

# Specs have tens of kilobytes. A spec of 1,000 GPUs has less than 2 MB. Larger files are foreign and are not
# read.
MAX_BYTES = 64 << 20

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a fifo"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


@frozen
class FileSnapshot:
    """The file with a given name at one moment.

    ``description`` is for messages ("a symlink to /etc/passwd"). ``content`` is None if the file is not
    regular or is too large. ``identity`` changes if the file is replaced or its content changes. It is None
    if there is no file.
    """

    description: str
    content: bytes | None = None
    mode: int = 0
    uid: int = -1
    identity: tuple[int, ...] | None = None


NO_FILE = FileSnapshot(description="nothing")


def take_snapshot(directory: Directory, name: str, *, limit: int = MAX_BYTES) -> FileSnapshot:
    """Return a snapshot of NAME in DIRECTORY, with the content of a regular file of at most LIMIT bytes.

    Raises StoreError if the file cannot be examined or read.
    """
    with store_errors("cannot read", directory.file(name)), suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            with closing(os.open(name, _FLAGS, dir_fd=directory.fd)) as fd:
                return _read(fd, limit)
        return _snapshot(status, _description(directory, name, status.st_mode))
    return NO_FILE


def identity(directory: Directory, name: str) -> tuple[int, ...] | None:
    """Return the present ``identity`` of NAME in DIRECTORY without reading the file. Raises OSError."""
    try:
        return _identity(os.stat(name, dir_fd=directory.fd, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _read(fd: int, limit: int) -> FileSnapshot:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        return _snapshot(status, _other(status.st_mode))
    content = read_all(fd, limit=limit + 1) if status.st_size <= limit else None
    if content is None or len(content) > limit:  # the file can grow while it is read
        return _snapshot(status, f"a file of more than {limit} bytes")
    return _snapshot(status, "a file", content)


def read_all(fd: int, *, limit: int = MAX_BYTES) -> bytes:
    """Return the first bytes of the file, at most LIMIT. The offset of the descriptor is not used."""
    parts: list[bytes] = []
    offset = 0
    while part := os.pread(fd, min(1 << 20, limit - offset), offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _snapshot(status: os.stat_result, description: str, content: bytes | None = None) -> FileSnapshot:
    return FileSnapshot(
        description=description,
        content=content,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        identity=_identity(status),
    )


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns)


def _description(directory: Directory, name: str, mode: int) -> str:
    if stat.S_ISLNK(mode):
        return f"a symlink to {shown(os.readlink(name, dir_fd=directory.fd))}"
    return _other(mode)


def _other(mode: int) -> str:
    return next((text for is_type, text in _OTHERS if is_type(mode)), "not a regular file")
