"""The interface for the health and the statistics of a vendor's devices (``VendorHealth``).

A vendor in the tree implements this interface as ``HEALTH`` in its package ``health`` (``registry.health``).
For vendors of other packages, cdigen reports no health and no statistics.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from cdigen.model.health import CauseRule, DeviceEvent, HealthSample, LogRecord, Recovery, Symptom
    from cdigen.model.inventory import Inventory
    from cdigen.model.stats import DeviceStats
    from cdigen.vendors.base import DiscoveryContext

    class VendorHealth(Protocol):
        """The health functions of one vendor. They raise no exception, whatever the state of the host is."""

        CAUSES: tuple[CauseRule, ...]

        def check(self, context: DiscoveryContext, inventory: Inventory) -> HealthSample:
            """Return the health according to the kernel's files.

            The daemon calls this function in every cycle. The function is fast, and does not resume suspended
            devices.
            """

        def parse_log(self, record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
            """Return the symptoms and recoveries in RECORD of the kernel log; do not read the host.

            RECORD may be about another device, such as a PCIe port. The function then uses INVENTORY to find
            the accelerators that the fault of that device affects. The result may contain devices that are
            not in INVENTORY yet.
            """

        def parse_uevents(self, event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
            """Return the symptoms and recoveries that the uevent EVENT reports; do not read the host.

            The result may contain devices that are not in INVENTORY yet. The kernel does not repeat events
            when the daemon starts, and events can be lost. Therefore, if only an event reports a cause, the
            daemon must be able to clear the cause without another event.
            """

        def probe(self, context: DiscoveryContext, inventory: Inventory) -> HealthSample:
            """Return the health according to queries of the devices or of the vendor's library.

            The function is slow. Child processes with deadlines make the queries. The function does not query
            suspended devices. The daemon calls the function rarely, and after suspicious events, in a
            separate thread.
            """

        def load(self, context: DiscoveryContext) -> str:
            """Return a text that changes each time the driver is loaded, or "" if no driver is loaded."""

        def stats(self, context: DiscoveryContext, inventory: Inventory) -> tuple[DeviceStats, ...]:
            """Return the statistics of the devices.

            cdigen calls this function on demand. The function is slow if it must query a library.
            """
