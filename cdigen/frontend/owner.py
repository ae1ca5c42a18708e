"""Who this process is to those who find its run directory taken: ``this_owner``.

A pod learns its own names by the downward API alone, which puts them into its environment (fieldRef
metadata.name and metadata.namespace).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

POD_NAME, POD_NAMESPACE = "CDIGEN_POD_NAME", "CDIGEN_POD_NAMESPACE"
# Podman and CRI-O make the first in every container, Docker the second.
_CONTAINER_FILES = ("/run/.containerenv", "/.dockerenv")
_SERVICE = ".service"
# DNS-1123 names: a namespace has 63 characters at most, a pod 253.
_MAX_NAME = 253


def this_owner(environ: Mapping[str, str] = os.environ, *, root: str = "") -> str:
    """Return who runs this process, by ENVIRON and the files below ROOT; empty: nobody that has a name.

    ``pod NAMESPACE/NAME``, ``container HOST``, or its service (``cdigen.service``).
    """
    pod = environ.get(POD_NAME, "")
    if _is_name(pod):
        namespace = environ.get(POD_NAMESPACE, "")
        return f"pod {namespace}/{pod}" if _is_name(namespace) else f"pod {pod}"
    if any(os.path.exists(f"{root}{path}") for path in _CONTAINER_FILES):
        return f"container {os.uname().nodename}"
    return _service(f"{root}/proc/self/cgroup")


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MAX_NAME and text.isascii() and text.isprintable() and " " not in text


def _service(path: str) -> str:
    """Return the systemd service whose cgroup the process is in (cgroups(7)), "" for none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 16).splitlines()
    except OSError:
        return ""
    names = [line.rpartition("/")[2] for line in lines]
    return next((name for name in names if name.endswith(_SERVICE) and name.isprintable()), "")
