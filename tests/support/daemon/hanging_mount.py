"""A file system in user space whose server does not answer: each read in it hangs until the server ends.

As a program, it mounts it over the first argument, and becomes the command in the others.
"""

import ctypes
import os
import sys


def mount(folder: str) -> int:
    """Mount it over FOLDER, in a mount namespace of the caller; returns the server's descriptor."""
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"fuse", folder.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "no file system of type fuse can be mounted")
    return server


if __name__ == "__main__":
    # The command inherits the server, and reads no request.
    server = mount(sys.argv[1])
    os.set_inheritable(server, True)  # noqa: FBT003 - it takes no keywords
    os.execvp(sys.argv[2], sys.argv[2:])
