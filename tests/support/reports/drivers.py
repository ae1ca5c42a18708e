"""Parts of the hosts of public reports about NVIDIA's driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.hosts import nvidia_kernel
from support.hosts.driver_files import put
from support.hosts.nvidia_kernel import Gpu

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.hosts.driver_files import Laid

BDF = "0000:01:00.0"
GB10 = Gpu(
    minor=0, bdf="000f:01:00.0", uuid="GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f0000", model="NVIDIA GB10",
    device_id=0x2E12,
)  # fmt: skip
UVM = ("nvidia-uvm", "nvidia-uvm-tools")
# Modules of the kernel's own tree whose names have the word nvidia.
IN_TREE = (
    "kernel/drivers/gpu/drm/nouveau/nouveau.ko: kernel/drivers/video/video.ko\n"
    "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko:\nkernel/drivers/i2c/busses/i2c-nvidia-gpu.ko:\n"
)


def loaded(root: Path, layout: Callable[[Path, str], Laid], version: str, *gpus: Gpu) -> None:
    """Write a host with the loaded driver VERSION."""
    layout(root, version)
    nvidia_kernel.write_kernel_side(root, gpus or nvidia_kernel.example_gpus(1), driver_version=version)
    if "aarch64" in layout.__name__:
        file = root / "proc/driver/nvidia/version"
        file.write_text(file.read_text().replace("x86_64", "aarch64"))


def remove_uvm(root: Path, *, is_loaded: bool = False) -> None:
    """Remove the nodes of nvidia-uvm, and the module unless IS_LOADED."""
    for name in UVM:
        (root / "dev" / name).unlink()
    if not is_loaded:
        file = root / "proc/devices"
        kept = [line for line in file.read_text().splitlines() if "uvm" not in line]
        file.write_text("\n".join((*kept, "")))


def upgraded_kernel(
    root: Path, layout: Callable[[Path, str], Laid], version: str, release: str, *, driver: str = ""
) -> None:
    """Write a host whose running kernel RELEASE has no module of the driver VERSION; DRIVER has the GPU."""
    layout(root, version)
    gpu = Gpu(minor=0, bdf=BDF, uuid="", device_id=0x1184, pci_class=0x030000)
    nvidia_kernel.write_pci_device(root / "sys", gpu)
    folder = next((root / "sys/devices").glob(f"*/{BDF}"))
    (folder / "driver").unlink()
    (root / "sys/bus/pci/drivers/nvidia" / BDF).unlink()
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir()
        (root / "sys/module" / driver).mkdir(parents=True)
        (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    put(folder / "modalias", b"pci:v000010DEd00001184sv00001849sd00000412bc03sc00i00\n")
    put(root / "proc/sys/kernel/osrelease", f"{release}\n".encode())
    put(root / f"lib/modules/{release}/modules.dep", IN_TREE.encode())
    alias = b"alias pci:v000010DEd*sv*sd*bc03sc*i* nouveau\n"
    put(root / f"lib/modules/{release}/modules.alias", alias)


def install_source(root: Path, version: str, *, has_failed: bool = False) -> None:
    """Install dkms with the source of the driver; HAS_FAILED: the last build has failed."""
    put(root / "usr/bin/dkms", b"", 0o755)
    put(root / f"usr/src/nvidia-{version}/dkms.conf")
    folder = root / f"var/lib/dkms/nvidia/{version}"
    folder.mkdir(parents=True)
    (folder / "source").symlink_to(f"/usr/src/nvidia-{version}")
    if has_failed:
        put(folder / "build/make.log", b"error: implicit declaration of function\n")
