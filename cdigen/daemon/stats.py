"""``StatsReader``: reads the stats of devices from the vendors, only on demand.

Each vendor is read in a separate thread, because its library or the kernel may hang. A hanging thread does
not delay the other vendors, and no second thread starts for its vendor. All callers share the result of a
read for FRESH_S seconds.
"""

from __future__ import annotations

import threading
import time

from cdigen.model.errors import ConfigError
from cdigen.value import frozen
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.model.inventory import Inventory
    from cdigen.model.stats import DeviceStats
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.health import VendorHealth

# Seconds during which a result is used. Each start of NVML can resume suspended GPUs. These GPUs then run for
# seconds.
FRESH_S = 5.0
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

    CONTEXT returns the context of a read, and may raise ConfigError. HEALTH returns the code that reads the
    stats of a vendor, or None. Results have no entry for a vendor without this code.
    """

    def __init__(
        self,
        context: Callable[[], DiscoveryContext],
        *,
        health: Callable[[str], VendorHealth | None] = registry.health,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._health = health
        self._clock = clock
        # Guards the following attributes. It is notified when the read of a vendor ends, and by ``close``.
        self._changed = threading.Condition()
        self._inventories: Mapping[str, Inventory] = {}
        self._reads: dict[str, _Read] = {}
        self._waiting = 0
        self._is_closed = False

    def update(self, inventories: Mapping[str, Inventory]) -> None:
        """Read the stats of the devices in INVENTORIES from now on."""
        with self._changed:
            self._inventories = inventories

    def read(self, wait_s: float, *, stale_s: float = 0.0) -> tuple[VendorStats, ...]:
        """Return the stats of each vendor after at most WAIT_S seconds.

        Stats younger than FRESH_S are not read again. If the read of a vendor does not end within WAIT_S, the
        vendor's previous stats are returned. If there are no previous stats, or if they are older than
        STALE_S seconds, the result has a problem.
        """
        with self._changed:
            reads = [
                self._current_read(vendor, inventory)
                for vendor, inventory in self._inventories.items()
                if inventory.accelerators and self._health(vendor) is not None
            ]
            self._wait(reads, wait_s)
            now = self._clock()
            return tuple(read.result_or_last(now, stale_s) for read in reads)

    def close(self) -> None:
        """End all present and later waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _wait(self, reads: list[_Read], wait_s: float) -> None:
        if self._waiting >= MAX_WAITING:
            return
        self._waiting += 1
        try:
            self._changed.wait_for(lambda: self._is_closed or all(read.result for read in reads), wait_s)
        finally:
            self._waiting -= 1

    def _current_read(self, vendor: str, inventory: Inventory) -> _Read:
        """Return the running or fresh read of VENDOR, or start a new read."""
        last = self._reads.get(vendor)
        if last is not None and (last.result is None or self._clock() - last.ended_s < FRESH_S):
            return last
        read = self._reads[vendor] = _Read(vendor, last)
        thread = threading.Thread(
            target=self._run, args=(read, inventory), name=f"stats-{vendor}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._end(read, VendorStats(vendor=vendor, problem=f"{error}"))
        return read

    def _run(self, read: _Read, inventory: Inventory) -> None:
        vendor = read.vendor
        health = self._health(vendor)
        try:
            devices = health.stats(self._context(), inventory) if health is not None else ()
            result = VendorStats(vendor=vendor, devices=devices, at_s=time.time())
        except ConfigError as error:  # the driver container is gone
            result = VendorStats(vendor=vendor, problem=error.message)
        except Exception as error:  # noqa: BLE001 - a defect in one vendor's code affects no other vendor
            result = VendorStats(vendor=vendor, problem=f"cdigen's code failed: {error!r}")
        with self._changed:
            self._end(read, result)

    def _end(self, read: _Read, result: VendorStats) -> None:
        read.result, read.ended_s = result, self._clock()
        read.last = None
        self._changed.notify_all()


class _Read:
    """A read of a vendor. During the read, ``result`` is None and ``last`` is the previous read."""

    def __init__(self, vendor: str, last: _Read | None) -> None:
        self.vendor = vendor
        self.last = last
        self.result: VendorStats | None = None
        self.ended_s = 0.0

    def result_or_last(self, now: float, stale_s: float) -> VendorStats:
        """Return the result. During the read, return the previous result if it is recent, else a problem."""
        last = self.last
        if self.result is not None:
            return self.result
        if last is not None and last.result is not None and now - last.ended_s <= stale_s:
            return last.result
        return VendorStats(vendor=self.vendor, problem=PENDING)
