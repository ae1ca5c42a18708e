"""The CUDA version that a driver supports.

Only the driver reports this version. ``CudaVersions`` stores the versions, so that cdigen queries each driver
once.
"""

from __future__ import annotations

import time

from cdigen.value import replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext

# The time until the next query if the driver did not respond. The library of the driver may hang, and the
# cycle waits for the library.
RETRY_S = 600.0


class CudaVersions:
    """Adds the CUDA versions of drivers to inventories, and stores the version of each last driver."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Vendor -> the last driver, its version or None, and the time of the next query without a version.
        self._reported: dict[str, tuple[str, str | None, float]] = {}

    def known(self, inventories: Mapping[str, Inventory]) -> dict[str, Inventory]:
        """Return INVENTORIES with the stored CUDA versions, without a query."""
        found = dict(inventories)
        for vendor, (driver, version, _) in self._reported.items():
            if vendor in found and found[vendor].driver.version == driver:
                found[vendor] = replace(found[vendor], driver=replace(found[vendor].driver, cuda=version))
        return found

    def store(self, inventories: Iterable[Inventory]) -> None:
        """Store the CUDA versions in INVENTORIES."""
        for inventory in inventories:
            if inventory.driver.cuda:
                self._reported[inventory.vendor] = (inventory.driver.version, inventory.driver.cuda, 0.0)

    def refreshed(
        self, inventories: Mapping[str, Inventory], where: Callable[[], DiscoveryContext]
    ) -> tuple[dict[str, Inventory], tuple[Finding, ...]]:
        """Return INVENTORIES with the CUDA versions, after the queries that are due, and failures of vendors.

        The argument WHERE returns the context of the host. A query waits for the driver's library, up to a
        deadline.
        """
        findings: list[Finding] = []
        for vendor, inventory in inventories.items():
            api, now = registry.driver_api(vendor), inventory.driver.version
            driver, version, retry_s = self._reported.get(vendor, (None, None, 0.0))
            is_known = driver == now and (version is not None or self._clock() < retry_s)
            if api is None or is_known:
                continue
            context, version = where(), None
            with registry.reporting(vendor, findings):
                version = api.read(context, inventory)
            self._reported[vendor] = (now, version, self._clock() + RETRY_S)
        return self.known(inventories), tuple(findings)


def cuda_of(inventories: Mapping[str, Inventory]) -> str:
    """Return the newest CUDA version that a driver of INVENTORIES supports, or "" if it is unknown.

    The version is that of the first vendor with a version. A vendor whose code fails has none.
    """
    for vendor, inventory in inventories.items():
        api = registry.driver_api(vendor)
        with registry.reporting(vendor, []):  # ``refreshed`` reports the vendor's failures
            if api is not None and (version := api.version(inventory)):
                return version
    return ""
