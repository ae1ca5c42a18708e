"""``package_manager``: find out whether one is at work; while it is, a driver may be half of two versions."""

from __future__ import annotations

import fcntl
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

# (name, lock file): who changes packages holds a record lock for writing on it: dpkg(1) and apt (mode 0640),
# rpm (0644; queries hold one for reading: rpmlock_acquire in lib/rpmlock.c). pacman's is there while it works
# (libalpm, handle.c).
LOCK_FILES = (
    ("dpkg", "/var/lib/dpkg/lock"),
    ("apt", "/var/lib/dpkg/lock-frontend"),
    ("rpm", "/var/lib/rpm/.rpm.lock"),
    ("rpm", "/usr/lib/sysimage/rpm/.rpm.lock"),
)
PRESENCE_FILES = (("pacman", "/var/lib/pacman/db.lck"),)

PACKAGE_MANAGERS = frozenset(name for name, _ in (*LOCK_FILES, *PRESENCE_FILES))

# struct flock of 64-bit Linux: type, whence, start, length, pid; with padding.
_FLOCK = struct.Struct("hhqqi4x")


def package_manager(host: Root) -> str:
    """Return the name of a package manager that is at work on HOST, or an empty text."""
    for name, path in LOCK_FILES:
        if _is_locked(host, path):
            return name
    return next((name for name, path in PRESENCE_FILES if host.exists(path)), "")


def _is_locked(host: Root, path: str) -> bool:
    """Ask the kernel whether somebody holds a record lock for writing on PATH; takes none.

    A lock for reading waits only for one for writing, which takes a file opened for writing: only root can.
    One for reading any user can hold on rpm's file, for as long as they please.
    """
    try:
        with host.open(path) as file:
            asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(file.descriptor, fcntl.F_GETLK, asked)
    except OSError:
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
