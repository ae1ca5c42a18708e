"""Let one process write at a time: ``exclusive`` holds the file ``lock`` in the state directory.

The file is never removed: a lock on a file that another writer has unlinked protects nobody.
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


class LockHeld(StoreError):
    """Another process holds the lock."""


@contextmanager
def exclusive(directory: Directory, *, timeout_s: float = TIMEOUT_S) -> Iterator[int]:
    """Hold the lock of the state directory while the body runs, which gets the descriptor of its file.

    The kernel frees it if we die. StoreError: the lock file cannot be opened; ``LockHeld``: another process
    (named by its pid in its own pid namespace) held the lock for all of ``timeout_s``.
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
        _write_pid(fd)
        yield fd
    finally:
        os.close(fd)


def _wait(fd: int, path: str, timeout_s: float) -> None:
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


def _write_pid(fd: int) -> None:
    # The pid only improves the other process's message: a full disk must not stop us here.
    signature = f"{os.getpid()}\n".encode()
    with suppress(OSError):
        if os.pread(fd, len(signature) + 1, 0) != signature:
            os.ftruncate(fd, 0)
            os.pwrite(fd, signature, 0)


def _held(fd: int, path: str, timeout_s: float) -> LockHeld:
    pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
    holder = f"process {pid}" if pid.isascii() and pid.isdigit() else "another process"
    return LockHeld(
        f"{shown(path)}: held by {holder} for more than {timeout_s:g} s",
        hint="wait for that cdigen to end, or stop it, then run the command again",
    )
