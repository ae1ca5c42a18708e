"""The CUDA that a driver serves, which it alone tells: asked once for each driver (``CudaVersions``)."""

from __future__ import annotations

import time

from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext

VENDOR = "nvidia"
# A driver that does not tell is asked again after so long, since its library may hang: the next cycle waits.
RETRY_S = 600.0


class CudaVersions:
    """Adds the CUDA of drivers to inventories, and remembers what was told of the last one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._driver = ""
        self._told: str | None = None
        self._again_s = 0.0

    def known(self, inventories: Mapping[str, Inventory]) -> dict[str, Inventory]:
        """Return INVENTORIES with what is remembered; nothing is asked."""
        inventory = inventories.get(VENDOR)
        if inventory is None or inventory.driver.version != self._driver:
            return dict(inventories)
        return with_cuda(inventories, self._told)

    def refreshed(
        self, inventories: Mapping[str, Inventory], where: Callable[[], DiscoveryContext]
    ) -> dict[str, Inventory]:
        """Return INVENTORIES with the CUDA of their driver, after asking where that is due.

        WHERE gives the context of the host. It takes as long as the driver's library, within a deadline.
        """
        inventory = inventories.get(VENDOR)
        if inventory is None:
            return dict(inventories)
        is_new = inventory.driver.version != self._driver
        if is_new or (self._told is None and self._clock() >= self._again_s):
            from cdigen.vendors.nvidia import cuda  # noqa: PLC0415 - few cycles ask

            self._told = cuda.ask(where(), inventory)
            self._driver = inventory.driver.version
            self._again_s = self._clock() + RETRY_S
        return self.known(inventories)


def with_cuda(inventories: Mapping[str, Inventory], version: str | None) -> dict[str, Inventory]:
    """Return INVENTORIES with VERSION as the CUDA of NVIDIA's driver. Pure."""
    found = dict(inventories)
    inventory = found[VENDOR]
    found[VENDOR] = replace(inventory, driver=replace(inventory.driver, cuda=version))
    return found
