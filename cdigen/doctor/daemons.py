"""Find out which runtimes' daemons run on this machine, and since when: ``running``.

Any user can give a process any name, so only root's processes outside of containers count.
"""

from __future__ import annotations

import os

# By the name of the process (proc(5), comm); podman has no daemon.
PROCESSES = {"docker": "dockerd", "containerd": "containerd", "crio": "crio"}


def running() -> dict[str, float]:
    """Return when each daemon that runs was started (its oldest process), in seconds since 1970."""
    names = {process.encode(): name for name, process in PROCESSES.items()}
    boot = _boot()
    found: dict[str, float] = {}
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                text = file.read(4096)
            if text.partition(b"(")[2].rpartition(b")")[0] not in names or not _is_roots(pid):
                continue
        except OSError:
            continue
        # Field 2 is the name in brackets, field 22 the start in ticks since the boot (proc(5)).
        comm, _, rest = text.partition(b"(")[2].rpartition(b")")
        began = boot + int(rest.split()[19]) / os.sysconf("SC_CLK_TCK")
        found[names[comm]] = min(began, found.get(names[comm], began))
    return found


def _is_roots(pid: str) -> bool:
    """Return whether the process PID runs as root and in our own PID namespace (proc(5), status).

    The owner of its folder in /proc does not tell: root has those of all processes that may not be dumped.
    """
    with open(f"/proc/{pid}/status", "rb") as file:
        rows = dict(line.split(b":", 1) for line in file.read(8192).splitlines() if b":" in line)
    users, numbers = rows.get(b"Uid", b"").split(), rows.get(b"NSpid", pid.encode()).split()
    return users[:3] == [b"0"] * 3 and len(numbers) == 1


def _boot() -> float:
    try:
        with open("/proc/stat", "rb") as file:
            return float(file.read(1 << 20).partition(b"btime ")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return 0.0
