"""Create device nodes (``make_node``), and the links to device nodes that systemd reads (``link_node``).

Both functions change a directory only if no other user can write to the directory. They make a node or link
under a temporary name that contains the process ID. Then the node or link gets its name in one step.
``sweep_nodes`` removes the temporary nodes and links of killed processes.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from contextlib import contextmanager, suppress

from cdigen.host.devnodes import kind_name, removal
from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.store.directory import open_existing, open_owned, require_owned
from cdigen.store.failures import closing, store_error, store_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cdigen.model.inventory import HostNode
    from cdigen.store.directory import Directory

DEVICE_DIRECTORY = "the device directory"
_TEMPORARY = re.compile(r"\.cdigen-.+\.([0-9]+)\.tmp", re.DOTALL)


def make_node(path: str, node: HostNode) -> str:
    """Make the character device NODE at PATH of this machine, and return ``created``, ``replaced`` or "".

    If PATH is a character device with the numbers of NODE, the function changes nothing. If the device at
    PATH has other numbers, the function replaces the device. The node appears in one step, with its group and
    mode. Then the function sets the owner. If the owner cannot be set, the function removes the node. Raises
    StoreError if another file is at PATH, another user can write to its directory, or a system call failed.
    """
    folder, name = posixpath.split(path)
    with open_owned(folder, what=DEVICE_DIRECTORY) as dev_dir:
        before = _existing(dev_dir, name, stat.S_ISCHR)
        if before is not None and before.st_rdev == os.makedev(node.major, node.minor):
            return ""
        try:
            with _made(dev_dir, name, node) as (temporary, fd_path):
                if before is None:
                    os.link(
                        temporary, name, src_dir_fd=dev_dir.fd, dst_dir_fd=dev_dir.fd, follow_symlinks=False
                    )
                else:
                    os.rename(temporary, name, src_dir_fd=dev_dir.fd, dst_dir_fd=dev_dir.fd)
                if node.uid:
                    _set_owner(dev_dir, name, fd_path, node.uid)
        except FileExistsError:
            return ""
        except OSError as error:
            raise store_error("cannot make the device node", path, error) from error
    return "created" if before is None else "replaced"


def link_node(path: str, target: str, node: HostNode) -> str:
    """Make the symbolic link PATH to TARGET, and return ``created``, ``replaced`` or "".

    TARGET is the path of the device NODE. The function does not change a link that leads to this device. It
    replaces a link that leads elsewhere in one step. Raises StoreError if another file is at PATH, another
    user can write to its directory, or a system call failed.
    """
    folder, name = posixpath.split(path)
    with open_owned(folder, what=DEVICE_DIRECTORY) as dev_dir:
        if _leads_to(dev_dir, name, node):
            return ""
        before = _existing(dev_dir, name, stat.S_ISLNK)
        temporary = _temporary_name(name)
        try:
            with store_errors("cannot create the link", path):
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=dev_dir.fd)
                os.symlink(target, temporary, dir_fd=dev_dir.fd)
                os.rename(temporary, name, src_dir_fd=dev_dir.fd, dst_dir_fd=dev_dir.fd)
        finally:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=dev_dir.fd)
    return "created" if before is None else "replaced"


def sweep_nodes(folder: str) -> None:
    """Remove the temporary nodes and links that killed processes left in FOLDER of this machine.

    Raises StoreError if FOLDER is not a directory, or another user can write to it.
    """
    with open_existing(folder, what=DEVICE_DIRECTORY) as dev_dir:
        if dev_dir is None:
            return
        require_owned(dev_dir, what=DEVICE_DIRECTORY)
        for name in os.listdir(dev_dir.fd):
            match = _TEMPORARY.fullmatch(name)
            if match is not None and not os.path.exists(f"/proc/{match[1]}"):
                with suppress(OSError):
                    os.unlink(name, dir_fd=dev_dir.fd)


def _temporary_name(name: str) -> str:
    return f".cdigen-{name}.{os.getpid()}.tmp"


def _existing(dev_dir: Directory, name: str, is_kind: Callable[[int], bool]) -> os.stat_result | None:
    """Return the status of the file NAME, or None if there is no file.

    Raises StoreError if IS_KIND rejects the file's mode.
    """
    try:
        status = os.stat(name, dir_fd=dev_dir.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if is_kind(status.st_mode):
        return status
    path = dev_dir.file(name)
    raise StoreError(f"{shown(path)} is {kind_name(status.st_mode)}", hint=removal(path))


@contextmanager
def _made(dev_dir: Directory, name: str, node: HostNode) -> Iterator[tuple[str, str]]:
    """Make NODE with its group and mode under a temporary name, and remove the temporary name at the end.

    Yield the temporary name, and a second path in /proc. The second path leads to the node even if another
    file has the temporary name.
    """
    temporary, numbers = _temporary_name(name), os.makedev(node.major, node.minor)
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=dev_dir.fd)  # left by a killed process that had the same process ID
    try:
        os.mknod(temporary, stat.S_IFCHR | 0o600, numbers, dir_fd=dev_dir.fd)
        # An O_PATH descriptor refers to the node itself; any other descriptor would open the device.
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        with closing(os.open(temporary, flags, dir_fd=dev_dir.fd)) as fd:
            status = os.fstat(fd)
            if not stat.S_ISCHR(status.st_mode) or status.st_rdev != numbers or status.st_nlink != 1:
                raise StoreError(f"{shown(dev_dir.file(temporary))}: another program has replaced this file")
            fd_path = f"/proc/self/fd/{fd}"
            os.chmod(fd_path, node.mode)
            _chown(dev_dir, fd_path, gid=node.gid)
            yield temporary, fd_path
    finally:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=dev_dir.fd)


def _chown(dev_dir: Directory, path: str, *, uid: int = -1, gid: int = -1) -> None:
    """Set the owner and group of the absolute PATH with fchownat(2).

    The system call filter of the systemd unit permits no other chown.
    """
    os.chown(path, uid, gid, dir_fd=dev_dir.fd)


def _set_owner(dev_dir: Directory, name: str, fd_path: str, uid: int) -> None:
    """Make UID the owner of the new node NAME, or remove the node.

    This is done after link(2), because a link to a device of another user requires CAP_FOWNER.
    """
    try:
        _chown(dev_dir, fd_path, uid=uid)
    except OSError:
        with suppress(OSError):
            os.unlink(name, dir_fd=dev_dir.fd)
        raise


def _leads_to(dev_dir: Directory, name: str, node: HostNode) -> bool:
    try:
        status = os.stat(name, dir_fd=dev_dir.fd)
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(node.major, node.minor)
