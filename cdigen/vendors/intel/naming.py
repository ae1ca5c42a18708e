"""The names of devices: by number, by PCI address and type as Intel's tools have it, by the kernel's node.

Form of the second: the address with hyphens and PCI's number of the device, 0000-03-00-0-0x56c0
(intel-resource-drivers-for-kubernetes, pkg/helpers, DeviceUIDFromPCIinfo); of the third, card0 or accel0,
as its generator's "classic" naming and the device plugins have it. No two of a kind can be the same: one is a
number, one holds ``-0x``, and one begins with a letter.
"""

from __future__ import annotations

from cdigen.vendors.intel.tables import MEI_ROLE, VFIO_ROLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator, HostNode

# Roles of the nodes after which a device is named.
_NAMING_ROLES = ("card", "accel")


def is_for_machines(accelerator: Accelerator) -> bool:
    """Return whether a device is for virtual machines: a driver of VFIO has it."""
    return any(node.role == VFIO_ROLE for node in accelerator.nodes)


def names_of(
    accelerator: Accelerator, namings: tuple[str, ...]
) -> tuple[tuple[str, tuple[HostNode, ...]], ...]:
    """Return the names of a device, each with the nodes that it gives; what it does not have gives none.

    One for virtual machines has no number: that of no other shall depend on it. The nodes of a GPU's
    firmware are named together by the GPU, and each by itself (``mei1``), as Intel's generator has it.
    """
    nodes = accelerator.nodes
    address = accelerator.address.replace(":", "-").replace(".", "-")
    named = next((node for node in nodes if node.role in _NAMING_ROLES), None)
    own = [(_base(named), nodes)] if named else [(_base(n), (n,)) for n in nodes if n.role == MEI_ROLE]
    names = {
        "index": [("" if is_for_machines(accelerator) else str(accelerator.index), nodes)],
        "pci": [(f"{address}-{accelerator.device_id}" if address and accelerator.device_id else "", nodes)],
        "card": own,
    }
    return tuple(pair for naming in namings for pair in names.get(naming, ()) if pair[0])


def _base(node: HostNode) -> str:
    return node.path.rpartition("/")[2]
