"""Detect whether this process runs in a container, and return the hints for it.

``is_guest`` detects whether a host is itself a container, such as a guest of LXC or Incus.
"""

from __future__ import annotations

import os

from cdigen import page_url
from cdigen.host.procfs import read_text
from cdigen.host.root import Root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Podman and CRI-O create /run/.containerenv in every container. Docker creates /.dockerenv.
_FILES = ("/run/.containerenv", "/.dockerenv")
# systemd writes this file if systemd is process 1 of a container (LXC, Incus, systemd-nspawn).
_SYSTEM_CONTAINER = "/run/systemd/container"
# LXC, and so Incus and LXD, libvirt's LXC driver and systemd-nspawn set this variable for process 1 of a
# guest, whose init can be another program than systemd (src/lxc/start.c of LXC; systemd's Container
# Interface). Only root can read it.
_ENVIRONMENT = "/proc/1/environ"
_GUESTS = frozenset({"container=lxc", "container=lxc-libvirt", "container=systemd-nspawn"})
# The map of process 1, which every user can read.
_FIRST_UID_MAP = "/proc/1/uid_map"
# The map of the initial user namespace, the only one in which root may create device nodes
# (user_namespaces(7)).
_UID_MAP, _INITIAL = "/proc/self/uid_map", ["0", "0", "4294967295"]
_MAX_BYTES = 1 << 20
# The kubelet sets this variable in every pod.
_POD = "KUBERNETES_SERVICE_HOST"


# The hints: for a container of an engine, and for a guest of LXC or systemd-nspawn.
_MOUNT = (
    "mount the host's / with '--volume /:/host:ro,rslave', and add --root /host "
    f"({page_url('how-to/container-image')})"
)
_BIND = (
    "run cdigen on the host, or pass the host's device nodes to the guest ('incus config device add', "
    "lxc.mount.entry, systemd-nspawn --bind)"
)


def in_container(environ: Mapping[str, str] = os.environ, *, root: str = "") -> bool:
    """Return whether ENVIRON or the files below ROOT show that this process runs in a container."""
    return _POD in environ or any(os.path.exists(f"{root}{path}") for path in _FILES)


def uses_host_kernel() -> bool:
    """Return whether the kernel and its modules belong to another system, as in containers and LXC guests."""
    return in_container() or is_guest(Root())


def is_guest(host: Root) -> bool:
    """Return whether HOST is a container, to which its own host passes some of the device nodes."""
    is_pod = host.is_this_machine and _POD in os.environ
    if is_pod or any(host.exists(path) for path in (*_FILES, _SYSTEM_CONTAINER)):
        return True
    if not _GUESTS.isdisjoint(_read(host, _ENVIRONMENT).split("\0")):
        return True
    # Process 1 of a host is in the initial user namespace, and process 1 of an unprivileged guest is not. A
    # process in another namespace sees other IDs in the map, but the same number of IDs.
    words = _read(host, _FIRST_UID_MAP).partition("\n")[0].split()
    return len(words) == len(_INITIAL) and words[-1] != _INITIAL[-1]


def _read(host: Root, path: str) -> str:
    try:
        return read_text(host, path, limit=_MAX_BYTES)
    except OSError:
        return ""


def may_create_nodes(host: Root) -> bool:
    """Return whether mknod(2) of a device can work on HOST.

    The kernel forbids mknod in a user namespace. The host of a guest decides which devices the guest may use.
    """
    if is_guest(host):
        return False
    try:
        with open(_UID_MAP, encoding="ascii") as file:
            return not host.is_this_machine or file.readline().split() == _INITIAL
    except OSError:
        return True


def hint_without_host(host: Root) -> str:
    """Return the hint that mounts the host if HOST is the root of a container of an engine, otherwise ""."""
    return _MOUNT if host.is_this_machine and in_container() else ""


def host_hint() -> str:
    """Return the hint that makes the host's devices accessible if ``uses_host_kernel`` is true."""
    return _MOUNT if in_container() else _BIND
