"""Sockets in the folder of the kubelet's plugins: its own, fresh ones of ours, those left behind."""

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
    from cdigen.kubelet.occurrences import Identity

# The folder of the sockets in the kubelet's own, and in it the kubelet's socket.
PLUGINS = "device-plugins"
KUBELET = "kubelet.sock"
# Where every kubelet has that folder, whatever its --root-dir, which pod resources alone follow
# (k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/constants.go; kubernetes issue 120626).
USUAL = f"/var/lib/kubelet/{PLUGINS}"
# Of <linux/un.h>: the path of a Unix socket, without its final zero.
MAX_PATH = 107
_PREFIX, _SUFFIX = "cdigen-", ".sock"
# Our sockets, as a pattern of names.
OURS = f"{_PREFIX}*"
_TOKEN_BYTES = 4
# Letters of a token at least: a name is no longer than the kubelet's own then.
_SHORTEST = 4


def socket_at(path: str) -> Identity | None:
    """Return which socket is at PATH; None: none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISSOCK(found.st_mode) else None


def fresh_socket(folder: str, resource: str) -> str:
    """Return the path of a socket in FOLDER that was not used before; it names RESOURCE as far as it fits.

    It fits wherever the kubelet's own does.
    """
    token = secrets.token_hex(_TOKEN_BYTES)
    ending = f"-{token}{_SUFFIX}"
    room = MAX_PATH - len(os.fsencode(folder)) - 1 - len(_PREFIX)
    if room <= len(ending):
        return f"{folder}/{_PREFIX}{token[: max(room, _SHORTEST)]}"
    name = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in resource)
    return f"{folder}/{_PREFIX}{name[: room - len(ending)]}{ending}"


def plugins_folder(kubelet_dir: str, usual: str = USUAL) -> str:
    """Return the folder of plugins' sockets of a kubelet whose own folder is KUBELET_DIR.

    That is in it only where it is there, such as by a link; else it is USUAL, if a kubelet was there.
    """
    folder = f"{kubelet_dir}/{PLUGINS}"
    return usual if not os.path.isdir(folder) and socket_at(f"{usual}/{KUBELET}") else folder


def why_no_kubelet(folder: str, usual: str = USUAL) -> str:
    """Return in one line why the kubelet is not found in FOLDER. USUAL is where kubelets look for plugins."""
    path = f"{folder}/{KUBELET}"
    try:
        os.stat(path)
    except FileNotFoundError:
        if folder != usual and socket_at(f"{usual}/{KUBELET}"):
            text = (
                f"the kubelet's is in {usual}, whatever its --root-dir; make {shown(folder)} a link to that"
            )
            return f"there is no {shown(path)}: {text}"
        text = "the kubelet has not started, or has its folder elsewhere, or it is not mounted here"
        return f"there is no {shown(path)}: {text}"
    except OSError as error:
        return f"{shown(path)} cannot be looked at: {refusal(error)}"
    return f"{shown(path)} is no socket"


def why_no_socket(folder: str) -> str:
    """Return in one line why no socket can be made in FOLDER, by trying it; "" where one can."""
    path = fresh_socket(folder, "x")
    try:
        with socket.socket(socket.AF_UNIX) as trial:
            trial.bind(path)
        os.unlink(path)
    except OSError as error:
        return f"no socket can be made in {shown(folder)}: {refusal(error)}"
    return ""


def neighbours(folder: str) -> frozenset[str]:
    """Return the names of other plugins' sockets in FOLDER."""
    try:
        names = os.listdir(folder)
    except OSError:
        return frozenset()
    others = (name for name in names if name != KUBELET and not name.startswith(_PREFIX))
    return frozenset(name for name in others if socket_at(f"{folder}/{name}"))


def sweep(folder: str) -> None:
    """Remove our sockets in FOLDER on which nobody listens."""
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
