"""Writes /sys of hosts with Intel's accelerators and, as root, device nodes in /dev, from short descriptions.

`lay(root, *devices)` writes the files of the kernel and of udev for each `Device`. `gpu`, `npu` and `gaudi`
return usual devices.

Sources: the kernel's Documentation/ABI/testing/sysfs-bus-pci, sysfs-class-drm and driver-api/vfio.rst; udev's
50-udev-default.rules and 60-drm.rules. Addresses and numbers of devices are those of Intel's system guides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from support.hosts import nvidia_kernel
from support.hosts.driver_files import link, put
from support.hosts.nvidia_kernel import Node

if TYPE_CHECKING:
    from pathlib import Path

RELEASE = "6.17.0-8-generic"
DRM_MAJOR, ACCEL_MAJOR, HABANA_MAJOR, VERBS_MAJOR, GROUP_MAJOR, CDEV_MAJOR = 226, 261, 508, 231, 243, 511
MEI_MAJOR = 238
MISC_MAJOR, VFIO_MINOR, IOMMU_MINOR = 10, 196, 195
VIDEO, RENDER = 44, 993

IGPU = "0000:00:02.0"
FLEX_170, B60, MAX_1550, GAUDI_3, LUNAR_LAKE_GPU, LUNAR_LAKE_NPU = (
    "0x56c0",
    "0xe211",
    "0x0bd5",
    "0x1060",
    "0x64a0",
    "0x643e",
)
VGA, DISPLAY, ACCELERATOR = "0x030000", "0x038000", "0x120000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A PCI function: its address, type and driver, and the numbers of its nodes (None: no such node)."""

    address: str
    device_id: str
    driver: str = ""
    pci_class: str = DISPLAY
    vendor: str = "0x8086"
    card: int | None = None
    render: int | None = None
    accel: int | None = None
    control: bool = False
    uverbs: int | None = None
    group: int | None = None
    vfio: int | None = None
    parent: str = ""
    vfs: tuple[str, ...] = ()
    mei: tuple[tuple[str, int], ...] = ()
    entries: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The folder of the function, as in the kernel."""
        return f"sys/devices/pci{self.address[:7]}/{self.address}"


def gpu(number: int, address: str, device_id: str, driver: str, **more: Any) -> Device:
    """Describe a GPU with the card NUMBER and the render node 128 + NUMBER."""
    return Device(
        address=address, device_id=device_id, driver=driver, card=number, render=128 + number, **more
    )


def npu(number: int = 0, address: str = "0000:00:0b.0", device_id: str = LUNAR_LAKE_NPU) -> Device:
    """Describe an NPU."""
    return Device(
        address=address, device_id=device_id, driver="intel_vpu", pci_class=ACCELERATOR, accel=number
    )


def gaudi(number: int, address: str, *, uverbs: bool = True) -> Device:
    """Describe a Gaudi with its control node and the device node of its network."""
    return Device(
        address=address,
        device_id=GAUDI_3,
        driver="habanalabs",
        vendor="0x1da3",
        pci_class=ACCELERATOR,
        accel=number,
        control=True,
        uverbs=number if uverbs else None,
    )


def lay(root: Path, *devices: Device, nodes: bool = True) -> None:
    """Write DEVICES below ROOT, by default with real nodes, which only root can create."""
    put(root / "proc/sys/kernel/osrelease", f"{RELEASE}\n".encode())
    put(root / "proc/sys/kernel/arch", b"x86_64\n")
    put(root / "etc/group", f"root:x:0:\nvideo:x:{VIDEO}:\nrender:x:{RENDER}:\n".encode())
    for device in devices:
        _lay_function(root, device)
        _lay_minors(root, device)
        _lay_virtual_functions(root, device)
        if nodes:
            lay_nodes(root, device)


def _lay_function(root: Path, device: Device) -> None:
    folder = root / device.folder
    for name, content in (
        ("vendor", device.vendor),
        ("device", device.device_id),
        ("class", device.pci_class),
        *device.entries.items(),
    ):
        put(folder / name, f"{content}\n".encode())
    target = device.folder.removeprefix("sys/")
    link(root / "sys/bus/pci/devices" / device.address, f"../../../{target}")
    if device.driver:
        drivers = root / "sys/bus/pci/drivers" / device.driver
        put(drivers / "bind")
        link(drivers / device.address, f"../../../../{target}")
        link(folder / "driver", f"../../../bus/pci/drivers/{device.driver}")
        (root / "sys/module" / device.driver.replace("-", "_")).mkdir(parents=True, exist_ok=True)


def _lay_minors(root: Path, device: Device) -> None:
    for subsystem, name, major, minor in _minors(device):
        own = root / device.folder / subsystem / name
        put(own / "dev", f"{major}:{minor}\n".encode())
        link(own / "device", f"../../../{device.address}")
        target = f"../../{device.folder.removeprefix('sys/')}/{subsystem}/{name}"
        link(root / "sys/class" / subsystem / name, target)
    if device.control:
        control = root / f"sys/devices/virtual/accel/accel_controlD{device.accel}"
        put(control / "dev", f"{HABANA_MAJOR}:{device.accel}\n".encode())
        link(root / "sys/class/accel" / control.name, f"../../devices/virtual/accel/{control.name}")
    for auxiliary, number in device.mei:
        own = root / device.folder / auxiliary / f"mei/mei{number}"
        put(own / "dev", f"{MEI_MAJOR}:{number}\n".encode())
        link(own / "device", "../../../" + auxiliary)
        link(
            root / f"sys/class/mei/mei{number}",
            f"../../{device.folder.removeprefix('sys/')}/{auxiliary}/mei/mei{number}",
        )
    if device.group is not None:
        (root / f"sys/kernel/iommu_groups/{device.group}").mkdir(parents=True, exist_ok=True)
        link(root / device.folder / "iommu_group", f"../../../kernel/iommu_groups/{device.group}")
    if device.vfio is not None:
        put(
            root / device.folder / f"vfio-dev/vfio{device.vfio}/dev", f"{CDEV_MAJOR}:{device.vfio}\n".encode()
        )


def _minors(device: Device) -> list[tuple[str, str, int, int]]:
    """Return the kernel's minors of a device: subsystem, name, major, minor."""
    found = []
    if device.card is not None:
        found.append(("drm", f"card{device.card}", DRM_MAJOR, device.card))
    if device.render is not None:
        found.append(("drm", f"renderD{device.render}", DRM_MAJOR, device.render))
    if device.accel is not None:
        found.append(("accel", f"accel{device.accel}", ACCEL_MAJOR, device.accel))
    if device.uverbs is not None:
        found.append(("infiniband_verbs", f"uverbs{device.uverbs}", VERBS_MAJOR, 192 + device.uverbs))
    return found


def _lay_virtual_functions(root: Path, device: Device) -> None:
    folder = root / device.folder
    if device.parent:
        link(folder / "physfn", f"../{device.parent}")
    if device.vfs:
        for name, content in (("sriov_totalvfs", "31"), ("sriov_numvfs", str(len(device.vfs)))):
            put(folder / name, f"{content}\n".encode())
    for number, address in enumerate(device.vfs):
        link(folder / f"virtfn{number}", f"../{address}")


def lay_nodes(root: Path, device: Device) -> None:
    """Create the nodes of DEVICE like devtmpfs and udev."""
    places = {"drm": "dri", "accel": "accel", "infiniband_verbs": "infiniband"}
    for subsystem, name, major, minor in _minors(device):
        gid, mode = (VIDEO, 0o660) if name.startswith("card") else (RENDER, 0o660)
        if subsystem == "infiniband_verbs":
            gid, mode = 0, 0o666
        make_node(root / "dev" / places[subsystem] / name, major, minor, gid=gid, mode=mode)
        if subsystem == "drm":
            word = "card" if name.startswith("card") else "render"
            link(root / f"dev/dri/by-path/pci-{device.address}-{word}", f"../{name}")
    if device.control:
        name = f"accel_controlD{device.accel}"
        make_node(root / "dev/accel" / name, HABANA_MAJOR, device.accel or 0, gid=RENDER)
    for _, number in device.mei:
        make_node(root / f"dev/mei{number}", MEI_MAJOR, number, mode=0o600)
    if device.group is not None:
        make_node(root / f"dev/vfio/{device.group}", GROUP_MAJOR, device.group, mode=0o600)
        make_node(root / "dev/vfio/vfio", MISC_MAJOR, VFIO_MINOR, mode=0o666)
    if device.vfio is not None:
        make_node(root / f"dev/vfio/devices/vfio{device.vfio}", CDEV_MAJOR, device.vfio, mode=0o600)
        make_node(root / "dev/iommu", MISC_MAJOR, IOMMU_MINOR, mode=0o660)


def make_node(path: Path, major: int, minor: int, *, gid: int = 0, mode: int = 0o660) -> None:
    """Create a real character device with exactly MODE, for any umask."""
    nvidia_kernel.make_node(path.parent, Node(path=path.name, major=major, minor=minor), mode, gid=gid)


# Machines.


def arc_a770() -> tuple[Device, ...]:
    """Describe a desktop with a GPU of i915, a GPU of xe, and the CPU's own management engine.

    The GPU of i915 has both interfaces of its GSC. The number in their names is the PCI bus and device.
    """
    return (
        Device(
            address="0000:00:16.0", device_id="0x7ae8", driver="mei_me", pci_class="0x078000", mei=(("", 0),)
        ),
        gpu(
            0, "0000:03:00.0", "0x56a0", "i915", pci_class=VGA,
            mei=(("i915.mei-gsc.768", 1), ("i915.mei-gscfi.768", 2)),
        ),
        gpu(1, "0000:07:00.0", B60, "xe", pci_class=VGA, mei=(("xe.mei-gscfi.1792", 3),)),
    )  # fmt: skip


def one_of_each_driver() -> tuple[Device, Device, Device, Device]:
    """Describe a GPU of the driver xe, a GPU of i915, an NPU and a Gaudi."""
    return (
        gpu(1, "0000:03:00.0", B60, "xe"),
        gpu(0, IGPU, "0xa780", "i915", pci_class=VGA),
        npu(),
        gaudi(1, "0000:33:00.0"),
    )


def laptop() -> tuple[Device, ...]:
    """Describe a laptop of Lunar Lake: its GPU and its NPU."""
    return (gpu(0, IGPU, LUNAR_LAKE_GPU, "xe", pci_class=VGA), npu())


def flex_170(vfs: int = 4, *, vfio: tuple[int, ...] = ()) -> tuple[Device, ...]:
    """Describe an integrated GPU and a Flex 170 with VFS functions; vfio-pci drives the functions in VFIO."""
    addresses = tuple(f"0000:4d:{number // 8:02x}.{number % 8}" for number in range(1, vfs + 1))
    parent = "0000:4d:00.0"
    virtual = (
        Device(
            address=address,
            device_id=FLEX_170,
            driver="vfio-pci",
            group=70 + number,
            vfio=number,
            parent=parent,
        )
        if number in vfio
        else gpu(2 + number, address, FLEX_170, "i915", parent=parent)
        for number, address in enumerate(addresses)
    )
    return (
        gpu(0, IGPU, "0xa780", "i915", pci_class=VGA),
        gpu(1, parent, FLEX_170, "i915", vfs=addresses),
        *virtual,
    )


def b60(count: int = 4) -> tuple[Device, ...]:
    """Describe Arc Pro B60s from card1 on; card0 belongs to a display adapter of another vendor."""
    return tuple(
        gpu(1 + number, f"0000:{0x18 + 0x21 * number:02x}:00.0", B60, "xe", pci_class=VGA)
        for number in range(count)
    )


def max_1550(count: int = 8) -> tuple[Device, ...]:
    """Describe Max 1550s; the order of their card numbers is the reverse of the order on the bus."""
    return tuple(
        gpu(count - 1 - number, f"0000:{0x18 + 0x1A * number:02x}:00.0", MAX_1550, "i915")
        for number in range(count)
    )


def gaudi_3(count: int = 8) -> tuple[Device, ...]:
    """Describe Gaudis; the order of their numbers in the driver is not the order on the bus."""
    buses = ("33", "9a", "34", "9b", "4d", "b3", "4e", "b4")
    return tuple(gaudi(number, f"0000:{bus}:00.0") for number, bus in enumerate(buses[:count]))
