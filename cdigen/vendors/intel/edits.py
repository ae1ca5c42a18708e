"""Turn Intel's inventory into drafts: kinds for GPUs, their firmware's nodes, NPUs and Gaudis.

Pure: the same inventory and profiles give the same drafts on any machine.

Names: by number; by PCI address and type as Intel's tools have it, the address with hyphens and PCI's number
of the device, 0000-03-00-0-0x56c0 (intel-resource-drivers-for-kubernetes, pkg/helpers, DeviceUIDFromPCIinfo);
by the kernel's node, card0 or accel0, as its generator's "classic" naming and the device plugins have it. No
two namings can give the same name: one is a number, one holds ``-0x``, and one begins with a letter.
"""

from __future__ import annotations

from cdigen.model.cdi import ContainerEdits, Device, Draft
from cdigen.vendors.classes import by_class
from cdigen.vendors.intel.presence import CDI_VENDOR, MEI_ROLE, NAMINGS, VFIO_ROLE
from cdigen.vendors.kernel.nodes import node_edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.inventory import Accelerator, HostNode, Inventory
    from cdigen.model.profile import Profile

ALL = "all"


def drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return one draft per profile, of the GPUs, and one per other class; one may have no devices."""
    return tuple(
        _draft([each for each in accelerators if each.usable], profile, device_class)
        for device_class, profile, accelerators in by_class(inventory.accelerators, profiles)
    )


def _draft(accelerators: Iterable[Accelerator], profile: Profile, device_class: str) -> Draft:
    """Return the draft of ACCELERATORS; a name is given once, to the first that has it."""
    devices: dict[str, Device] = {}
    together: dict[HostNode, None] = {}
    has_machines = False
    for accelerator in accelerators:
        for name, nodes in names_of(accelerator, profile.names or NAMINGS):
            edits = node_edits(nodes, profile)
            # A device without any edit would make the whole document invalid.
            if edits.device_nodes:
                devices.setdefault(name, Device(name=name, edits=edits))
        if is_for_machines(accelerator):
            has_machines = True
        elif node_edits(accelerator.nodes, profile).device_nodes:
            together.update(dict.fromkeys(accelerator.nodes))
    if has_machines and together:
        devices[ALL] = Device(name=ALL, edits=node_edits(together, profile))
    return Draft(
        kind=f"{CDI_VENDOR}/{device_class}",
        devices=tuple(devices.values()),
        edits=ContainerEdits(),
        profile=profile,
        has_all=bool(together),
    )


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
