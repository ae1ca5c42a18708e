"""Find what keeps programs in containers from Intel's devices although their nodes are there."""

from __future__ import annotations

from cdigen.model.findings import Finding
from cdigen.vendors.intel.gpu import report_unbound
from cdigen.vendors.intel.pci import read_functions
from cdigen.vendors.intel.presence import PCI_DRIVERS
from cdigen.vendors.intel.products import FIRMWARE
from cdigen.vendors.intel.scan import NodeScan
from cdigen.vendors.kernel import drm, firmware
from cdigen.vendors.kernel.modules import is_loaded
from cdigen.vendors.kernel.nodes import is_root_only

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.intel.products import FirmwareRequirement


def diagnostics(context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
    """Return what is wrong with the groups of nodes and with firmware, and what no driver has."""
    nodes = [node for each in inventory.accelerators for node in each.nodes] if inventory else []
    unbound = _unbound(context) if inventory is None else ()
    return (*_groups(nodes), *unbound, *_firmware(context.host))


def _groups(nodes: list[HostNode]) -> Iterator[Finding]:
    """Say which nodes only root can open: they have no group that a container's user could be given."""
    closed = sorted(
        {node.host_path for node in nodes if node.role in {"render", "accel"} and is_root_only(node)}
    )
    if closed:
        yield Finding(
            severity="warning",
            rule="render-group",
            path=closed[0],
            message=f"only root can open {', '.join(closed)}, whatever groups a container's user is in",
            hint=drm.GROUP_HINT,
        )


def _unbound(context: DiscoveryContext) -> tuple[Finding, ...]:
    """Say what no driver of Intel's has, which an inventory says itself."""
    scan = NodeScan(context)
    report_unbound(scan, read_functions(context.host, scan.collector), vfio=False)
    return tuple(scan.collector.findings)


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


def _has_firmware(host: Root, row: FirmwareRequirement) -> bool:
    return any(row.part in name for below in row.folders for name in firmware.names(host, below))
