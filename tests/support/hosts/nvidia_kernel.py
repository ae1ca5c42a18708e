"""The files of the NVIDIA kernel driver, written as plain files below a fake root.

After `write_kernel_side`, cdigen with `--root` finds GPUs below the fake root. The function needs neither a
GPU nor a driver. Only the device nodes need root. The formats are those of driver 550.
"""

import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from support.hosts.driver_files import link

NVIDIA_MAJOR = 195
DRM_MAJOR = 226

# /proc/cpuinfo with one CPU, whose flags are those of the level x86-64-v2.
CPUINFO = (
    "processor\t: 0\n"
    "vendor_id\t: GenuineIntel\n"
    "model name\t: Intel(R) Xeon(R) CPU           X5650  @ 2.67GHz\n"
    "flags\t\t: fpu de tsc msr pae cx8 sep cmov mmx fxsr sse sse2 ht syscall nx lm constant_tsc rep_good "
    "nopl cpuid pni pclmulqdq ssse3 cx16 sse4_1 sse4_2 popcnt aes lahf_lm\n"
    "\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A character device: its path on the host and its numbers."""

    path: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU in the driver's files. `card` and `render` are DRM minors; None: no DRM driver is loaded."""

    minor: int
    bdf: str
    uuid: str
    model: str = "NVIDIA H100 80GB HBM3"
    device_id: int = 0x2330
    pci_class: int = 0x030200
    video_bios: str = "96.00.74.00.01"
    excluded: bool = False
    card: int | None = None
    render: int | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The device nodes of the GPU."""
        nodes = [Node(path=f"/dev/nvidia{self.minor}", major=NVIDIA_MAJOR, minor=self.minor)]
        if self.card is not None:
            nodes.append(Node(path=f"/dev/dri/card{self.card}", major=DRM_MAJOR, minor=self.card))
        if self.render is not None:
            nodes.append(Node(path=f"/dev/dri/renderD{self.render}", major=DRM_MAJOR, minor=self.render))
        return tuple(nodes)


def example_gpus(count: int) -> tuple[Gpu, ...]:
    """Return the GPUs of one machine, each with its own minor, bus number, card and render node.

    card0 and renderD128 belong to a display adapter of another vendor, as on most servers.
    """
    return tuple(
        Gpu(
            minor=minor,
            bdf=f"{minor // 100:04x}:{0x1B + 2 * (minor % 100):02x}:00.0",
            uuid=f"GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f{minor:04x}",
            card=minor + 1,
            render=minor + 129,
        )
        for minor in range(count)
    )


def control_nodes(uvm_major: int = 510) -> tuple[Node, ...]:
    """Return the nodes that all GPUs share. The kernel sets UVM_MAJOR when it loads nvidia-uvm."""
    return (
        Node(path="/dev/nvidiactl", major=NVIDIA_MAJOR, minor=255),
        Node(path="/dev/nvidia-modeset", major=NVIDIA_MAJOR, minor=254),
        Node(path="/dev/nvidia-uvm", major=uvm_major, minor=0),
        Node(path="/dev/nvidia-uvm-tools", major=uvm_major, minor=1),
    )


def write_kernel_side(
    root: Path,
    gpus: tuple[Gpu, ...],
    *,
    driver_version: str = "550.163.01",
    open_module: bool = False,
    uvm_major: int = 510,
    caps_major: int = 511,
    nodes: bool = True,
) -> None:
    """Write the files of a loaded driver in /proc, /sys and, with NODES, /dev below ROOT.

    Only root can make real character devices in /dev.
    """
    write_driver(root / "proc/driver/nvidia", driver_version, open_module=open_module)
    write(root / "sys/module/nvidia/version", f"{driver_version}\n")
    write(root / "proc/devices", devices_text(uvm_major=uvm_major, caps_major=caps_major))
    write(root / "proc/cpuinfo", CPUINFO)
    for gpu in gpus:
        write(root / f"proc/driver/nvidia/gpus/{gpu.bdf}/information", information_text(gpu, driver_version))
        write_pci_device(root / "sys", gpu)
    if nodes:
        for node in (*control_nodes(uvm_major), *(node for gpu in gpus for node in gpu.nodes)):
            make_node(root, node)
        for gpu in gpus:
            link_by_path(root / "dev/dri/by-path", gpu)


def write_driver(folder: Path, version: str, *, open_module: bool) -> None:
    """Write /proc/driver/nvidia: version and params."""
    name = "UNIX Open Kernel Module for x86_64" if open_module else "UNIX x86_64 Kernel Module"
    build = "Release Build  (dvs-builder@build)  " if open_module else ""
    write(
        folder / "version",
        f"NVRM version: NVIDIA {name}  {version}  {build}Tue Apr  8 12:41:17 UTC 2025\n"
        "GCC version:  gcc version 14.2.0 (Debian 14.2.0-19) \n",
    )
    write(
        folder / "params",
        "ResmanDebugLevel: 4294967295\n"
        "RmLogonRC: 1\n"
        "ModifyDeviceFiles: 1\n"
        "DeviceFileUID: 0\n"
        "DeviceFileGID: 0\n"
        "DeviceFileMode: 438\n"
        "InitializeSystemMemoryAllocations: 1\n"
        "UsePageAttributeTable: 4294967295\n"
        "EnableMSI: 1\n"
        "EnablePCIeGen3: 0\n"
        "MemoryPoolSize: 0\n"
        "DmaRemapPeerMmio: 1\n"
        'RegistryDwords: ""\n'
        'RegistryDwordsPerDevice: ""\n'
        'RmMsg: ""\n'
        'GpuBlacklist: ""\n'
        'TemporaryFilePath: ""\n'
        'ExcludedGpus: ""\n',
    )


def information_text(gpu: Gpu, driver_version: str) -> str:
    """Return the text of /proc/driver/nvidia/gpus/<bdf>/information."""
    return (
        f"Model: \t\t {gpu.model}\n"
        f"IRQ:   \t\t {96 + gpu.minor}\n"
        f"GPU UUID: \t {gpu.uuid}\n"
        f"Video BIOS: \t {gpu.video_bios}\n"
        "Bus Type: \t PCIe\n"
        "DMA Size: \t 52 bits\n"
        "DMA Mask: \t 0xfffffffffffff\n"
        f"Bus Location: \t {gpu.bdf}\n"
        f"Device Minor: \t {gpu.minor}\n"
        f"GPU Firmware: \t {driver_version}\n"
        f"GPU Excluded:\t {'Yes' if gpu.excluded else 'No'}\n"
    )


def devices_text(*, uvm_major: int, caps_major: int) -> str:
    """Return the text of /proc/devices of a small machine with the driver's modules loaded."""
    characters = {
        1: "mem",
        5: "/dev/tty",
        10: "misc",
        136: "pts",
        NVIDIA_MAJOR: "nvidia",
        DRM_MAJOR: "drm",
        uvm_major: "nvidia-uvm",
        caps_major: "nvidia-caps",
    }
    blocks = {8: "sd", 259: "blkext"}
    return (
        "Character devices:\n"
        + "".join(f"{major:3} {name}\n" for major, name in sorted(characters.items()))
        + "\nBlock devices:\n"
        + "".join(f"{major:3} {name}\n" for major, name in sorted(blocks.items()))
    )


def write_pci_device(sys: Path, gpu: Gpu) -> None:
    """Write a GPU's PCI device and DRM minors as in sysfs: the device's folder, and links to it."""
    bridge = f"pci{gpu.bdf.rsplit(':', 2)[0]}:00"
    device = sys / "devices" / bridge / gpu.bdf
    write(device / "vendor", "0x10de\n")
    write(device / "device", f"0x{gpu.device_id:04x}\n")
    write(device / "class", f"0x{gpu.pci_class:06x}\n")
    write(
        device / "uevent",
        f"DRIVER=nvidia\nPCI_CLASS={gpu.pci_class:X}\nPCI_ID=10DE:{gpu.device_id:04X}\nPCI_SLOT_NAME={gpu.bdf}\n",
    )
    # The first 64 bytes of the PCI config space: the ids, and a header of type 0.
    (device / "config").write_bytes(struct.pack("<HH60x", 0x10DE, gpu.device_id))
    (sys / "bus/pci/drivers/nvidia").mkdir(parents=True, exist_ok=True)
    link(device / "driver", "../../../bus/pci/drivers/nvidia")
    link(sys / "bus/pci/devices" / gpu.bdf, f"../../../devices/{bridge}/{gpu.bdf}")
    link(sys / "bus/pci/drivers/nvidia" / gpu.bdf, f"../../../../devices/{bridge}/{gpu.bdf}")
    for node in gpu.nodes:
        if node.major != DRM_MAJOR:
            continue
        name = Path(node.path).name
        write(device / "drm" / name / "dev", f"{node.major}:{node.minor}\n")
        write(
            device / "drm" / name / "uevent",
            f"MAJOR={node.major}\nMINOR={node.minor}\nDEVNAME=dri/{name}\nDEVTYPE=drm_minor\n",
        )
        link(device / "drm" / name / "device", f"../../../{gpu.bdf}")
        link(sys / "class/drm" / name, f"../../devices/{bridge}/{gpu.bdf}/drm/{name}")


def link_by_path(folder: Path, gpu: Gpu) -> None:
    """Create udev's links to a GPU's DRM nodes: /dev/dri/by-path/pci-<bdf>-card and -render."""
    if gpu.card is not None:
        link(folder / f"pci-{gpu.bdf}-card", f"../card{gpu.card}")
    if gpu.render is not None:
        link(folder / f"pci-{gpu.bdf}-render", f"../renderD{gpu.render}")


def make_node(root: Path, node: Node, mode: int = 0o666, *, gid: int | None = None) -> None:
    """Create a real character device below ROOT with exactly MODE; its group is GID if GID is not None."""
    path = root / node.path.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFCHR | mode, os.makedev(node.major, node.minor))
    if gid is not None:
        os.chown(path, 0, gid)
    path.chmod(mode)


def write(path: Path, content: str) -> None:
    """Replace PATH by a new file. An old file may be a hard link into another tree (copy_tree)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Atomic, like a change of /proc: a daemon that reads at the same time must not find an empty file.
    new = path.with_name(f"{path.name}.new")
    new.write_text(content)
    new.replace(path)
