"""The health of NVIDIA's GPUs (``HEALTH``): Xids of the kernel's log, the PCI bus, NVML.

docs/health.md has what clears each cause.
"""

from __future__ import annotations

from cdigen.vendors.kernel import pci_health
from cdigen.vendors.kernel.modules import load_of
from cdigen.vendors.nvidia.health import log, xids
from cdigen.vendors.nvidia.health.probe import PROBE_CAUSES, probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.figures import DeviceFigures
    from cdigen.model.health import DeviceEvent, LogRecord, Look, Recovery, Symptom
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext

MODULE = "nvidia"


class NvidiaHealth:
    """How NVIDIA tells the health of its devices."""

    CAUSES = (*xids.RULES, *PROBE_CAUSES, *pci_health.PCI_CAUSES)

    def look(self, context: DiscoveryContext, inventory: Inventory) -> Look:
        """Read what the kernel's files say now."""
        return pci_health.look_at(context.host, [gpu.address for gpu in inventory.accelerators])

    def heard(self, record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
        """Return what a record of the kernel's log means for the devices of INVENTORY; pure."""
        return log.heard(record, inventory)

    def noticed(self, event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:  # noqa: ARG002
        """Return what a uevent means for the devices of INVENTORY; pure."""
        return pci_health.noticed(event)

    def probe(self, context: DiscoveryContext, inventory: Inventory) -> Look:
        """Ask NVML, and try whether nodes can be opened, of GPUs that are kept awake."""
        return probe(context, inventory)

    def load(self, context: DiscoveryContext) -> str:
        """Return what is another after each loading of the driver, empty where it is not loaded."""
        return load_of(context.host, MODULE)

    def figures(self, context: DiscoveryContext, inventory: Inventory) -> tuple[DeviceFigures, ...]:
        """Read the figures of the devices."""
        from cdigen.vendors.nvidia.figures import figures  # noqa: PLC0415 - few ask for them

        return figures(context, inventory)


HEALTH = NvidiaHealth()
