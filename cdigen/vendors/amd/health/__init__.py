"""The health of AMD's GPUs and NPUs: ``HEALTH`` (``vendors.health.VendorHealth``)."""

from __future__ import annotations

from cdigen.model.health import Look, Measurement
from cdigen.value import replace
from cdigen.vendors.amd.health.causes import CAUSES, KFD_LOST, LINES
from cdigen.vendors.kernel import driver_lines, drm_health, pci_health
from cdigen.vendors.kernel.modules import load_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.figures import DeviceFigures
    from cdigen.model.health import CauseRule, DeviceEvent, LogRecord, Recovery, Symptom
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.vendors.base import DiscoveryContext

KFD_NODE = "/dev/kfd"


class AmdHealth:
    """What amdgpu, KFD and the PCI bus tell of AMD's devices."""

    CAUSES: tuple[CauseRule, ...] = CAUSES

    def look(self, context: DiscoveryContext, inventory: Inventory) -> Look:
        """Read what sysfs tells without the GPU; what KFD lists, discovery has just read."""
        addresses = [device.address for device in inventory.accelerators]
        seen = pci_health.look_at(context.host, addresses)
        computing = (
            Measurement(
                cause=KFD_LOST,
                address=device.address,
                what="KFD nodes",
                value=_computes(device),
                worse="lower",
            )
            for device in inventory.accelerators
            if device.address in seen.covered
        )
        return replace(seen, measurements=(*seen.measurements, *computing))

    def heard(self, record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
        """Return what a record of amdgpu, of DRM or of PCIe means; pure."""
        return (
            driver_lines.heard(record, LINES)
            or drm_health.heard(record, inventory)
            or pci_health.heard(record, inventory)
        )

    def noticed(self, event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
        """Return what a uevent of DRM or of the PCI bus means; pure."""
        return drm_health.noticed(event, inventory) or pci_health.noticed(event)

    def probe(self, context: DiscoveryContext, inventory: Inventory) -> Look:
        """Read the error counters of RAS, for which amdgpu asks the GPU."""
        from cdigen.vendors.amd.health.ras import probe  # noqa: PLC0415 - in ten minutes once

        return probe(context.host, inventory)

    def load(self, context: DiscoveryContext) -> str:
        """Return what is another after each loading of amdgpu."""
        return load_of(context.host, "amdgpu")

    def figures(self, context: DiscoveryContext, inventory: Inventory) -> tuple[DeviceFigures, ...]:
        """Read what amdgpu shows in sysfs and hwmon of each GPU."""
        from cdigen.vendors.amd.health.figures import figures  # noqa: PLC0415 - only where asked for

        return figures(context.host, inventory)


def _computes(device: Accelerator) -> int:
    nodes = (*device.nodes, *(node for partition in device.partitions for node in partition.nodes))
    return int(any(node.role == "control" for node in nodes))


HEALTH = AmdHealth()
