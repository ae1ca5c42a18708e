"""The lock of a directory, which permits one writer at a time: ``exclusive`` locks the file ``lock``.

cdigen never removes the file, because a lock on a removed file has no effect on other writers. The first line
of the file is the ID of the process that holds the lock. The second line is the owner of the process, for
example a pod.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import contextmanager, suppress

from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.store.failures import closing, store_error, store_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.store.directory import Directory

LOCK_FILE = "lock"
# Seconds. A cycle writes only a few files. A process that holds the lock for a longer time hangs.
TIMEOUT_S = 10.0
_POLL_S = 0.02
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# A user who can open the file can lock the file (flock(2)). Then cdigen cannot write.
_MODE = 0o600
# The maximum size of both lines. The names of a pod and its namespace have 316 characters at most.
_MAX_SIGNATURE = 512


class LockHeld(StoreError):
    """The error if another process holds the lock. ``holder`` describes that process."""

    def __init__(self, message: str, *, holder: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.holder = holder


@contextmanager
def exclusive(directory: Directory, *, timeout_s: float | None = TIMEOUT_S, owner: str = "") -> Iterator[int]:
    """Yield the descriptor of the lock file, and hold the lock of DIRECTORY while the body runs.

    Messages of other processes show OWNER and the process ID of this process. The kernel releases the lock
    when the process ends. If TIMEOUT_S is None, the function waits until the lock is free. Raises StoreError
    if the lock file cannot be opened. Raises ``LockHeld`` if another process still held the lock after
    TIMEOUT_S.
    """
    path = directory.file(LOCK_FILE)
    with store_errors("cannot open", path, is_chosen=True):
        fd = os.open(LOCK_FILE, _FLAGS, _MODE, dir_fd=directory.fd)
    with closing(fd):
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise StoreError(f"{shown(path)} is not a regular file", hint="move it away")
        if mode & ~_MODE & 0o777:
            with suppress(OSError):
                os.fchmod(fd, _MODE)
        _wait(fd, path, timeout_s)
        _sign(fd, owner)
        yield fd


def _wait(fd: int, path: str, timeout_s: float | None) -> None:
    if timeout_s is None:
        with store_errors("cannot lock", path):
            fcntl.flock(fd, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise _held(fd, path, timeout_s) from None
        except OSError as error:
            raise store_error("cannot lock", path, error) from error
        else:
            return
        time.sleep(_POLL_S)


def _sign(fd: int, owner: str) -> None:
    # Only the messages of other processes use the signature. Therefore, a failed write is not an error.
    lines = (str(os.getpid()), owner) if owner else (str(os.getpid()),)
    signature = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
    with suppress(OSError):
        if os.pread(fd, len(signature) + 1, 0) != signature:
            os.ftruncate(fd, 0)
            os.pwrite(fd, signature, 0)


def _holder(fd: int) -> str:
    """Return the name of the process that signed the lock file FD."""
    first, _, rest = os.pread(fd, _MAX_SIGNATURE, 0).decode("utf-8", "replace").partition("\n")
    pid = first.strip() if first.isascii() and first.strip().isdigit() else ""
    owner = rest.strip()
    if not owner or not owner.isprintable():
        return f"process {pid}" if pid else "another process"
    # A process ID in a pod is not valid outside the pod.
    return owner if owner.startswith("pod ") or not pid else f"process {pid} ({owner})"


def _held(fd: int, path: str, timeout_s: float) -> LockHeld:
    holder = _holder(fd)
    return LockHeld(
        f"{shown(path)}: held by {holder} for more than {timeout_s:g} s",
        holder=holder,
        hint="wait until that process ends, or stop it, then run the command again",
    )
