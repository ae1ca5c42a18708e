"""Hosts of public reports whose driver is in the folder of a distribution, and Jetson boards.

The models, versions and paths are those of the reports; see the tests.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from support.hosts.driver_files import (
    container_optimized_os,
    link,
    nixos,
    own_folder,
    put,
    red_hat,
    ubuntu_aarch64,
)
from support.hosts.nvidia_kernel import Gpu, write_kernel_side
from support.hosts.nvidia_platforms import VIDEO, library, node, orin, release, write_list
from support.values.loader_model import cache, entry

from cdigen.binfmt.ldcache import FLAGS_AARCH64

if TYPE_CHECKING:
    from pathlib import Path

RENDER = 104
TESLA = "/aarch64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla"
TEGRA = "/usr/lib/aarch64-linux-gnu/tegra"
XAVIER_NODES = ("nvhost-as-gpu", "nvhost-ctrl", "nvhost-ctrl-gpu", "nvhost-gpu")
DEVICE_PLUGINS = "var/lib/kubelet/device-plugins"
_SERVER, _DESKTOP = 0x030200, 0x030000


def _system(root: Path, kernel: str, **values: str) -> None:
    put(root / "proc/sys/kernel/osrelease", f"{kernel}\n".encode())
    put(root / "etc/os-release", "".join(f"{name}={value}\n" for name, value in values.items()).encode())


def _gpu(root: Path, model: str, device_id: int, version: str, pci_class: int = _SERVER) -> None:
    uuid = "GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f0000"
    gpu = Gpu(minor=0, bdf="0000:01:00.0", uuid=uuid, model=model, device_id=device_id, pci_class=pci_class)
    write_kernel_side(root, (gpu,), driver_version=version)


def bind(path: Path) -> None:
    """Create the file of a socket."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as made:  # the path of a test is too long for an address
            made.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    path.chmod(0o777)


def bottlerocket_ecs(root: Path, *, in_cache: bool = True) -> None:
    """Write Bottlerocket for ECS on a g5g.2xlarge: only the loader cache lists the driver's folder."""
    version = "535.247.01"
    _system(root, "6.1.132", ID="bottlerocket", VERSION_ID="1.37.0", VARIANT_ID="aws-ecs-2-nvidia")
    _gpu(root, "NVIDIA T4G", 0x1EB4, version)
    text = f"NVRM version: NVIDIA UNIX Kernel Module for aarch64  {version}  Tue Apr  8\n"
    put(root / "proc/driver/nvidia/version", text.encode())
    ubuntu_aarch64(root, version)
    tesla = root / TESLA.lstrip("/")
    tesla.parent.mkdir(parents=True)
    (root / "usr/lib/aarch64-linux-gnu").rename(tesla)
    put(root / "etc/ld.so.conf.d/nvidia-tesla.conf", f"{TESLA}\n".encode())
    names = [file.name for file in tesla.iterdir() if ".so." in file.name] if in_cache else ["libc.so.6"]
    rows = [entry(name, f"{TESLA}/{name}", flags=FLAGS_AARCH64) for name in names]
    put(root / "etc/ld.so.cache", cache(tuple(rows)))
    settings = '{"features": {"cdi": true}, "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}'
    put(root / "etc/docker/daemon.json", settings.encode())


def coreos(root: Path) -> None:
    """Write Container Linux with the driver of coreos-gpu-installer and the device plugin of GKE."""
    _system(root, "4.14.32-coreos", ID="coreos", VERSION_ID="1688.5.3")
    _gpu(root, "Tesla P100-PCIE-16GB", 0x15F8, "390.46")
    own_folder(root, "390.46", folder="/opt/nvidia")
    put(root / "etc/systemd/system/kubelet.service", b"[Service]\nExecStart=/usr/bin/kubelet\n")
    bind(root / DEVICE_PLUGINS / "kubelet.sock")
    bind(root / DEVICE_PLUGINS / "nvidiaGPU-1523400000.sock")


def gke_node(root: Path) -> None:
    """Write Container-Optimized OS with the driver of GKE."""
    _system(root, "6.1.58+", ID="cos", VERSION_ID="109")
    _gpu(root, "Tesla T4", 0x1EB8, "535.129.03")
    container_optimized_os(root, "535.129.03")
    put(root / "home/kubernetes/bin/kubelet", b"", 0o755)
    (root / "var/lib/kubelet").mkdir(parents=True)
    config = b'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n'
    put(root / "etc/containerd/config.toml", config)


def nixos_desktop(root: Path) -> None:
    """Write NixOS with a desktop GPU."""
    _system(root, "6.6.32", ID="nixos", VERSION_ID='"24.05"')
    _gpu(root, "NVIDIA GeForce RTX 3080", 0x2206, "550.78", _DESKTOP)
    nixos(root, "550.78")


def bazzite(root: Path) -> None:
    """Write Bazzite, an image-based Fedora, on which nvidia-persistenced runs."""
    _system(
        root,
        "6.9.12-210.fsync.fc40.x86_64",
        ID="bazzite",
        ID_LIKE="fedora",
        VERSION_ID="40",
        VARIANT_ID="bazzite-gnome-nvidia",
        OSTREE_VERSION="40.20241020",
    )
    _gpu(root, "NVIDIA GeForce RTX 3050 Laptop GPU", 0x25A2, "560.35.03", _DESKTOP)
    red_hat(root, "560.35.03")
    put(root / "run/ostree-booted")
    for program in ("dnf", "rpm-ostree", "toolbox"):
        put(root / "usr/bin" / program, b"", 0o755)
    bind(root / "run/nvidia-persistenced/socket")


def _users(root: Path, group: str, **users: int) -> None:
    names = "".join(f"{name}:x:{uid}:{uid}::/home/{name}:/bin/sh\n" for name, uid in users.items())
    put(root / "etc/passwd", f"root:x:0:0::/root:/bin/sh\n{names}".encode())
    own = "".join(f"{name}:x:{uid}:\n" for name, uid in users.items())
    put(root / "etc/group", f"root:x:0:\n{group}{own}".encode())
    ranges = "".join(f"{name}:{uid * 65536}:65536\n" for name, uid in users.items()).encode()
    for path in ("etc/subuid", "etc/subgid"):
        put(root / path, ranges)
    for program in ("newuidmap", "newgidmap"):
        put(root / "usr/bin" / program, b"", 0o4755)


def xavier(root: Path) -> None:
    """Write a Jetson Xavier with JetPack 4.5, whose nodes only the group video may open."""
    release(root, 32, "5.1")
    _system(root, "4.9.201-tegra", ID="ubuntu", VERSION_ID='"18.04"')
    put(root / "proc/device-tree/compatible", b"nvidia,p2972-0000\0nvidia,tegra194\0")
    for minor, name in enumerate(XAVIER_NODES):
        node(root, f"/dev/{name}", 505, minor + 1, 0o660, gid=VIDEO)
    node(root, "/dev/nvmap", 10, 61, 0o660, gid=VIDEO)
    library(root, f"{TEGRA}/libcuda.so.1.1", "libcuda.so.1")
    library(root, f"{TEGRA}/libnvrm_gpu.so", "libnvrm_gpu.so")
    link(root / f"{TEGRA}/libcuda.so".lstrip("/"), "libcuda.so.1.1")
    rows = [f"dev, /dev/{name}" for name in (*XAVIER_NODES, "nvmap", "nvhost-vic")]
    rows += [f"lib, {TEGRA}/libcuda.so.1.1", f"lib, {TEGRA}/libnvrm_gpu.so", f"sym, {TEGRA}/libcuda.so"]
    write_list(root, "l4t.csv", "\n".join(rows) + "\n")
    _users(root, f"video:x:{VIDEO}:alice\n", alice=1000)
    put(root / "usr/bin/runc", b"", 0o755)


def orin_over_ssh(root: Path) -> None:
    """Write a Jetson Orin with JetPack 6.1; `jet` is in the group video, `both` also in the group render."""
    orin(root)
    release(root, 36, "4.0")
    for name in ("renderD128", "renderD129"):
        os.chown(root / "dev/dri" / name, 0, RENDER)
    (root / "dev/nvmap").chmod(0o440)
    groups = f"video:x:{VIDEO}:jet,both\nrender:x:{RENDER}:both\n"
    _users(root, groups, jet=1000, both=1001, seat=1002)
