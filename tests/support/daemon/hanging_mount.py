"""A FUSE file system whose server does not respond, so that each read hangs until the server ends.

As a program, the module mounts the file system over its first argument, and executes the other arguments.
"""

import ctypes
import os
import sys


def mount(folder: str) -> int:
    """Mount the file system over FOLDER in the caller's mount namespace; return the server's descriptor."""
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"fuse", folder.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "no file system of type fuse can be mounted")
    return server


if __name__ == "__main__":
    # The command inherits the server's descriptor, but reads no request from it.
    server = mount(sys.argv[1])
    os.set_inheritable(server, True)  # noqa: FBT003 - it takes no keywords
    os.execvp(sys.argv[2], sys.argv[2:])
