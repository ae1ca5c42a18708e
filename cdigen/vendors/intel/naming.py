"""The names of devices: by number, by PCI address and type as Intel's tools have it, by the kernel's node.

Form of the second: the address with hyphens and PCI's number of the device, 0000-03-00-0-0x56c0
(intel-resource-drivers-for-kubernetes, pkg/helpers, DeviceUIDFromPCIinfo); of the third, card0 or accel0,
as its generator's "classic" naming and the device plugins have it. No two can be the same: a number, one
that holds ``-0x``, and one that begins with a letter.
"""

from __future__ import annotations

from cdigen.vendors.intel.tables import VFIO_ROLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator

# Roles of the nodes after which a device is named.
_NAMING_ROLES = ("card", "accel")


def is_for_machines(accelerator: Accelerator) -> bool:
    """Return whether a device is for virtual machines: a driver of VFIO has it."""
    return any(node.role == VFIO_ROLE for node in accelerator.nodes)


def names_of(accelerator: Accelerator, namings: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a device; what it does not have (a card) gives none.

    One for virtual machines has no number: that of no other shall depend on it.
    """
    node = next((node.path for node in accelerator.nodes if node.role in _NAMING_ROLES), "")
    address = accelerator.address.replace(":", "-").replace(".", "-")
    names = {
        "index": "" if is_for_machines(accelerator) else str(accelerator.index),
        "pci": f"{address}-{accelerator.device_id}" if address and accelerator.device_id else "",
        "card": node.rpartition("/")[2],
    }
    return tuple(name for naming in namings if (name := names.get(naming)))
