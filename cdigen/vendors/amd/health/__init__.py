"""The health of AMD's GPUs and NPUs (``HEALTH``)."""

from __future__ import annotations

from cdigen.model.health import HealthSample, Measurement
from cdigen.value import replace
from cdigen.vendors.amd.health.causes import CAUSES, KFD_LOST, LINES
from cdigen.vendors.kernel import driver_lines, drm_health, pci_health
from cdigen.vendors.kernel.modules import load_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.health import CauseRule, DeviceEvent, LogRecord, Recovery, Symptom
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.model.stats import DeviceStats
    from cdigen.vendors.base import DiscoveryContext

KFD_NODE = "/dev/kfd"


class AmdHealth:
    """The health of AMD's devices, from amdgpu, KFD and the PCI bus (``VendorHealth``)."""

    CAUSES: tuple[CauseRule, ...] = CAUSES

    def check(self, context: DiscoveryContext, inventory: Inventory) -> HealthSample:
        """Return the health according to KFD, and according to sysfs files.

        amdgpu does not query the GPU for these files. KFD is not read again: a GPU in INVENTORY has the node
        /dev/kfd only if KFD lists the GPU.
        """
        addresses = [device.address for device in inventory.accelerators]
        sample = pci_health.check_devices(context.host, addresses)
        computing = (
            Measurement(
                cause=KFD_LOST,
                address=device.address,
                what="KFD nodes",
                value=_computes(device),
                worse="lower",
            )
            for device in inventory.accelerators
            if device.address in sample.covered
        )
        return replace(sample, measurements=(*sample.measurements, *computing))

    def parse_log(self, record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
        """Return the symptoms and recoveries in RECORD, a log record of amdgpu, DRM or PCIe."""
        return (
            driver_lines.parse_log(record, LINES)
            or drm_health.parse_log(record, inventory)
            or pci_health.parse_log(record, inventory)
        )

    def parse_uevents(self, event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
        """Return the symptoms and recoveries in the uevent EVENT of DRM or of the PCI bus."""
        return drm_health.parse_uevents(event, inventory) or pci_health.parse_uevents(event)

    def probe(self, context: DiscoveryContext, inventory: Inventory) -> HealthSample:
        """Return the error counters of RAS. amdgpu queries the GPU for them."""
        from cdigen.vendors.amd.health.ras import probe  # noqa: PLC0415 - used every ten minutes

        return probe(context.host, inventory)

    def load(self, context: DiscoveryContext) -> str:
        """Return a text that changes each time amdgpu is loaded."""
        return load_of(context.host, "amdgpu")

    def stats(self, context: DiscoveryContext, inventory: Inventory) -> tuple[DeviceStats, ...]:
        """Return the statistics of each GPU from sysfs and hwmon."""
        from cdigen.vendors.amd.health.stats import read_stats  # noqa: PLC0415 - on demand

        return read_stats(context.host, inventory)


def _computes(device: Accelerator) -> int:
    nodes = (*device.nodes, *(node for partition in device.partitions for node in partition.nodes))
    return int(any(node.role == "control" for node in nodes))


HEALTH = AmdHealth()
