"""Convert an OSError to a StoreError with a hint (``store_errors``), and close descriptors (``closing``)."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

from cdigen.host.confinement import confinement
from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# The next step for each errno(3). For all other errors, the message has only the text of strerror(3).
_HINTS = {
    errno.EACCES: "run the command as root",
    errno.EDQUOT: "free space within the quota of the file system, then run the command again",
    errno.EIO: "the storage fails: see the kernel's log (dmesg)",
    errno.ENAMETOOLONG: "choose shorter names",
    errno.ENOSPC: "free space or inodes on the file system (df, df -i), then run the command again",
    errno.EPERM: "run the command as root; as root, look for an immutable flag with lsattr",
    errno.EROFS: "make the file system writable, or choose another directory",
}


def store_error(what: str, path: str, error: OSError, *, is_chosen: bool = False) -> StoreError:
    """Return the StoreError for ERROR at PATH, with a hint. The message starts with WHAT ("cannot write").

    IS_CHOSEN is set if the user can choose another folder with an option or a configuration key.
    """
    hint = _HINTS.get(error.errno or 0, "")
    if is_chosen and error.errno == errno.EACCES:
        hint += ", or name a folder of your own"
    if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() == 0:
        causes = "check lsattr, the mount's options, SELinux and AppArmor"
        hint = f"root is refused too: {confinement() or causes}"
    return StoreError(f"{what} {shown(path)}: {reason(error)}", hint=hint)


@contextmanager
def store_errors(what: str, path: str, *, is_chosen: bool = False) -> Iterator[None]:
    """Raise the StoreError of ``store_error`` if the block of code raises an OSError."""
    try:
        yield
    except OSError as error:
        raise store_error(what, path, error, is_chosen=is_chosen) from error


@contextmanager
def closing(fd: int) -> Iterator[int]:
    """Yield the open descriptor FD, and close FD at the end of the block."""
    try:
        yield fd
    finally:
        os.close(fd)
