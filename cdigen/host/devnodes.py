"""Read a device node of the host: ``read_node``."""

from __future__ import annotations

import os
import stat

from cdigen.model.inventory import HostNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root


class NotADevice(ValueError):
    """A path that exists but is not a character device."""


def read_node(root: Root, path: str, *, role: str, capabilities: tuple[str, ...] = ()) -> HostNode:
    """Return the character device at PATH, which is also the path of the device in containers.

    ``host_path`` has no links, because the runtimes refuse a link as the source of a node (CDI libraries use
    lstat). Raises OSError if PATH does not exist, and NotADevice if PATH is not a character device.
    """
    real, status = root.located(path)
    if not stat.S_ISCHR(status.st_mode):
        raise NotADevice(f"{root.host_path(path)} is {kind_name(status.st_mode)}, not a character device")
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


def kind_name(mode: int) -> str:
    """Return the name of the file type in the st_mode MODE, with its article."""
    for test, name in (
        (stat.S_ISREG, "a regular file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISBLK, "a block device"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISCHR, "a character device"),
    ):
        if test(mode):
            return name
    return "a socket"


def removal(path: str) -> str:
    """Return the shell command that removes the file or the empty folder PATH of this machine."""
    import shlex  # noqa: PLC0415 - only for a path that is not a device

    is_folder = os.path.isdir(path) and not os.path.islink(path)
    return shlex.join(["rmdir" if is_folder else "rm", path])
