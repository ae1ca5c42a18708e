"""NVIDIA's Multi-Process Service on this host: ``mps_problem``."""

from __future__ import annotations

import errno
import os
import socket

from cdigen.host.root import reason

# The socket in the pipe directory at which a control daemon listens, as its log says.
_CONTROL = "control"


def mps_problem(pipe_directory: str) -> str:
    """Return why no container may have PIPE_DIRECTORY now, or "". It does not wait.

    The control daemon logs a connection that says nothing, as it does of NVIDIA's own programs.
    """
    path = f"{pipe_directory}/{_CONTROL}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(0)
        try:
            asking.connect(path)
        except ConnectionRefusedError:
            return f"no control daemon listens at {path}: start it"
        except OSError as error:
            # It has as many waiting as it takes, or is a socket of another type: it is there.
            if error.errno not in {errno.EAGAIN, errno.EINPROGRESS, errno.EPROTOTYPE}:
                return f"{path}: {reason(error)}; is the control daemon of the resource running?"
    return _of_others(os.path.dirname(pipe_directory))


def _of_others(folder: str) -> str:
    """Return which part of FOLDER's path is not root's, or "".

    Containers get what is below it, to write: who may put a link there would choose which folder of the host.
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
