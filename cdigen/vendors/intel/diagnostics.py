"""Report problems of Intel's devices that discovery does not report (``diagnostics``)."""

from __future__ import annotations

from cdigen.host.sysfs import bound
from cdigen.model.findings import Finding
from cdigen.value import frozen
from cdigen.vendors.intel.gpu import report_unbound
from cdigen.vendors.intel.pci import read_functions
from cdigen.vendors.kernel.drm import devices as drm
from cdigen.vendors.kernel.modules import firmware_names, is_loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext


@frozen
class FirmwareRequirement:
    """A firmware that a driver loads.

    The files of the firmware are in ``folders``, and have ``part`` in their names. ``without`` is the
    consequence of missing firmware. ``needs`` is true if the driver cannot bind to a device without the
    firmware. If such a driver has a device, the driver has found the firmware. The firmware may be in the
    initramfs, which cdigen cannot read.
    """

    driver: str
    folders: tuple[str, ...]
    part: str
    name: str
    without: str
    needs: bool = False


# With GPUs older than DG2, i915 works without firmware. xe needs firmware for all GPUs
# (Documentation/gpu/i915.rst, "Microcontrollers"; Documentation/gpu/xe/xe_firmware.rst). For GPUs that i915
# also supports, xe's firmware is in i915's folder.
FIRMWARE = (
    FirmwareRequirement(
        driver="i915",
        folders=("i915",),
        part="_guc_",
        name="GuC",
        without="Arc, Flex and newer GPUs do not work, and older ones have no HuC",
    ),
    FirmwareRequirement(
        driver="i915",
        folders=("i915",),
        part="_huc",
        name="HuC",
        without="the video encoders lack their low-power modes",
    ),
    FirmwareRequirement(
        driver="xe",
        folders=("xe", "i915"),
        part="_guc_",
        name="GuC",
        without="xe binds to no GPU",
        needs=True,
    ),
    FirmwareRequirement(
        driver="xe",
        folders=("xe", "i915"),
        part="_huc",
        name="HuC",
        without="the GPU does not encode or decode some video formats",
    ),
    FirmwareRequirement(
        driver="intel_vpu",
        folders=("intel/vpu",),
        part="vpu",
        name="NPU",
        without="the driver binds to no NPU",
        needs=True,
    ),
)


def diagnostics(context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
    """Return findings for wrong Unix groups of device nodes, missing firmware, and unbound devices."""
    every = (node for each in inventory.accelerators for node in each.nodes) if inventory else ()
    unbound = _unbound(context) if inventory is None else ()
    return (*drm.root_only_nodes(dict.fromkeys(every)), *unbound, *_firmware(context.host))


def _unbound(context: DiscoveryContext) -> tuple[Finding, ...]:
    """Return the findings for devices without an Intel driver. Every inventory contains these findings."""
    scan = drm.NodeScan(context)
    report_unbound(scan, read_functions(context.host, scan.collector), vfio=False)
    return tuple(scan.collector.findings)


def _firmware(host: Root) -> Iterator[Finding]:
    """Yield a finding for each missing firmware of a driver.

    Some drivers cannot bind to a device if the firmware is missing. Their firmware is checked if the driver
    is loaded and has no device. The firmware of other drivers is checked if the driver has a device.
    """
    for row in FIRMWARE:
        has_device = bool(bound(host, row.driver))
        is_wanted = is_loaded(host, row.driver) and not has_device if row.needs else has_device
        names = (name for folder in row.folders for name in firmware_names(host, folder))
        if is_wanted and not any(row.part in name for name in names):
            yield Finding(
                severity="warning",
                rule="firmware-missing",
                path=f"/lib/firmware/{row.folders[0]}",
                message=f"no {row.name} firmware for {row.driver} is in /lib/firmware/"
                f"{' or '.join(row.folders)}: {row.without}",
                hint="install the firmware package of the distribution (linux-firmware, "
                "firmware-misc-nonfree), rebuild the initramfs and reboot",
            )
