"""Hosts that differ from a PC with the nvidia module: Jetson Orin, Jetson Thor, WSL2; with real device nodes.

Sources: the lists of Jetson Linux 36.3 and 38 as nvidia-container-toolkit keeps them (testdata/lookup:
csv-mode, rootfs-orin, rootfs-thor-dgpu), shortened; meta-avocado pull request 248 (Thor's nvgpu nodes);
Jetson Linux 39's l4t.csv as peppy and jetpack-nixos describe it; nvidia-container-toolkit issues 452 and
1739 (WSL's folders); WSL issue 5663 (its libraries are files, not links).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.hosts.driver_files import AARCH64, X86_64, link, put, write_library
from support.hosts.nvidia import delivered
from support.hosts.nvidia_kernel import Gpu, Node, information_text, make_node

from cdigen.cdi.build import build
from cdigen.cdi.rules.document_rules import check
from cdigen.cdi.rules.hostcheck import check_host
from cdigen.host.root import Root
from cdigen.model.profile import DEFAULT
from cdigen.vendors.nvidia.edits import group_drafts

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from cdigen.model.inventory import DriverFile, Inventory

LISTS = "etc/nvidia-container-runtime/host-files-for-container.d"
SYSTEM = "/usr/lib/aarch64-linux-gnu"
OWN = f"{SYSTEM}/nvidia"
OPENRM = "/opt/nvidia/l4t-gpu-libs/openrm"
VIDEO = 44  # the group of the GPU's nodes in Jetson Linux

ORIN_DEVICES = """\
dev, /dev/dri/card*
dev, /dev/dri/renderD*
dir, /dev/dri/by-path
dev, /dev/fb0
dev, /dev/nvhost-ctrl-gpu
dev, /dev/nvhost-gpu
dev, /dev/nvgpu/igpu0/as
dev, /dev/nvgpu/igpu0/channel
dev, /dev/nvidia-modeset
dev, /dev/nvidia0
dev, /dev/nvidiactl
dev, /dev/nvmap
"""
ORIN_DRIVERS = f"""\
# libraries
lib, {SYSTEM}/libv4l2.so.0
lib, {SYSTEM}/gstreamer-1.0/libgstnvjpeg.so

lib, {OWN}/libcuda.so.1.1
lib, {OWN}/libnvdla_compiler.so
lib, {OWN}/libnvidia-ml.so.1
lib, {OWN}/libnvidia-ptxjitcompiler.so.540.3.0
lib, {OWN}/libnvos.so
lib, {OWN}/libnvrm_gpu.so
lib, {OWN}/nvidia_icd.json
lib, {SYSTEM}/tegra-egl/libEGL_nvidia.so.0
sym, /etc/vulkan/icd.d/nvidia_icd.json
sym, {SYSTEM}/libcuda.so
sym, {OWN}/libcuda.so
sym, {OWN}/libcuda.so.1
sym, {OWN}/libnvidia-ptxjitcompiler.so.1
sym, {SYSTEM}/tegra
lib, //lib/firmware/tegra23x/nvhost_nvdec050_desc_prod.bin
lib, /usr/sbin/nvidia-smi
"""
THOR_DEVICES = """\
dev, /dev/dri/card*
dev, /dev/nvgpu/igpu*/channel
dev, /dev/nvgpu/igpu*/ctrl
dev, /dev/nvidia0
dev, /dev/nvidiactl
dev, /dev/nvidia-uvm
dev, /dev/nvmap
"""
THOR_DRIVERS = f"""\
lib, {OWN}/libdrm.so.2
lib, {OWN}/libnvidia-ml.so.1
lib, {OWN}/libnvos.so
lib, {OWN}/weston-13.0/libweston-13.so.0
lib, /usr/sbin/nvidia-smi
"""
THOR_L4T = f"lib, {OPENRM}/libcuda.so.1.1\nlib, {OPENRM}/libcuda_instrumentation.so\n"

STORE = "nv_dispi.inf_amd64_7cc7738d8e428783"
PROGRAM = "nvidia-smi"
LIBRARIES, STORES = "/usr/lib/wsl/lib", "/usr/lib/wsl/drivers"
INF = (
    '[Version]\r\nSignature = "$Windows NT$"\r\nDriverVer   = 08/14/2025, 32.0.15.8115\r\n[Manufacturer]\r\n'
)


def library(root: Path, path: str, soname: str, machine: int = AARCH64, contains: bytes = b"") -> None:
    write_library(root / path.lstrip("/"), soname, machine=machine, contains=contains)


def node(root: Path, path: str, major: int, minor: int, mode: int = 0o666, *, gid: int = 0) -> None:
    make_node(root, Node(path=path, major=major, minor=minor), mode, gid=gid)


def write_list(root: Path, name: str, content: str) -> None:
    put(root / LISTS / name, content.encode())


def release(root: Path, major: int, revision: str) -> None:
    text = f"# R{major} (release), REVISION: {revision}, GCID: 38968081, BOARD: generic, EABI: aarch64\n"
    put(root / "etc/nv_tegra_release", text.encode())


def module(root: Path, version: str) -> None:
    """Write the version file of the nvidia module, which drives only the display on Orin."""
    name = "NVIDIA UNIX Open Kernel Module for aarch64"
    text = f"NVRM version: {name}  {version}  Release Build  (buildbrain@mobile)  Tue Jan  7\n"
    put(root / "proc/driver/nvidia/version", text.encode())


def list_gpu(
    root: Path, model: str, minor: int = 0, *, bdf: str = "0000:01:00.0", on_pci: bool = True
) -> None:
    """Write the module's information about a GPU."""
    gpu = Gpu(minor=minor, bdf=bdf, uuid=f"GPU-{minor:08d}-0000-0000-0000-000000000000", model=model)
    text = information_text(gpu, "580.00").encode()
    put(root / f"proc/driver/nvidia/gpus/{bdf}/information", text)
    if on_pci:
        (root / "sys/bus/pci/devices" / bdf).mkdir(parents=True)


def board(root: Path, drivers: str = "", devices: str = "dev, /dev/nvmap\n") -> None:
    """Write a Tegra board with one device node, and the lists DRIVERS and DEVICES."""
    node(root, "/dev/nvmap", 10, 124)
    write_list(root, "devices.csv", devices)
    if drivers:
        write_list(root, "drivers.csv", drivers)


def orin(root: Path) -> None:
    """Write a Jetson Orin with Jetson Linux 36.4.3: libraries below nvidia/, nodes of the group video."""
    release(root, 36, "4.3")
    module(root, "540.4.0")
    put(root / "sys/devices/soc0/family", b"Tegra\n")
    write_list(root, "devices.csv", ORIN_DEVICES)
    write_list(root, "drivers.csv", ORIN_DRIVERS)
    for name, minor in (("card0", 0), ("card1", 1), ("renderD128", 128), ("renderD129", 129)):
        node(root, f"/dev/dri/{name}", 226, minor, 0o660, gid=VIDEO)
    link(root / "dev/dri/by-path/platform-13800000.display-card", "../card1")
    for minor, name in enumerate(("nvhost-ctrl-gpu", "nvhost-gpu", "nvgpu/igpu0/as", "nvgpu/igpu0/channel")):
        node(root, f"/dev/{name}", 487, minor, 0o660, gid=VIDEO)
    for name, minor in (("nvidia0", 0), ("nvidiactl", 255), ("nvidia-modeset", 254)):
        node(root, f"/dev/{name}", 195, minor)
    node(root, "/dev/nvmap", 10, 124, 0o660, gid=VIDEO)
    library(root, f"{OWN}/libcuda.so.1.1", "libcuda.so.1")
    library(root, f"{OWN}/libnvidia-ml.so.1", "libnvidia-ml.so.1")
    library(root, f"{OWN}/libnvidia-ptxjitcompiler.so.540.3.0", "libnvidia-ptxjitcompiler.so.1")
    library(root, f"{OWN}/libv4l2.so.0.0.999999", "libv4l2.so.0")
    for name in ("nvidia/libnvos.so", "nvidia/libnvrm_gpu.so", "gstreamer-1.0/libgstnvjpeg.so"):
        library(root, f"{SYSTEM}/{name}", name.rpartition("/")[2])
    library(root, f"{SYSTEM}/tegra-egl/libEGL_nvidia.so.0", "libEGL_nvidia.so.0")
    put(root / f".{OWN}/nvidia_icd.json", b"{}")
    for path, target in (
        ("/etc/vulkan/icd.d/nvidia_icd.json", f"{OWN}/nvidia_icd.json"),
        (f"{SYSTEM}/libcuda.so", "nvidia/libcuda.so"),
        (f"{SYSTEM}/libv4l2.so.0", "nvidia/libv4l2.so.0.0.999999"),
        (f"{SYSTEM}/tegra", "nvidia"),
        (f"{OWN}/libcuda.so", "libcuda.so.1.1"),
        (f"{OWN}/libcuda.so.1", "libcuda.so.1.1"),
        (f"{OWN}/libnvidia-ptxjitcompiler.so.1", "libnvidia-ptxjitcompiler.so.540.3.0"),
        ("/lib", "usr/lib"),
    ):
        link(root / path.lstrip("/"), target)
    put(root / "usr/lib/firmware/tegra23x/nvhost_nvdec050_desc_prod.bin", b"\1")
    put(root / "usr/sbin/nvidia-smi", b"\x7fELF", 0o755)


def thor(root: Path) -> None:
    """Write a Jetson Thor with Jetson Linux 39: its GPU is on the PCI bus, libcuda in a folder of its own."""
    release(root, 39, "2.0")
    module(root, "595.78")
    list_gpu(root, "NVIDIA Thor")
    write_list(root, "devices.csv", THOR_DEVICES)
    write_list(root, "drivers.csv", THOR_DRIVERS)
    write_list(root, "l4t.csv", THOR_L4T)
    node(root, "/dev/dri/card0", 226, 0, 0o660, gid=VIDEO)
    for minor, name in enumerate(("channel", "ctrl")):
        node(root, f"/dev/nvgpu/igpu-0000:01:00.0/{name}", 487, minor, 0o660, gid=VIDEO)
    node(root, "/dev/nvidia0", 195, 0)
    node(root, "/dev/nvidiactl", 195, 255)
    node(root, "/dev/nvidia-uvm", 510, 0)
    node(root, "/dev/nvmap", 10, 124, 0o660, gid=VIDEO)
    library(root, f"{OWN}/libdrm.so.2", "libdrm.so.2")
    library(root, f"{OWN}/libnvidia-ml.so.1", "libnvidia-ml.so.1")
    library(root, f"{OWN}/libnvos.so", "libnvos.so")
    library(root, f"{OWN}/weston-13.0/libweston-13.so.0", "libweston-13.so.0")
    library(root, f"{OPENRM}/libcuda.so.1.1", "libcuda.so.1")
    library(root, f"{OPENRM}/libcuda_instrumentation.so", "libcuda_instrumentation.so.1")
    put(root / "usr/sbin/nvidia-smi", b"\x7fELF", 0o755)


def wsl2(root: Path) -> None:
    """Write WSL2 on a PC that also has an Intel adapter."""
    node(root, "/dev/dxg", 10, 125)
    for name in ("libcuda.so", "libcuda.so.1", "libcuda.so.1.1"):
        library(root, f"{LIBRARIES}/{name}", "libcuda.so.1", X86_64, b"loader of 581.15")
    for name in ("libdxcore.so", "libd3d12.so", "libnvidia-ml.so.1", "libnvcuvid.so.1"):
        library(root, f"{LIBRARIES}/{name}", name, X86_64)
    library(root, f"{LIBRARIES}/libnvoptix.so.1", "libnvoptix_loader.so.1", X86_64)
    put(root / f".{LIBRARIES}/{PROGRAM}", b"\x7fELF", 0o555)
    put(root / f".{STORES}/iigd_dch.inf_amd64_73655f941b1dd71f/libigd.so", b"\x7fELF")
    store(root, STORE)


def store(root: Path, name: str, version: str = "581.15") -> None:
    """Write a folder of the driver store."""
    folder = f"{STORES}/{name}"
    library(root, f"{folder}/libcuda.so.1.1", "libcuda.so.1", X86_64)
    library(root, f"{folder}/libcuda_loader.so", "libcuda.so.1", X86_64, f"loader of {version}".encode())
    for file in ("libnvidia-ptxjitcompiler.so.1", "libnvidia-ml.so.1", "libnvidia-ml_loader.so"):
        library(root, f"{folder}/{file}", file, X86_64)
    for file in ("libnvdxgdmal.so.1", "libnvcuvid.so.1"):
        library(root, f"{folder}/{file}", file, X86_64)
    put(root / f".{folder}/nvcubins.bin", b"\1", 0o555)
    put(root / f".{folder}/nvoptix.dll", b"MZ", 0o555)
    put(root / f".{folder}/{PROGRAM}", b"\x7fELF", 0o555)
    put(root / f".{folder}/nv_disp.cat", b"\1", 0o555)
    put(root / f".{folder}/{name.partition('.inf')[0]}.inf", b"\xff\xfe" + INF.encode("utf-16-le"))


def only_document(root: Path, inventory: Inventory) -> dict[str, Any]:
    """Return the spec of the only group; assert that it has no errors, and that its paths exist."""
    (draft,) = group_drafts(inventory, (DEFAULT,))
    made = build(delivered(draft))
    findings = (*check(made), *check_host(made, Root(str(root))))
    assert [finding for finding in findings if finding.severity == "error"] == []
    return made


def only_files(inventory: Inventory) -> tuple[DriverFile, ...]:
    """Return the files of the only group."""
    (group,) = inventory.groups
    return group.files


def mounts(document: dict[str, Any]) -> dict[str, str]:
    """Return the mounts: container path -> host path."""
    return {mount["containerPath"]: mount["hostPath"] for mount in document["containerEdits"]["mounts"]}


def finding_keys(inventory: Inventory) -> set[tuple[str, str, str]]:
    """Return the findings as severity, rule and path."""
    return {(finding.severity, finding.rule, finding.path) for finding in inventory.findings}
