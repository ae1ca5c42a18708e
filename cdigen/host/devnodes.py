"""Read a device node of the host: ``read_node``."""

from __future__ import annotations

import os
import stat

from cdigen.model.inventory import HostNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root


class NotADevice(ValueError):
    """The path exists but is not a character device."""


def read_node(root: Root, path: str, *, role: str, capabilities: tuple[str, ...] = ()) -> HostNode:
    """Return the character device at PATH; the container gets it at the same path.

    Links are resolved, because the runtimes refuse a link as the source of a node (CDI libraries use lstat).
    Raises OSError if nothing exists there, NotADevice if it is something else.
    """
    real, status = root.located(path)
    if not stat.S_ISCHR(status.st_mode):
        raise NotADevice(f"{root.host_path(path)} is {_kind(status.st_mode)}, not a character device")
    return HostNode(
        path=path,
        host_path=root.host_path(real),
        role=role,
        major=os.major(status.st_rdev),
        minor=os.minor(status.st_rdev),
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        capabilities=capabilities,
    )


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISREG, "a regular file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISBLK, "a block device"),
        (stat.S_ISFIFO, "a FIFO"),
    ):
        if test(mode):
            return name
    return "a socket"
