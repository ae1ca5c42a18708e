"""The container of a process, from its control group: ``container_of``, ``running_containers``.

Every user may read /proc/PID/cgroup. Runtimes put the id of a container into the name of the container's
group (``cri-containerd-<id>.scope``, ``crio-<id>.scope``, ``libpod-<id>.scope/container``, ``docker/<id>``).
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PROC = "/proc"
# The limit in bytes. A cgroup v1 file has up to a dozen lines with paths of a few hundred characters.
_LIMIT = 1 << 14
_GROUP = re.compile(r"/(?P<prefix>[a-z][a-z-]*-)?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)", re.MULTILINE)
# PROC_PID_INIT_INO (include/linux/proc_ns.h), the inode of the first PID namespace. Only this namespace has
# all processes of the machine.
_FIRST_NAMESPACE = 0xEFFFFFFC


def container_of(text: str) -> str:
    """Return the id of the innermost container in TEXT, the content of /proc/PID/cgroup, or "".

    conmon monitors a container of podman or CRI-O, but is not part of that container.
    """
    found = [match for match in _GROUP.finditer(text) if "conmon" not in (match["prefix"] or "")]
    return found[-1]["id"] if found else ""


def containers_of(pids: Iterable[int], *, proc: str = PROC) -> dict[int, str]:
    """Return the container id of each process in PIDS that runs in a container; never raise."""
    found = {}
    for pid in pids:
        try:
            with open(f"{proc}/{pid}/cgroup", "rb") as file:
                container = container_of(file.read(_LIMIT).decode("utf-8", "replace"))
        except OSError:
            continue
        if container:
            found[pid] = container
    return found


def running_containers(*, proc: str = PROC) -> frozenset[str] | None:
    """Return the ids of containers with a process; None if /proc lacks processes of the machine."""
    try:
        if os.stat(f"{proc}/self/ns/pid").st_ino != _FIRST_NAMESPACE:
            return None
        pids = [int(name) for name in os.listdir(proc) if name.isdecimal()]
    except OSError:
        return None
    return frozenset(containers_of(pids, proc=proc).values())
