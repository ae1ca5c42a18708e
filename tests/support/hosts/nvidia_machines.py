"""Machines with NVIDIA GPUs, from a desktop to a GB200, with the kernel's files, device nodes and the driver.

Shapes (numbers of GPUs, PCI addresses, nodes of NVSwitch and IMEX) follow NVIDIA's system guides for DGX
A100, DGX H100, DGX B200 and GB200 NVL72, and the MIG User Guide's geometries.
"""

import shutil
from pathlib import Path

from support.hosts import driver_files
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia import boot
from support.hosts.nvidia_kernel import Gpu, Node, make_node

A100 = "NVIDIA A100-SXM4-80GB"
H100 = "NVIDIA H100 80GB HBM3"
B200 = "NVIDIA B200"
DGX_A100 = ("07", "0f", "47", "4e", "87", "90", "b7", "bd")
DGX_H100 = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")


def gpus(
    model: str, buses: tuple[str, ...], *, graphics: bool = False, domain: str = "0000"
) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(
            minor=minor,
            bdf=f"{domain}:{bus}:00.0",
            uuid=f"GPU-{minor:08x}-aaaa-bbbb-cccc-{int(bus, 16):012x}",
            model=model,
            card=minor + 1 if graphics else None,
            render=minor + 128 if graphics else None,
        )
        for minor, bus in enumerate(buses)
    )


def nvswitches(root: Path, count: int) -> None:
    make_node(root, Node(path="/dev/nvidia-nvswitchctl", major=508, minor=255))
    for number in range(count):
        make_node(root, Node(path=f"/dev/nvidia-nvswitch{number}", major=508, minor=number))


def desktop(root: Path) -> None:
    """One GPU with a display, on Arch."""
    driver_files.arch(root)
    boot(root, gpus("NVIDIA GeForce RTX 4090", ("01",), graphics=True))


def dgx_a100(root: Path) -> None:
    """Eight GPUs and six NVSwitches, on Ubuntu."""
    driver_files.ubuntu(root)
    boot(root, gpus(A100, DGX_A100))
    nvswitches(root, 6)


def dgx_h100(root: Path) -> None:
    """Eight GPUs and four NVSwitches, with GPUDirect Storage and InfiniBand."""
    driver_files.ubuntu(root)
    boot(root, gpus(H100, DGX_H100))
    nvswitches(root, 4)
    make_node(root, Node(path="/dev/nvidia-fs0", major=507, minor=0))
    make_node(root, Node(path="/dev/gdrdrv", major=506, minor=0))
    for number in range(2):
        make_node(root, Node(path=f"/dev/infiniband/uverbs{number}", major=231, minor=192 + number))
    make_node(root, Node(path="/dev/infiniband/rdma_cm", major=10, minor=58))


def dgx_b200(root: Path) -> None:
    """Eight GPUs whose NVSwitches are not on the host, on Red Hat."""
    driver_files.red_hat(root)
    boot(root, gpus(B200, DGX_H100))


def gb200(root: Path) -> None:
    """A compute tray: four GPUs in PCI domains of their own, aarch64, IMEX channels."""
    driver_files.ubuntu_aarch64(root)
    each = tuple(
        Gpu(
            minor=minor,
            bdf=f"{domain}:01:00.0",
            uuid=f"GPU-{minor:08x}-aaaa-bbbb-cccc-000000000001",
            model="NVIDIA GB200",
        )
        for minor, domain in enumerate(("0008", "0009", "0018", "0019"))
    )
    boot(root, each, machine="aarch64")
    for channel in range(3):
        path = f"/dev/nvidia-caps-imex-channels/channel{channel}"
        make_node(root, Node(path=path, major=505, minor=channel))


def a100_with_mig(root: Path) -> None:
    """GPU 0 with seven 1g instances, GPU 1 with a 3g and a 4g instance, GPUs 2 and 3 whole."""
    driver_files.debian_13(root)
    boot(root, gpus(A100, DGX_A100[:4]))
    write_minors(root, 4)
    for instance in range(7, 14):
        write_instance(root, 0, instance)
    for instance in (1, 2):
        write_instance(root, 1, instance)


def sixteen_with_one_lost(root: Path) -> None:
    """Sixteen GPUs; the sixth has fallen off the bus, and the module no longer lists it."""
    driver_files.debian_13(root)
    machine = gpus(H100, tuple(f"{0x10 + 4 * number:02x}" for number in range(16)))
    boot(root, machine)
    shutil.rmtree(root / f"proc/driver/nvidia/gpus/{machine[5].bdf}")


def vgpu_guest(root: Path) -> None:
    """A virtual machine with a vGPU: the hypervisor sets its PCI domain."""
    driver_files.ubuntu(root)
    boot(root, gpus("NVIDIA A16-4Q", ("02",), graphics=True, domain="00000002"))


def driver_container(root: Path) -> None:
    """The driver's files and nodes below /run/nvidia/driver, the kernel's /proc and /sys on the host."""
    driver_files.ubuntu(root / "run/nvidia/driver")
    boot(root, gpus(H100, DGX_H100[:2]))
    shutil.move(root / "dev", root / "run/nvidia/driver/dev")


def container_optimized_os(root: Path) -> None:
    """A driver in the folder of GKE's installer, on Container-Optimized OS."""
    driver_files.container_optimized_os(root)
    boot(root, gpus("Tesla T4", ("04",)))


MACHINES = (
    desktop,
    dgx_a100,
    dgx_h100,
    dgx_b200,
    gb200,
    a100_with_mig,
    sixteen_with_one_lost,
    vgpu_guest,
    driver_container,
    container_optimized_os,
)
