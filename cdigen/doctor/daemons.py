"""Which of the runtimes' daemons run on this machine, and since when: ``running``."""

from __future__ import annotations

import os

# By the name of the process (proc(5), comm); podman has no daemon.
PROCESSES = {"docker": "dockerd", "containerd": "containerd", "crio": "crio"}


def running() -> dict[str, float]:
    """Return when the oldest process of each daemon began, in seconds since 1970, of those that run."""
    names = {process.encode(): name for name, process in PROCESSES.items()}
    boot = _boot()
    found: dict[str, float] = {}
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                text = file.read(4096)
        except OSError:
            continue
        # Field 2 is the name in brackets, field 22 the start in ticks since the boot (proc(5)).
        comm, _, rest = text.partition(b"(")[2].rpartition(b")")
        if comm in names:
            began = boot + int(rest.split()[19]) / os.sysconf("SC_CLK_TCK")
            found[names[comm]] = min(began, found.get(names[comm], began))
    return found


def _boot() -> float:
    try:
        with open("/proc/stat", "rb") as file:
            return float(file.read(1 << 20).partition(b"btime ")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return 0.0
