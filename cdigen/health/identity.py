"""Which device is which: ``address_of``, and whether another one has taken a device's place. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from cdigen.model.inventory import Accelerator

    class Known(Protocol):
        """What a device was when it was seen; None and an empty text are unknown."""

        @property
        def uuid(self) -> str | None:
            """Its UUID."""

        @property
        def device_id(self) -> str:
            """Its PCI device id."""


def address_of(accelerator: Accelerator) -> str:
    """Return what symptoms and marks call ACCELERATOR: its address, or what a device without one has."""
    return accelerator.address or accelerator.uuid or f"{accelerator.device_class}-{accelerator.index}"


def is_another(known: Known, found: Known) -> bool:
    """Return whether the device FOUND, at the address of the device KNOWN, is another one.

    What is not known tells nothing.
    """
    if known.uuid is not None and found.uuid is not None:
        return known.uuid != found.uuid
    ids = {known.device_id, found.device_id} - {""}
    return len(ids) > 1
