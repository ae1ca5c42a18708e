"""The name of this process for other instances that wait for its run directory: ``this_instance``.

A pod reads its own name and namespace from its environment. The downward API sets these variables (fieldRef
metadata.name and metadata.namespace).
"""

from __future__ import annotations

import os

from cdigen.host.containers import in_container

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

POD_NAME, POD_NAMESPACE = "CDIGEN_POD_NAME", "CDIGEN_POD_NAMESPACE"
_SERVICE = ".service"
# Maximum length of a DNS-1123 name: 63 characters for a namespace, 253 for a pod.
_MAX_NAME = 253


def this_instance(environ: Mapping[str, str] = os.environ, *, root: str = "") -> str:
    """Return the name of this instance, from ENVIRON and the files below ROOT, or "" if it has none.

    The name is ``pod NAMESPACE/NAME``, ``container HOST``, or the name of the service (``cdigen.service``).
    """
    pod = environ.get(POD_NAME, "")
    if _is_name(pod):
        namespace = environ.get(POD_NAMESPACE, "")
        return f"pod {namespace}/{pod}" if _is_name(namespace) else f"pod {pod}"
    if in_container(environ, root=root):
        return f"container {os.uname().nodename}"
    return _service(f"{root}/proc/self/cgroup")


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MAX_NAME and text.isascii() and text.isprintable() and " " not in text


def _service(path: str) -> str:
    """Return the systemd service of the cgroup in the file PATH (cgroups(7)), or ""."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 16).splitlines()
    except OSError:
        return ""
    names = [line.rpartition("/")[2] for line in lines]
    return next((name for name in names if name.endswith(_SERVICE) and name.isprintable()), "")
