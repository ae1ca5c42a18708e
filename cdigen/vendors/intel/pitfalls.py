"""What keeps programs in containers from Intel's devices although their nodes are there."""

from __future__ import annotations

from cdigen.host.procfs import kernel_release, read_text
from cdigen.model.findings import Finding
from cdigen.vendors.intel.gpu import name_unbound
from cdigen.vendors.intel.look import Look
from cdigen.vendors.intel.pci import PCI_DRIVERS, functions
from cdigen.vendors.intel.tables import FIRMWARE
from cdigen.vendors.modules import is_loaded
from cdigen.vendors.nodes import GROUP, WORLD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.vendors.base import Places
    from cdigen.vendors.intel.tables import Firmware

# The kernel's own search path for firmware, after that of its parameter (Documentation/driver-api/firmware/
# fw_search_path.rst).
_FIRMWARE_FOLDERS = (
    "/lib/firmware/updates/{release}",
    "/lib/firmware/updates",
    "/lib/firmware/{release}",
    "/lib/firmware",
)
_FIRMWARE_PARAMETER = "/sys/module/firmware_class/parameters/path"


def pitfalls(places: Places, inventory: Inventory | None) -> tuple[Finding, ...]:
    """Return what is wrong with the groups of nodes and with firmware, and what no driver has."""
    nodes = [node for each in inventory.accelerators for node in each.nodes] if inventory else []
    unbound = _unbound(places) if inventory is None else ()
    return (*_groups(nodes), *unbound, *_firmware(places.host))


def _groups(nodes: list[HostNode]) -> Iterator[Finding]:
    """Say which nodes only root can open: they have no group that a container's user could be given."""
    closed = sorted(
        {
            node.host_path
            for node in nodes
            if node.role in {"render", "accel"}
            and node.mode & WORLD != WORLD
            and (node.gid == 0 or node.mode & GROUP != GROUP)
        }
    )
    if closed:
        yield Finding(
            severity="warning",
            rule="render-group",
            path=closed[0],
            message=f"only root can open {', '.join(closed)}, whatever groups a container's user is in",
            hint="udev's 50-udev-default.rules gives such nodes to the group render, mode 0660: "
            "'udevadm trigger -s drm -s accel'",
        )


def _unbound(places: Places) -> tuple[Finding, ...]:
    """Say what no driver of Intel's has, which an inventory says itself."""
    look = Look(places)
    name_unbound(look, functions(places.host, look.notes), vfio=False)
    return tuple(look.notes.findings)


def _firmware(host: Root) -> Iterator[Finding]:
    """Say which firmware is nowhere, of drivers that have a device, or need it to have one."""
    for row in FIRMWARE:
        has_device = any(":" in name for name in host.names(f"{PCI_DRIVERS}/{row.driver}"))
        is_wanted = is_loaded(host, row.driver) and not has_device if row.needs else has_device
        if is_wanted and not _has_firmware(host, row):
            yield Finding(
                severity="warning",
                rule="firmware-missing",
                path=f"/lib/firmware/{row.folders[0]}",
                message=f"no {row.name} firmware for {row.driver} is in /lib/firmware/"
                f"{' or '.join(row.folders)}: {row.without}",
                hint="install the distribution's firmware package (linux-firmware, firmware-misc-nonfree), "
                "rebuild the initramfs and reboot; see 'dmesg | grep -i firmware'",
            )


def _has_firmware(host: Root, row: Firmware) -> bool:
    return any(
        row.part in name
        for folder in _search_path(host)
        for below in row.folders
        for name in host.names(f"{folder}/{below}")
    )


def _search_path(host: Root) -> tuple[str, ...]:
    release = kernel_release(host)
    try:
        given = read_text(host, _FIRMWARE_PARAMETER).strip()
    except OSError:
        given = ""
    folders = (folder.format(release=release) for folder in _FIRMWARE_FOLDERS)
    return (*((given,) if given.startswith("/") and "\0" not in given else ()), *folders)
