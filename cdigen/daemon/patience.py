"""``Patience``: how long to wait for a host between two states; all that the daemon remembers of the host."""

from __future__ import annotations

from cdigen.daemon.packages import PACKAGE_MANAGERS, package_manager
from cdigen.daemon.states import assess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.daemon.observation import Observation
    from cdigen.daemon.states import VendorStatus
    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory

# A driver's kernel module is built while its package is installed, which takes minutes.
PACKAGE_INSTALLATION_S = 900.0


class Patience:
    """Remembers of each vendor what is expected to change, and since when, by CLOCK."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # vendor -> what is expected to change, and since when
        self._since: dict[str, tuple[object, float]] = {}
        # vendor -> what was found at first, or when it was last not between two states; None: nothing
        self._settled: dict[str, Inventory | None] = {}

    def assess(
        self, observed: Observation, host: Root, vendor: str, *, settle_timeout_s: float
    ) -> VendorStatus:
        """Return the status of VENDOR as OBSERVED, for which SETTLE_TIMEOUT_S may be waited."""
        inventory, failure = observed.inventories.get(vendor), observed.failures.get(vendor)
        manager = package_manager(host)
        if manager and failure is not None:
            # What an installation has half done is not a mismatch, and no reason to withdraw what is whole.
            settle_timeout_s = max(settle_timeout_s, PACKAGE_INSTALLATION_S)
        busy = ""
        if manager and inventory is not None:
            busy = manager if inventory != self._settled.get(vendor, inventory) else ""

        def is_patient(transient: str) -> bool:
            what, since = self._since.get(vendor, (None, 0.0))
            return what != _expected(transient, inventory) or self._clock() - since < settle_timeout_s

        findings = inventory.findings if inventory is not None else ()
        return assess(failure, findings, patient=is_patient, busy=busy)

    def remember(self, statuses: dict[str, VendorStatus], inventories: dict[str, Inventory]) -> None:
        """Note the STATUSES and INVENTORIES of a cycle by their vendors."""
        for vendor, status in statuses.items():
            inventory = inventories.get(vendor)
            if not status.awaits_change or vendor not in self._settled:
                self._settled[vendor] = inventory
            expected = _expected(status.transient, inventory)
            if not status.transient:
                self._since.pop(vendor, None)
            elif self._since.get(vendor, (None, 0.0))[0] != expected:
                self._since[vendor] = (expected, self._clock())


def _expected(transient: str, inventory: Inventory | None) -> object:
    """Return what is waited for: of a package manager, its end, or that the INVENTORY changes no more."""
    return (transient, inventory if transient in PACKAGE_MANAGERS else None)
