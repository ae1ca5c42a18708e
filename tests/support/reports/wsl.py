"""Hosts of public reports on WSL2: with and without a GPU of Windows, and with Linux driver packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.hosts.driver_files import X86_64, link, put, write_library, write_loader_cache
from support.hosts.nvidia_platforms import wsl2

if TYPE_CHECKING:
    from pathlib import Path

SYSTEM = "/usr/lib/x86_64-linux-gnu"
DEBIAN_12, UBUNTU_20 = "ID=debian\nVERSION_ID=12\n", 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="20.04"\n'


def microsoft_kernel(root: Path, release: str, os_release: str = UBUNTU_20) -> None:
    """Write the kernel's files and the distribution's name of a WSL2 machine without a GPU."""
    put(root / "proc/sys/kernel/osrelease", f"{release}\n".encode())
    text = f"Linux version {release} (oe-user@oe-host) (x86_64-msft-linux-gcc (GCC) 11.2.0) #1 SMP\n"
    put(root / "proc/version", text.encode())
    put(root / "proc/modules", b"")
    put(root / "proc/devices", b"Character devices:\n 10 misc\n\nBlock devices:\n  8 sd\n")
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    put(root / "etc/os-release", os_release.encode())
    put(root / "usr/bin/apt-get", b"", 0o755)


def with_gpu(root: Path, release: str, os_release: str = UBUNTU_20) -> None:
    """Write a WSL2 machine with a GPU of Windows."""
    microsoft_kernel(root, release, os_release)
    wsl2(root)


def linux_driver(root: Path, package: str, version: str) -> None:
    """Install the libraries of NVIDIA's driver for Linux VERSION, as the Debian package PACKAGE."""
    files = []
    for stem in ("libnvidia-ml", "libcuda", "libnvidia-ptxjitcompiler"):
        path = f"{SYSTEM}/{stem}.so.{version}"
        write_library(root / path.lstrip("/"), f"{stem}.so.1", machine=X86_64)
        link(root / f"{SYSTEM}/{stem}.so.1".lstrip("/"), path.rpartition("/")[2])
        files += [path, f"{SYSTEM}/{stem}.so.1"]
    status = f"Package: {package}\nStatus: install ok installed\nArchitecture: amd64\n"
    put(root / "var/lib/dpkg/status", f"{status}Version: {version}-0ubuntu0.20.04.1\n\n".encode())
    put(root / f"var/lib/dpkg/info/{package}:amd64.list", "".join(f"{path}\n" for path in files).encode())
    write_loader_cache(root, SYSTEM)
