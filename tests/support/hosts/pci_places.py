"""Moves PCI devices of a tree below bridges, and sets their NUMA node and their CPUs: `place`."""

import os
from pathlib import Path

from support.hosts.driver_files import link, put


def place(root: Path, address: str, above: str, *, numa_node: int = -1, cpus: str = "") -> Path:
    """Move the device with ADDRESS below the folders ABOVE; return its folder.

    ABOVE is a path such as `pci0000:40/0000:40:01.1`. The kernel writes the NUMA node -1 if the firmware does
    not report a node. Then the kernel lists all CPUs.
    """
    old = (root / "sys/bus/pci/devices" / address).resolve()
    new = root / "sys/devices" / above / address
    if new != old:
        _move(root, old, new)
    put(new / "numa_node", f"{numa_node}\n".encode())
    put(new / "local_cpulist", f"{cpus}\n".encode())
    return new


def _move(root: Path, old: Path, new: Path) -> None:
    inner = [(path, path.resolve()) for path in old.rglob("*") if path.is_symlink()]
    outer = [path for path in (root / "sys").rglob("*") if path.is_symlink() and _leads_into(path, old)]
    targets = [path.resolve() for path in outer]
    new.parent.mkdir(parents=True, exist_ok=True)
    old.rename(new)
    for path, target in [*inner, *zip(outer, targets, strict=True)]:
        there = new / path.relative_to(old) if path.is_relative_to(old) else path
        leads = new / target.relative_to(old) if target.is_relative_to(old) else target
        link(there, os.path.relpath(leads, there.parent.resolve()))


def _leads_into(path: Path, folder: Path) -> bool:
    return not path.is_relative_to(folder) and path.resolve().is_relative_to(folder)
