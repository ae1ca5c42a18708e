"""Whose a process is, by its control group: ``container_of``, ``living``.

Everybody may read /proc/PID/cgroup. Runtimes put a container's id into the name of its group
(``cri-containerd-<id>.scope``, ``crio-<id>.scope``, ``libpod-<id>.scope/container``, ``docker/<id>``).
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PROC = "/proc"
# Of a file of cgroup v1 with its dozen hierarchies, each with a path of a few hundred characters.
_LIMIT = 1 << 14
_GROUP = re.compile(r"/(?P<prefix>[a-z][a-z-]*-)?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)", re.MULTILINE)
# PROC_PID_INIT_INO (include/linux/proc_ns.h): only there are all processes of the machine seen.
_FIRST_NAMESPACE = 0xEFFFFFFC


def container_of(text: str) -> str:
    """Return the id of the innermost container in TEXT, a /proc/PID/cgroup; empty if there is none.

    conmon, which looks after a container of podman's or CRI-O's, is not part of it.
    """
    found = [match for match in _GROUP.finditer(text) if "conmon" not in (match["prefix"] or "")]
    return found[-1]["id"] if found else ""


def containers_of(pids: Iterable[int], *, proc: str = PROC) -> dict[int, str]:
    """Return the container of each of PIDS that is in one; never raises."""
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


def living(*, proc: str = PROC) -> frozenset[str] | None:
    """Return the containers that have a process; None where not all processes of the machine are seen."""
    try:
        if os.stat(f"{proc}/self/ns/pid").st_ino != _FIRST_NAMESPACE:
            return None
        pids = [int(name) for name in os.listdir(proc) if name.isdecimal()]
    except OSError:
        return None
    return frozenset(containers_of(pids, proc=proc).values())
