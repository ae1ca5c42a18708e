"""The trees of the tests of Intel's resource driver and device plugins, which lack many files of a kernel.

They have no numbers of device nodes. (Their nodes are copies of /dev/null.)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from support.hosts.driver_files import link, put
from support.hosts.intel_tree import (
    ACCEL_MAJOR,
    CDEV_MAJOR,
    DRM_MAJOR,
    GROUP_MAJOR,
    HABANA_MAJOR,
    MISC_MAJOR,
    VFIO_MINOR,
    VGA,
    make_node,
)

if TYPE_CHECKING:
    from pathlib import Path


_FORMS = (
    (r"card(\d+)|renderD(\d+)", DRM_MAJOR),
    (r"accel(\d+)", ACCEL_MAJOR),
    (r"accel_controlD(\d+)|hl(\d+)|hl_controlD(\d+)", HABANA_MAJOR),
    (r"vfio(\d+)", CDEV_MAJOR),
    (r"(\d+)", GROUP_MAJOR),
)


def _make_by_name(path: Path) -> None:
    """Create the device node PATH with numbers that fit its name."""
    for pattern, major in _FORMS:
        if found := re.fullmatch(pattern, path.name):
            make_node(path, major, int(next(filter(None, found.groups()))), mode=0o644)
            return
    make_node(path, MISC_MAJOR, VFIO_MINOR, mode=0o644)


def lay_resource_driver_gpu(
    root: Path, address: str, device_id: str, driver: str, *, card: str, render: str = ""
) -> None:
    """Write a GPU like intel-resource-drivers' pkg/fakesysfs: the link in class/drm is absolute."""
    folder = root / f"sys/devices/pci0000:00/{address}"
    for name, content in (
        ("device", device_id),
        ("vendor", "0x8086"),
        ("class", VGA),
        ("driver_override", ""),
    ):
        put(folder / name, content.encode())
    link(root / "sys/bus/pci/devices" / address, f"../../../devices/pci0000:00/{address}")
    link(root / f"sys/bus/pci/drivers/{driver}/{address}", f"../../../../devices/pci0000:00/{address}")
    link(folder / "driver", f"../../../bus/pci/drivers/{driver}")
    for name, word in ((card, "card"), (render, "render")):
        if name:
            (folder / "drm" / name).mkdir(parents=True)
            _make_by_name(root / "dev/dri" / name)
            link(root / f"dev/dri/by-path/pci-{address}-{word}", f"../{name}")
    link(root / "sys/class/drm" / card, f"{root}/sys/bus/pci/devices/{address}/drm/{card}")


def lay_resource_driver_vfio(root: Path, address: str, device_id: str, vfio: str, group: str) -> None:
    """Write a GPU for virtual machines like pkg/fakesysfs: the folder of its IOMMU group is missing."""
    folder = root / f"sys/devices/pci0000:00/{address}"
    for name, content in (("device", device_id), ("vendor", "0x8086"), ("class", VGA)):
        put(folder / name, content.encode())
    link(root / "sys/bus/pci/devices" / address, f"../../../devices/pci0000:00/{address}")
    link(root / f"sys/bus/pci/drivers/vfio-pci/{address}", f"../../../../devices/pci0000:00/{address}")
    link(folder / "driver", "../../../bus/pci/drivers/vfio-pci")
    link(folder / "iommu_group", f"../../../kernel/iommu_groups/{group}")
    (folder / "vfio-dev" / vfio).mkdir(parents=True)
    for path in (f"vfio/{group}", "vfio/vfio", f"vfio/devices/{vfio}"):
        _make_by_name(root / "dev" / path)


def lay_resource_driver_gaudi(root: Path, address: str, number: int) -> None:
    """Write a Gaudi like intel-resource-drivers' pkg/fakesysfs: without vendor and class."""
    folder = root / f"sys/devices/pci0000:15/{address}"
    for name, content in (("device", "0x1020"), ("pci_addr", address), ("module_id", str(number))):
        put(folder / name, content.encode())
    (folder / f"accel/accel{number}").mkdir(parents=True)
    link(folder / "driver", "../../../bus/pci/drivers/habanalabs")
    link(root / "sys/bus/pci/devices" / address, f"../../../devices/pci0000:15/{address}")
    link(root / f"sys/bus/pci/drivers/habanalabs/{address}", f"../../../../devices/pci0000:15/{address}")
    link(root / f"sys/class/accel/accel{number}", f"../../devices/pci0000:15/{address}")
    for name in (
        f"accel/accel{number}",
        f"accel/accel_controlD{number}",
        f"hl{number}",
        f"hl_controlD{number}",
    ):
        _make_by_name(root / "dev" / name)


def lay_older_gaudi(root: Path, address: str, number: int) -> None:
    """Write a Gaudi like older releases of pkg/fakesysfs: its node belongs to a device without a bus."""
    put(root / f"sys/bus/pci/drivers/habanalabs/{address}/device", b"0x1020")
    put(root / f"sys/devices/virtual/accel/accel{number}/device/pci_addr", address.encode())
    (root / f"sys/devices/virtual/accel/accel_controlD{number}").mkdir(parents=True)
    for name in (f"accel{number}", f"accel_controlD{number}"):
        link(root / "sys/class/accel" / name, f"../../devices/virtual/accel/{name}")
        _make_by_name(root / "dev/accel" / name)


def lay_device_plugin_gpus(root: Path, count: int, driver: str = "i915") -> None:
    """Write GPUs like intel-device-plugins' pkg/fakedri; from the tenth on, their addresses are invalid."""
    for number in range(count):
        card, render = f"card{number}", f"renderD{128 + number}"
        bus = root / f"sys/bus/pci/drivers/{driver}/0000:00:0{number}.0"
        put(bus / "device", b"0x4905")
        device = root / f"sys/class/drm/{card}/device"
        for name in (card, render):
            _make_by_name(bus / "drm" / name)
            (device / "drm" / name).mkdir(parents=True)
            _make_by_name(root / "dev/dri" / name)
        link(device / "driver", f"../../../../bus/pci/drivers/{driver}")
        put(device / "vendor", b"0x8086")
        put(device / "numa_node", b"0")
        link(root / f"dev/dri/by-path/pci-0000:{number:02d}:02.0-card", f"../{card}")
        link(root / f"dev/dri/by-path/pci-0000:{number:02d}:02.0-render", f"../{render}")


def lay_device_plugin_npu(root: Path, number: int, device_id: str) -> None:
    """Write an NPU like the tests of intel-device-plugins' npu_plugin: only in /sys/class/accel."""
    device = root / f"sys/class/accel/accel{number}/device"
    (device / f"drm/accel{number}").mkdir(parents=True)
    put(device / "vendor", b"0x8086")
    put(device / "device", device_id.encode())
    _make_by_name(root / f"dev/accel/accel{number}")
