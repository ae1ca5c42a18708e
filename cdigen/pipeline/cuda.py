"""The CUDA version that a driver supports.

Only the driver reports this version. ``CudaVersions`` stores the version, so that cdigen
queries each driver once.
"""

from __future__ import annotations

import time

from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext

VENDOR = "nvidia"
# The time until the next query if the driver did not respond. The library of the driver may hang, and the
# cycle waits for the library.
RETRY_S = 600.0


class CudaVersions:
    """Adds the CUDA version of the driver to inventories, and stores the version of the last driver."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._driver = ""
        self._version: str | None = None
        self._retry_s = 0.0

    def known(self, inventories: Mapping[str, Inventory]) -> dict[str, Inventory]:
        """Return INVENTORIES with the stored CUDA version, without a query."""
        inventory = inventories.get(VENDOR)
        if inventory is None or inventory.driver.version != self._driver:
            return dict(inventories)
        return with_cuda(inventories, self._version)

    def refreshed(
        self, inventories: Mapping[str, Inventory], where: Callable[[], DiscoveryContext]
    ) -> dict[str, Inventory]:
        """Return INVENTORIES with the CUDA version of the driver. Run a query if a query is due.

        The argument WHERE returns the context of the host. A query waits for the driver's library, up to a
        deadline.
        """
        inventory = inventories.get(VENDOR)
        if inventory is None:
            return dict(inventories)
        is_new = inventory.driver.version != self._driver
        if is_new or (self._version is None and self._clock() >= self._retry_s):
            from cdigen.vendors.nvidia import cuda  # noqa: PLC0415 - few cycles have a query

            self._version = cuda.read_cuda(where(), inventory)
            self._driver = inventory.driver.version
            self._retry_s = self._clock() + RETRY_S
        return self.known(inventories)


def with_cuda(inventories: Mapping[str, Inventory], version: str | None) -> dict[str, Inventory]:
    """Return INVENTORIES with VERSION as the CUDA version of NVIDIA's driver. Pure."""
    found = dict(inventories)
    inventory = found[VENDOR]
    found[VENDOR] = replace(inventory, driver=replace(inventory.driver, cuda=version))
    return found
