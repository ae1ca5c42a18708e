"""Make a device node: ``make_node``, which the configuration must allow (``create_nodes``)."""

from __future__ import annotations

import os
import posixpath
import stat
from contextlib import suppress

from cdigen.store.directory import open_or_create
from cdigen.store.failures import store_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import HostNode
    from cdigen.store.directory import Directory

DEVICE_DIRECTORY = "the device directory"


def make_node(path: str, node: HostNode) -> bool:
    """Make the character device NODE at PATH of this machine; returns whether it was made.

    An existing file is left as it is. The node appears in one step, with its owner and mode: it is made under
    another name and linked. StoreError: the system refused.
    """
    folder, name = posixpath.split(path)
    with open_or_create(folder, what=DEVICE_DIRECTORY) as place:
        temporary = f".cdigen-{name}.{os.getpid()}.tmp"
        try:
            _make(place, temporary, node)
            os.link(temporary, name, src_dir_fd=place.fd, dst_dir_fd=place.fd, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError as error:
            raise store_error("cannot make the device node", path, error) from error
        finally:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=place.fd)
    return True


def _make(place: Directory, name: str, node: HostNode) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=place.fd)  # left by a killed process that had our process number
    os.mknod(name, stat.S_IFCHR | 0o600, os.makedev(node.major, node.minor), dir_fd=place.fd)
    os.chown(name, node.uid, node.gid, dir_fd=place.fd, follow_symlinks=False)
    # An O_PATH descriptor stands for the node itself; opening it would ask the driver.
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.fd)
    try:
        os.chmod(f"/proc/self/fd/{fd}", node.mode)
    finally:
        os.close(fd)
