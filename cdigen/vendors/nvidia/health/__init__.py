"""The health of NVIDIA's GPUs (``HEALTH``), from NVML, the PCI bus, and the Xids in the kernel's log.

docs/health.md describes when each cause is cleared.
"""

from __future__ import annotations

from cdigen.vendors.kernel import pci_health
from cdigen.vendors.kernel.modules import load_of
from cdigen.vendors.nvidia.health import log, xids
from cdigen.vendors.nvidia.health.probe import PROBE_CAUSES, probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.health import DeviceEvent, HealthSample, LogRecord, Recovery, Symptom
    from cdigen.model.inventory import Inventory
    from cdigen.model.stats import DeviceStats
    from cdigen.vendors.base import DiscoveryContext

MODULE = "nvidia"


class NvidiaHealth:
    """The health of NVIDIA's devices (``VendorHealth``)."""

    CAUSES = (*xids.RULES, *PROBE_CAUSES, *pci_health.PCI_CAUSES)

    def check(self, context: DiscoveryContext, inventory: Inventory) -> HealthSample:
        """Return the health according to the kernel's files about PCI devices."""
        return pci_health.check_devices(context.host, [gpu.address for gpu in inventory.accelerators])

    def parse_log(self, record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
        """Return the symptoms and recoveries of INVENTORY's GPUs in RECORD, a record of the kernel's log."""
        return log.parse_log(record, inventory)

    def parse_uevents(self, event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:  # noqa: ARG002
        """Return the symptoms and recoveries in the uevent EVENT."""
        return pci_health.parse_uevents(event)

    def probe(self, context: DiscoveryContext, inventory: Inventory) -> HealthSample:
        """Return the health by NVML and device nodes, for GPUs whose driver state is kept (``is_kept``)."""
        return probe(context, inventory)

    def load(self, context: DiscoveryContext) -> str:
        """Return a text that changes each time the driver is loaded, or "" if no driver is loaded."""
        return load_of(context.host, MODULE)

    def stats(self, context: DiscoveryContext, inventory: Inventory) -> tuple[DeviceStats, ...]:
        """Return the statistics of the devices."""
        from cdigen.vendors.nvidia.stats import read_stats  # noqa: PLC0415 - on demand

        return read_stats(context, inventory)


HEALTH = NvidiaHealth()
