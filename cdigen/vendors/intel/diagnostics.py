"""Find what prevents programs in containers from using Intel's devices although their nodes exist."""

from __future__ import annotations

from cdigen.host.sysfs import bound
from cdigen.model.findings import Finding
from cdigen.vendors.intel.gpu import report_unbound
from cdigen.vendors.intel.pci import read_functions
from cdigen.vendors.intel.products import FIRMWARE
from cdigen.vendors.kernel import drm
from cdigen.vendors.kernel.modules import firmware_names, is_loaded
from cdigen.vendors.kernel.scan import NodeScan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.intel.products import FirmwareRequirement


def diagnostics(context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
    """Return what is wrong with the groups of nodes and with firmware, and what no driver has."""
    every = (node for each in inventory.accelerators for node in each.nodes) if inventory else ()
    unbound = _unbound(context) if inventory is None else ()
    return (*drm.root_only_nodes(dict.fromkeys(every)), *unbound, *_firmware(context.host))


def _unbound(context: DiscoveryContext) -> tuple[Finding, ...]:
    """Say what no driver of Intel's has, which an inventory says itself."""
    scan = NodeScan(context)
    report_unbound(scan, read_functions(context.host, scan.collector), vfio=False)
    return tuple(scan.collector.findings)


def _firmware(host: Root) -> Iterator[Finding]:
    """Say which firmware is nowhere, of drivers that have a device, or need it to have one."""
    for row in FIRMWARE:
        has_device = bool(bound(host, row.driver))
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
    return any(row.part in name for below in row.folders for name in firmware_names(host, below))
