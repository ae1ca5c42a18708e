"""Let one process write at a time: ``exclusive`` holds the file ``lock`` in a directory.

The file is never removed: a lock on a file that another writer has unlinked protects nobody. It says who
holds it: the number of the process, and in a second line its owner, such as a pod.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import contextmanager, suppress

from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.store.failures import store_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.store.directory import Directory

LOCK_FILE = "lock"
# A cycle writes a handful of files; a process that holds the lock for longer is stuck, not busy.
TIMEOUT_S = 10.0
_POLL_S = 0.02
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# Anyone who can open it can lock it (flock(2)), and so keep us from writing.
_MODE = 0o600
# Of both lines; the names of a pod and its namespace have 316 characters at most.
_MAX_SIGNATURE = 512


class LockHeld(StoreError):
    """Another process holds the lock: ``holder`` says which, as far as that is known."""

    def __init__(self, message: str, *, holder: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.holder = holder


@contextmanager
def exclusive(directory: Directory, *, timeout_s: float | None = TIMEOUT_S, owner: str = "") -> Iterator[int]:
    """Hold the lock of DIRECTORY while the body runs, which gets the descriptor of its file.

    OWNER is what we are called in the messages of others, besides the number of our process. The kernel frees
    the lock if we die. StoreError: the lock file cannot be opened; ``LockHeld``: another process held the
    lock for all of TIMEOUT_S. Without a TIMEOUT_S this sleeps until the lock is free.
    """
    path = directory.file(LOCK_FILE)
    try:
        fd = os.open(LOCK_FILE, _FLAGS, _MODE, dir_fd=directory.fd)
    except OSError as error:
        raise store_error("cannot open", path, error) from error
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise StoreError(f"{shown(path)}: is not a regular file", hint="move it away")
        if mode & ~_MODE & 0o777:
            with suppress(OSError):
                os.fchmod(fd, _MODE)
        _wait(fd, path, timeout_s)
        _sign(fd, owner)
        yield fd
    finally:
        os.close(fd)


def _wait(fd: int, path: str, timeout_s: float | None) -> None:
    if timeout_s is None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as error:
            raise store_error("cannot lock", path, error) from error
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
    # The signature only improves the other process's message: a full disk must not stop us here.
    lines = (str(os.getpid()), owner) if owner else (str(os.getpid()),)
    signature = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
    with suppress(OSError):
        if os.pread(fd, len(signature) + 1, 0) != signature:
            os.ftruncate(fd, 0)
            os.pwrite(fd, signature, 0)


def _holder(fd: int) -> str:
    """Return who has signed the lock file FD."""
    first, _, rest = os.pread(fd, _MAX_SIGNATURE, 0).decode("utf-8", "replace").partition("\n")
    pid = first.strip() if first.isascii() and first.strip().isdigit() else ""
    owner = rest.strip()
    if not owner or not owner.isprintable():
        return f"process {pid}" if pid else "another process"
    # The numbers of a pod's processes say nothing to others.
    return owner if owner.startswith("pod ") or not pid else f"process {pid} ({owner})"


def _held(fd: int, path: str, timeout_s: float) -> LockHeld:
    holder = _holder(fd)
    return LockHeld(
        f"{shown(path)}: held by {holder} for more than {timeout_s:g} s",
        holder=holder,
        hint="wait for that cdigen to end, or stop it, then run the command again",
    )
