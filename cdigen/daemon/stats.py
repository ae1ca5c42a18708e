"""``StatsReader``: reads the stats of devices from the vendors, only on demand.

Each vendor is read in a separate thread, because its library or the kernel may hang (``service.polling``).
"""

from __future__ import annotations

import time
from functools import partial

from cdigen.model.errors import ConfigError
from cdigen.service.polling import BackgroundPoller
from cdigen.value import frozen
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.model.inventory import Inventory
    from cdigen.model.stats import DeviceStats
    from cdigen.vendors.base import ReadStats
    from cdigen.vendors.context import DiscoveryContext

# Maximum number of callers that wait at the same time. Further callers get the present results immediately.
MAX_WAITING = 2
PENDING = "no response yet"


@frozen
class VendorStats:
    """The stats of a vendor's devices, or the ``problem``; ``at_s`` is the time of the read (time.time)."""

    vendor: str
    devices: tuple[DeviceStats, ...] = ()
    problem: str = ""
    at_s: float | None = None


class StatsReader:
    """Reads the stats of the host's vendors.

    CONTEXT returns the context of a read, and may raise ConfigError. STATS_OF returns the function that reads
    the stats of a vendor, or None. Results have no entry for a vendor without this function.
    """

    def __init__(
        self,
        context: Callable[[], DiscoveryContext],
        *,
        stats_of: Callable[[str], ReadStats | None] = registry.stats,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._stats_of = stats_of
        # Each start of NVML can resume suspended GPUs. These GPUs then run for seconds.
        self._poller = BackgroundPoller("stats", max_waiting=MAX_WAITING, clock=clock)
        self._inventories: Mapping[str, Inventory] = {}

    def update(self, inventories: Mapping[str, Inventory]) -> None:
        """Read the stats of the devices in INVENTORIES from now on."""
        self._inventories = inventories

    def read(self, wait_s: float, *, stale_s: float = 0.0) -> tuple[VendorStats, ...]:
        """Return the stats of each vendor after at most WAIT_S seconds.

        Fresh stats are not read again. If the read of a vendor does not end within WAIT_S, the vendor's
        previous stats are returned. If there are no previous stats, or if they are older than STALE_S
        seconds, the result has a problem.
        """
        queries = {
            vendor: partial(self._query, vendor, inventory, read_stats)
            for vendor, inventory in self._inventories.items()
            if inventory.accelerators and (read_stats := self._stats_of(vendor)) is not None
        }
        self._poller.start(queries)
        found = self._poller.wait(wait_s, stale_s=stale_s)
        results = ((vendor, found.get(vendor)) for vendor in queries)
        return tuple(
            one if isinstance(one, VendorStats) else VendorStats(vendor=vendor, problem=PENDING)
            for vendor, one in results
        )

    def close(self) -> None:
        """End all present and later waits."""
        self._poller.close()

    def _query(self, vendor: str, inventory: Inventory, read_stats: ReadStats) -> VendorStats:
        try:
            devices = read_stats(self._context(), inventory)
            return VendorStats(vendor=vendor, devices=devices, at_s=time.time())
        except ConfigError as error:  # the driver container is gone
            return VendorStats(vendor=vendor, problem=error.message)
        except Exception as error:  # noqa: BLE001 - a defect in one vendor's code affects no other vendor
            return VendorStats(vendor=vendor, problem=registry.vendor_defect(vendor, error).message)
