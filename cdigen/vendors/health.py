"""How a vendor tells the health and the figures of its devices: ``VendorHealth``, a part of the protocol.

A vendor in the tree has it in its package ``health`` as ``HEALTH`` (``registry.health``). Of others' devices
nothing is known.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from cdigen.model.figures import DeviceFigures
    from cdigen.model.health import CauseRule, DeviceEvent, LogRecord, Look, Recovery, Symptom
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext

    class VendorHealth(Protocol):
        """The health of one vendor's devices; nothing of it raises for what a host or device does."""

        CAUSES: tuple[CauseRule, ...]

        def look(self, context: DiscoveryContext, inventory: Inventory) -> Look:
            """Read what the kernel's files say now: quick, in every cycle, never waking a sleeping device."""

        def heard(self, record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
            """Return what a record of the kernel's log means; pure.

            INVENTORY tells which devices a record about another one, such as a port, is about. A device
            that it has not may be found next.
            """

        def noticed(self, event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
            """Return what a uevent means for the devices of INVENTORY, or for one that is found next; pure.

            Events are not repeated after a start of the daemon, and some are lost: what they alone tell has
            to be cleared without them as well.
            """

        def probe(self, context: DiscoveryContext, inventory: Inventory) -> Look:
            """Ask what only the devices or their library can say: slow, in child processes with deadlines.

            Never of a device that sleeps. A thread of its own calls it: seldom, and after a suspicious event.
            """

        def load(self, context: DiscoveryContext) -> str:
            """Return what is another after each loading of the driver, empty where it is not loaded."""

        def figures(self, context: DiscoveryContext, inventory: Inventory) -> tuple[DeviceFigures, ...]:
            """Read the figures of the devices: on demand, slow where a library has to be asked."""
