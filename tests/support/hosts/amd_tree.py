"""Hosts with AMD's GPUs, written as plain files below a fake root from a few lines of description.

Call `write` with `AmdGpu`s; `mi210`, `mi300x`, `mi308x` and `radeon` describe whole machines. Only the device
nodes need root. Formats and numbers are those of Linux 6.8 and ROCm 6.2. The first render node has the number
128. The kernel creates devices for the highest number of partitions; KFD lists only the partitions in use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from support.hosts.driver_files import link, put
from support.hosts.nvidia_kernel import DRM_MAJOR, Node, make_node

if TYPE_CHECKING:
    from pathlib import Path

KFD_MAJOR, ACCEL_MAJOR = 235, 261
XCC_PLACES = 8  # render nodes that the kernel creates for each GPU that supports partitions
UNDERSCORE, DOT = "amdgpu_xcp_{}", "amdgpu_xcp.{}"
RENDER_GID, VIDEO_GID = 105, 44
# Real machines: the addresses of eight MI300X, and unique_ids (k8s-device-plugin, testdata).
ADDRESSES = tuple(f"0000:{bus:02x}:00.0" for bus in (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5))
UNIQUE_IDS = (
    *(598046273873802902, 11803749423592941193, 10187445671099294242, 9604994527082705072),
    *(17466021589395472075, 1044926823201815193, 13372828617950681944, 6576958293045616595),
)
NODES = "sys/class/kfd/kfd/topology/nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpu:
    """A GPU: its address, the number of its first render node, and the number of its partitions (`split`).

    `places` is the number of render nodes that the kernel creates for the GPU. With `own_ids`, its partitions
    have different unique_ids, as in ROCm 7.0 and newer.
    """

    bdf: str
    render: int
    card: int | None
    unique_id: int = 0
    kfd: bool = True
    split: int = 1
    places: int = 1
    own_ids: bool = False
    compute: str = ""
    memory: str = ""
    product: str = ""
    device_id: int = 0x740F
    pci_class: int = 0x120000

    @property
    def renders(self) -> tuple[int, ...]:
        """The render nodes that KFD lists."""
        return tuple(range(self.render, self.render + self.split)) if self.kfd else ()


def mi210(count: int = 8) -> tuple[AmdGpu, ...]:
    """Describe MI210s, which cannot be partitioned."""
    return tuple(
        AmdGpu(
            bdf=_address(place), render=128 + place, card=1 + place, unique_id=_unique_id(place),
            product="AMD Instinct MI210",
        )
        for place in range(count)
    )  # fmt: skip


def mi300x(split: int = 8, *, count: int = 8, own_ids: bool = False) -> tuple[AmdGpu, ...]:
    """Describe MI300Xs, each with 1, 2, 4 or 8 partitions."""
    mode = {1: "SPX", 2: "DPX", 4: "QPX", 8: "CPX"}[split]
    return tuple(
        AmdGpu(
            bdf=_address(place), render=128 + XCC_PLACES * place, card=1 + XCC_PLACES * place,
            unique_id=_unique_id(place), split=split, places=XCC_PLACES, own_ids=own_ids, compute=mode,
            memory="NPS1", product="AMD Instinct MI300X OAM", device_id=0x74A1,
        )
        for place in range(count)
    )  # fmt: skip


def mi308x(count: int = 8) -> tuple[AmdGpu, ...]:
    """Describe MI308Xs in QPX mode: each has four partitions, and eight render nodes of the kernel."""
    return tuple(
        replace(gpu, product="AMD Instinct MI308X", device_id=0x74A2) for gpu in mi300x(4, count=count)
    )


def radeon(bdf: str = "0000:03:00.0") -> AmdGpu:
    """Describe a desktop's GPU, which KFD does not list."""
    return AmdGpu(bdf=bdf, render=128, card=1, kfd=False, device_id=0x744C, pci_class=0x030000)


def write(
    root: Path,
    gpus: tuple[AmdGpu, ...],
    *,
    spelling: str = UNDERSCORE,
    nodes: bool = True,
    version: str = "",
    cpus: int = 2,
) -> None:
    """Write the files of amdgpu, KFD and udev for GPUS; without NODES, /dev does not change."""
    put(root / "proc/sys/kernel/osrelease", b"6.8.0-60-generic\n")
    put(root / "proc/sys/kernel/arch", b"x86_64\n")
    put(root / "etc/group", f"root:x:0:\nvideo:x:{VIDEO_GID}:\nrender:x:{RENDER_GID}:\n".encode())
    drivers = root / "sys/bus/pci/drivers/amdgpu"
    drivers.mkdir(parents=True, exist_ok=True)
    link(root / "sys/module/amdgpu/drivers/pci:amdgpu", "../../../bus/pci/drivers/amdgpu")
    if version:
        put(root / "sys/module/amdgpu/version", f"{version}\n".encode())
    if any(gpu.kfd for gpu in gpus):
        _write_kfd(root, gpus, cpus, nodes=nodes)
    xcp = 0
    for gpu in gpus:
        _write_pci(root, gpu)
        _write_drm(root, f"sys/devices/pci0000:00/{gpu.bdf}", gpu.card, gpu.render, nodes=nodes)
        for place in range(1, gpu.places):
            card = None if gpu.card is None else gpu.card + place
            folder = f"sys/devices/platform/{spelling.format(xcp)}"
            _write_drm(root, folder, card, gpu.render + place, nodes=nodes)
            xcp += 1


def write_npu(
    root: Path,
    *,
    number: int = 0,
    bdf: str = "0000:c5:00.1",
    device_id: int = 0x17F0,
    device_type: int | None = None,
    nodes: bool = True,
) -> Path:
    """Write an NPU whose driver is amdxdna: it has one accelerator node. Return its folder in /sys.

    Newer drivers have the file `device_type`; its value is 2 for an SR-IOV physical function.
    """
    folder = root / "sys/devices/pci0000:00" / bdf
    for name, text in {"vendor": "0x1022", "device": f"0x{device_id:04x}", "class": "0x118000"}.items():
        put(folder / name, f"{text}\n".encode())
    if device_type is not None:
        put(folder / "device_type", f"{device_type}\n".encode())
    link(root / "sys/bus/pci/drivers/amdxdna" / bdf, f"../../../../devices/pci0000:00/{bdf}")
    link(folder / "driver", "../../../bus/pci/drivers/amdxdna")
    _write_accel(root, folder, number, nodes=nodes)
    return folder


def write_auxiliary_npu(root: Path, *, number: int = 0) -> None:
    """Write the NPU of a Versal SoC, which is on the auxiliary bus, without PCI address and device id."""
    name = f"xilinx_aie.amdxdna.{number}"
    folder = root / "sys/devices/platform/axi/20000000000000.aiengine" / name
    link(
        root / "sys/bus/auxiliary/drivers/amdxdna.amdxdna" / name,
        f"../../../../devices/platform/axi/20000000000000.aiengine/{name}",
    )
    _write_accel(root, folder, number, nodes=True)


def _write_accel(root: Path, folder: Path, number: int, *, nodes: bool) -> None:
    put(folder / f"accel/accel{number}/dev", f"{ACCEL_MAJOR}:{number}\n".encode())
    (root / "sys/module/amdxdna").mkdir(parents=True, exist_ok=True)
    put(root / "proc/sys/kernel/osrelease", b"6.14.0-15-generic\n")
    put(root / "proc/sys/kernel/arch", b"x86_64\n")
    put(root / "etc/group", f"root:x:0:\nvideo:x:{VIDEO_GID}:\nrender:x:{RENDER_GID}:\n".encode())
    if nodes:
        _make(root, f"/dev/accel/accel{number}", ACCEL_MAJOR, number, RENDER_GID)


def write_properties(root: Path, node: int, **values: int) -> Path:
    """Write the properties of a KFD node; return the file."""
    file = root / NODES / str(node) / "properties"
    put(file, "".join(f"{key} {value}\n" for key, value in values.items()).encode())
    return file


def link_hive(root: Path, gpus: tuple[AmdGpu, ...], hive: int, count: int = 1, *, hops: int = 1) -> None:
    """Write links between each two of GPUS, which form the hive HIVE: COUNT links, each over HOPS hops.

    The numbers are those of an MI300X, whose links have 64 GB/s. Every partition has links to every other
    partition.
    """
    nodes = {render: int(node_of(root, render).parent.name) for gpu in gpus for render in gpu.renders}
    for render, node in nodes.items():
        properties = root / NODES / str(node) / "properties"
        lines = [line for line in properties.read_text().splitlines() if not line.startswith("hive_id ")]
        put(properties, "\n".join([*lines, f"hive_id {hive}", ""]).encode())
        others = [other for number, other in nodes.items() if number != render]
        # The first link leads to the CPU, by PCI.
        rows = [(2, 0, 20, 0, 64000), *((11, other, 15 * hops, 64000, 64000 * count) for other in others)]
        for number, (kind, other, weight, least, most) in enumerate(rows):
            put(
                root / NODES / str(node) / f"io_links/{number}/properties",
                f"type {kind}\nversion_major 0\nversion_minor 0\nnode_from {node}\nnode_to {other}\n"
                f"weight {weight}\nmin_latency 0\nmax_latency 0\nmin_bandwidth {least}\n"
                f"max_bandwidth {most}\nrecommended_transfer_size 0\nflags 1\n".encode(),
            )


def node_of(root: Path, render: int) -> Path:
    """Return the file `properties` of the KFD node whose render node has the number RENDER."""
    found = (root / NODES).glob("*/properties")
    return next(file for file in found if f"drm_render_minor {render}\n" in file.read_text())


def edit_properties(root: Path, render: int, pattern: str, text: str) -> None:
    """Replace PATTERN by TEXT in the properties of the KFD node whose render node has the number RENDER."""
    file = node_of(root, render)
    file.write_text(re.sub(pattern, text, file.read_text(), flags=re.MULTILINE))


def make_unreadable(file: Path) -> None:
    """Replace a file by a folder, so that even root cannot read it."""
    file.unlink()
    file.mkdir()


def counted_by_amd(root: Path) -> list[str]:
    """Return the render nodes in the order of AMD's container-toolkit 1.3.0, according to its description.

    The toolkit reads the PCI devices, then the partition devices, each sorted by path as text. It ignores
    devices whose render node KFD lacks. It groups the others by domain, bus and device of KFD's location. The
    groups are in the order of their first device. The nodes of a group are sorted by number.
    """
    places: dict[int, tuple[int, int, int]] = {}
    for file in sorted((root / NODES).glob("*/properties"), key=str):
        values = dict(line.split(" ", 1) for line in file.read_text().splitlines() if " " in line)
        if int(values.get("drm_render_minor", 0)) > 0 and {"location_id", "domain"} <= values.keys():
            location = int(values["location_id"])
            place = (int(values["domain"]), location >> 8 & 0xFF, location >> 3 & 0x1F)
            places[int(values["drm_render_minor"])] = place
    paths = [
        *sorted((root / "sys/module/amdgpu/drivers/pci:amdgpu").glob("????:*"), key=str),
        *sorted((root / "sys/devices/platform").glob("amdgpu_xcp[_.]*"), key=str),
    ]
    groups: dict[tuple[int, int, int], list[int]] = {}
    for path in paths:
        for render in (int(drm.name[7:]) for drm in path.glob("drm/renderD*")):
            if render in places:
                groups.setdefault(places[render], []).append(render)
    return [f"/dev/dri/renderD{render}" for group in groups.values() for render in sorted(group)]


def _address(place: int) -> str:
    return ADDRESSES[place] if place < len(ADDRESSES) else f"0001:{place:02x}:00.0"


def _unique_id(place: int) -> int:
    return UNIQUE_IDS[place] if place < len(UNIQUE_IDS) else 1 + place


def _write_pci(root: Path, gpu: AmdGpu) -> None:
    folder = root / "sys/devices/pci0000:00" / gpu.bdf
    texts = {
        "vendor": "0x1002",
        "device": f"0x{gpu.device_id:04x}",
        "class": f"0x{gpu.pci_class:06x}",
        "product_name": gpu.product,
        "current_compute_partition": gpu.compute,
        "current_memory_partition": gpu.memory,
        "unique_id": f"{gpu.unique_id:016x}" if gpu.unique_id else "",
    }
    for name, text in texts.items():
        if text:
            put(folder / name, f"{text}\n".encode())
    link(folder / "driver", "../../../bus/pci/drivers/amdgpu")
    for listing in ("devices", "drivers/amdgpu"):
        up = "../" * (listing.count("/") + 3)
        link(root / "sys/bus/pci" / listing / gpu.bdf, f"{up}devices/pci0000:00/{gpu.bdf}")


def _write_drm(root: Path, folder: str, card: int | None, render: int, *, nodes: bool) -> None:
    wanted = [(f"renderD{render}", render, RENDER_GID)]
    if card is not None:
        wanted.append((f"card{card}", card, VIDEO_GID))
    for name, minor, gid in wanted:
        put(root / folder / "drm" / name / "dev", f"{DRM_MAJOR}:{minor}\n".encode())
        if nodes:
            _make(root, f"/dev/dri/{name}", DRM_MAJOR, minor, gid)


def _write_kfd(root: Path, gpus: tuple[AmdGpu, ...], cpus: int, *, nodes: bool) -> None:
    put(root / "sys/class/kfd/kfd/dev", f"{KFD_MAJOR}:0\n".encode())
    put(root / "sys/class/kfd/kfd/topology/generation_id", b"1\n")
    if nodes:
        _make(root, "/dev/kfd", KFD_MAJOR, 0, RENDER_GID)
    for cpu in range(cpus):
        write_properties(
            root, cpu, cpu_cores_count=64, simd_count=0, location_id=0, domain=0, drm_render_minor=0
        )
    node = cpus
    for gpu in gpus:
        domain, bus, slot = (int(part, 16) for part in gpu.bdf.partition(".")[0].split(":"))
        for place, render in enumerate(gpu.renders):
            write_properties(
                root, node, cpu_cores_count=0, simd_count=80, gfx_target_version=90402, vendor_id=0x1002,
                device_id=gpu.device_id, location_id=bus << 8 | slot << 3 | place, domain=domain,
                drm_render_minor=render, hive_id=2095653680343411291,
                unique_id=(gpu.unique_id + place * gpu.own_ids) % (1 << 64), num_xcc=1,
            )  # fmt: skip
            node += 1


def _make(root: Path, path: str, major: int, minor: int, gid: int) -> None:
    make_node(root, Node(path=path, major=major, minor=minor), 0o660, gid=gid)
