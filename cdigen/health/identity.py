"""The identity of devices: ``address_of``, and ``is_another`` for a replaced device. Pure functions."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from cdigen.model.inventory import Accelerator

    class Known(Protocol):
        """The identity of a device. None and "" mean unknown."""

        @property
        def uuid(self) -> str | None:
            """The UUID of the device."""

        @property
        def device_id(self) -> str:
            """The PCI device id of the device."""


def address_of(accelerator: Accelerator) -> str:
    """Return the key of ACCELERATOR in symptoms and marks: address, else UUID, else class and index."""
    return accelerator.address or accelerator.uuid or f"{accelerator.device_class}-{accelerator.index}"


def is_another(known: Known, found: Known) -> bool:
    """Return whether the device FOUND at the address of the device KNOWN is a different device.

    An unknown UUID or id does not prove a difference.
    """
    if known.uuid is not None and found.uuid is not None:
        return known.uuid != found.uuid
    ids = {known.device_id, found.device_id} - {""}
    return len(ids) > 1
