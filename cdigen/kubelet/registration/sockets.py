"""The sockets of the kubelet, of cdigen and of other device plugins in the folder of device plugins."""

from __future__ import annotations

import os
import secrets
import socket
import stat
from contextlib import suppress
from errno import ECONNREFUSED

from cdigen.host.confinement import refusal
from cdigen.host.root import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.kubelet.registration.events import Identity

# The folder of the sockets below the kubelet's folder, and the name of the kubelet's socket.
PLUGINS = "device-plugins"
KUBELET = "kubelet.sock"
# Every kubelet uses this folder, whatever --root-dir is. Only the pod resources API uses --root-dir
# (k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/constants.go; kubernetes issue 120626).
USUAL = f"/var/lib/kubelet/{PLUGINS}"
# The longest path of a Unix socket in bytes, without the final zero byte (<linux/un.h>).
MAX_PATH = 107
_PREFIX, _SUFFIX = "cdigen-", ".sock"
# The pattern of the names of cdigen's sockets.
OURS = f"{_PREFIX}*"
_TOKEN_BYTES = 4
# The smallest length of a token. A socket's name with such a token is not longer than kubelet.sock.
_SHORTEST = 4


def socket_at(path: str) -> Identity | None:
    """Return the identity of the socket at PATH, or None if there is no socket."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISSOCK(found.st_mode) else None


def fresh_socket(folder: str, resource: str) -> str:
    """Return the path of a new socket in FOLDER, with as much of the name of RESOURCE as MAX_PATH permits.

    If the path of the kubelet's own socket is short enough, the returned path is short enough, too.
    """
    token = secrets.token_hex(_TOKEN_BYTES)
    ending = f"-{token}{_SUFFIX}"
    space = MAX_PATH - len(os.fsencode(folder)) - 1 - len(_PREFIX)
    if space <= len(ending):
        return f"{folder}/{_PREFIX}{token[: max(space, _SHORTEST)]}"
    name = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in resource)
    return f"{folder}/{_PREFIX}{name[: space - len(ending)]}{ending}"


def plugins_folder(kubelet_dir: str, usual: str = USUAL) -> str:
    """Return the folder of the plugins' sockets for the kubelet with the folder KUBELET_DIR.

    The folder is KUBELET_DIR/device-plugins, which may be a link. If this folder does not exist, and USUAL
    has a kubelet's socket, the function returns USUAL.
    """
    folder = f"{kubelet_dir}/{PLUGINS}"
    return usual if not os.path.isdir(folder) and socket_at(f"{usual}/{KUBELET}") else folder


def kubelet_absence_reason(folder: str, usual: str = USUAL) -> str:
    """Return one line with the reason why FOLDER has no kubelet's socket; kubelets use the folder USUAL."""
    path = f"{folder}/{KUBELET}"
    try:
        os.stat(path)
    except FileNotFoundError:
        if folder != usual and socket_at(f"{usual}/{KUBELET}"):
            text = (
                f"the kubelet's socket is in {usual}, whatever --root-dir is; "
                f"make {shown(folder)} a link to that folder"
            )
            return f"{shown(path)} does not exist: {text}"
        text = "the kubelet has not started, uses another folder, or its folder is not mounted here"
        return f"{shown(path)} does not exist: {text}"
    except OSError as error:
        return f"{shown(path)}: cannot read the file status: {refusal(error)}"
    return f"{shown(path)} is not a socket"


def socket_failure_reason(folder: str) -> str:
    """Try to make a socket in FOLDER; return one line with the error, or "" if there is no error."""
    path = fresh_socket(folder, "x")
    try:
        with socket.socket(socket.AF_UNIX) as trial:
            trial.bind(path)
        os.unlink(path)
    except OSError as error:
        return f"{shown(folder)}: cannot make a socket: {refusal(error)}"
    return ""


def other_plugin_sockets(folder: str) -> frozenset[str]:
    """Return the names of other plugins' sockets in FOLDER."""
    try:
        names = os.listdir(folder)
    except OSError:
        return frozenset()
    others = (name for name in names if name != KUBELET and not name.startswith(_PREFIX))
    return frozenset(name for name in others if socket_at(f"{folder}/{name}"))


def remove_dead_sockets(folder: str) -> None:
    """Remove the sockets of cdigen in FOLDER on which no process listens."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and _is_dead(entry.path):
                with suppress(OSError):
                    os.unlink(entry.path)


def _is_dead(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        try:
            return client.connect_ex(path) == ECONNREFUSED and stat.S_ISSOCK(os.lstat(path).st_mode)
        except OSError:
            return False
