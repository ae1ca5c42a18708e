"""Detect whether this process runs in a container: ``in_container``, ``uses_host_kernel``, ``host_hint``."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Podman and CRI-O create /run/.containerenv in every container. Docker creates /.dockerenv.
_FILES = ("/run/.containerenv", "/.dockerenv")
# systemd writes this file if systemd is process 1 of a container (LXC, systemd-nspawn).
_SYSTEM_CONTAINER = "/run/systemd/container"
# The kubelet sets this variable in every pod.
_POD = "KUBERNETES_SERVICE_HOST"


# The hints: for a container of an engine, and for a guest of LXC or systemd-nspawn.
_MOUNT = "mount the host's / with '--volume /:/host:ro,rslave', and add --root /host (docs/image.md)"
_BIND = "run cdigen on the host, or bind the host's device nodes (lxc.mount.entry, systemd-nspawn --bind)"


def in_container(environ: Mapping[str, str] = os.environ, *, root: str = "") -> bool:
    """Return whether ENVIRON or the files below ROOT show that this process runs in a container."""
    return _POD in environ or any(os.path.exists(f"{root}{path}") for path in _FILES)


def uses_host_kernel() -> bool:
    """Return whether the kernel and its modules belong to another system, as in containers and LXC guests."""
    return in_container() or os.path.exists(_SYSTEM_CONTAINER)


def host_hint() -> str:
    """Return the hint that makes the host's devices accessible if ``uses_host_kernel`` is true."""
    return _MOUNT if in_container() else _BIND
