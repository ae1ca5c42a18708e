"""``VendorCode`` calls the health code of vendors; a defect in one vendor's code affects no other vendor."""

from __future__ import annotations

import threading

from cdigen.model.errors import described
from cdigen.model.findings import Finding
from cdigen.model.health import HealthSample
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    from cdigen.model.health import Recovery, Source, Symptom
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.health import VendorHealth

    T = TypeVar("T")

DEFECT = "health-defect"


class VendorCode:
    """Calls the ``VendorHealth`` that HEALTH_OF returns for a vendor, and keeps a finding for each defect.

    The code of a vendor that is not in ``selected`` does not run.
    """

    def __init__(self, health_of: Callable[[str], VendorHealth | None]) -> None:
        self.selected: frozenset[str] = frozenset()
        self._health_of = health_of
        self._lock = threading.Lock()
        self._problems: dict[str, Finding] = {}

    def health_of(self, vendor: str) -> VendorHealth | None:
        """Return the ``VendorHealth`` of VENDOR, or None if VENDOR is not selected or has none."""
        return self._health_of(vendor) if vendor in self.selected else None

    def known(self, vendors: Iterable[str]) -> tuple[tuple[str, VendorHealth], ...]:
        """Return pairs of a vendor of VENDORS and its ``VendorHealth``, if it has one."""
        pairs = ((vendor, self.health_of(vendor)) for vendor in tuple(vendors))
        return tuple((vendor, health) for vendor, health in pairs if health is not None)

    def findings(self) -> tuple[Finding, ...]:
        """Return the present defects."""
        with self._lock:
            return tuple(self._problems.values())

    def note(self, vendor: str, source: str, text: str) -> None:
        """Set the finding TEXT for SOURCE, a part of VENDOR's code; remove the finding if TEXT is empty."""
        with self._lock:
            self._problems.pop(f"{source}-{vendor}", None)
            if text:
                self._problems[f"{source}-{vendor}"] = Finding(
                    severity="warning",
                    rule=DEFECT,
                    path=vendor,
                    message=" ".join(f"{registry.origin(vendor)}: {text}".split())[:300],
                    hint="run 'cdigen health', which shows the last known health of the devices",
                )

    def sample(
        self,
        source: Source,
        read: Callable[[DiscoveryContext, Inventory], HealthSample],
        here: DiscoveryContext,
        inventory: Inventory,
    ) -> HealthSample:
        """Return the sample of READ, or a failed sample of SOURCE if vendor code raises."""
        try:
            return read(here, inventory)
        except Exception as error:  # noqa: BLE001 - see the module docstring
            return HealthSample(source=source, unread=described(error))

    def parsed(
        self,
        vendor: str,
        parse: Callable[[T, Inventory], tuple[Symptom | Recovery, ...]],
        received: T,
        inventory: Inventory,
    ) -> tuple[Symptom | Recovery, ...]:
        """Return the reports that PARSE finds in RECEIVED, or nothing if vendor code raises."""
        try:
            return parse(received, inventory)
        except Exception as error:  # noqa: BLE001 - likewise
            self.note(vendor, "parse", f"health code failed: {described(error)}")
            return ()
