"""Give a new file the owner, mode, access list and label of the one that it replaces."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from cdigen.host.trust import ACCESS_LIST
from cdigen.store.failures import store_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.store.directory import Directory


def status_of(folder: Directory, name: str) -> os.stat_result | None:
    """Return the status of the file NAME in FOLDER, None for no file. StoreError: it cannot be read."""
    try:
        return os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise store_error("cannot look at", folder.file(name), error) from error


def copy_ownership(fd: int, folder: Directory, name: str, status: os.stat_result) -> None:
    """Give the new file FD the owner, the mode, the access list and the security label of the old one.

    The old one is NAME in FOLDER, with the status STATUS. StoreError: the system refused.
    """
    # By its descriptor: the name may be replaced, and a path could be redirected.
    path = f"/proc/self/fd/{folder.fd}/{name}"
    try:
        os.fchown(fd, status.st_uid, status.st_gid)
        os.fchmod(fd, stat.S_IMODE(status.st_mode) & 0o777)
        for attribute in _attributes(path):
            value = os.getxattr(path, attribute, follow_symlinks=False)
            # A label may be left at a new file's default; an access list must be kept.
            with suppress(*() if attribute == ACCESS_LIST else (OSError,)):
                os.setxattr(fd, attribute, value)
        os.fsync(fd)
    except OSError as error:
        raise store_error("cannot copy the owner and the mode of", folder.file(name), error) from error


def _attributes(path: str) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []  # the file system knows none
