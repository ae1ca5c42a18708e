"""``mps_problem`` checks NVIDIA's Multi-Process Service (MPS) on this host."""

from __future__ import annotations

import errno
import os
import socket

from cdigen.host.root import reason

# The name of the control daemon's socket in the pipe directory (source: the daemon's log).
_CONTROL = "control"


def mps_problem(pipe_directory: str) -> str:
    """Return the reason why containers cannot use PIPE_DIRECTORY now, or "".

    The function connects to the control daemon, sends no data, and does not wait. The daemon logs this
    connection, like the connections of NVIDIA's own programs.
    """
    path = f"{pipe_directory}/{_CONTROL}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(0)
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return f"no control daemon listens at {path}: start the daemon"
        except OSError as error:
            # With these errors, the daemon exists. Its queue is full, or its socket is not a stream socket.
            if error.errno not in {errno.EAGAIN, errno.EINPROGRESS, errno.EPROTOTYPE}:
                return f"{path}: {reason(error)}; is the control daemon of the resource running?"
    return _foreign_owner(os.path.dirname(pipe_directory))


def _foreign_owner(folder: str) -> str:
    """Return "" if root or the user of this process owns each folder in the path FOLDER, or else a message.

    Containers may write below FOLDER. A user who can create links in the path can redirect these writes to
    any folder of the host.
    """
    while folder != "/":
        try:
            owner = os.lstat(folder).st_uid
        except OSError as error:
            return f"{folder}: {reason(error)}"
        if owner not in {0, os.geteuid()}:
            return f"{folder} belongs to the user {owner}, not to root"
        folder = os.path.dirname(folder)
    return ""
