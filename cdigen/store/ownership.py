"""Copy the owner, mode, access list and label of a file to the new file that replaces it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from cdigen.host.trust import ACCESS_LIST
from cdigen.store.failures import store_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.store.directory import Directory


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


def _attributes(path: str) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []  # the file system has no attributes
