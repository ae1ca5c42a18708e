"""Create the drafts of specs from Intel's inventory, with kinds for GPUs, firmware nodes, NPUs and Gaudis.

The result depends only on the inventory and the profiles. A device has the following names:

- the index
- the PCI address with hyphens and the PCI device number, such as 0000-03-00-0-0x56c0, as in Intel's tools
  (intel-resource-drivers-for-kubernetes, pkg/helpers, DeviceUIDFromPCIinfo)
- the kernel's name of the node, such as card0 or accel0, as in Intel's device plugins and in the "classic"
  naming of Intel's generator

Names of different namings are never equal. An index is a number, a PCI name contains ``-0x``, and the name of
a node begins with a letter.
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
    """Return a draft with the GPUs for each profile, and a draft for each other device class.

    A draft may have no devices.
    """
    return tuple(
        _draft([each for each in accelerators if each.usable], profile, device_class)
        for device_class, profile, accelerators in by_class(inventory.accelerators, profiles)
    )


def _draft(accelerators: Iterable[Accelerator], profile: Profile, device_class: str) -> Draft:
    """Return the draft with ACCELERATORS. If several have the same name, only the first gets the name."""
    devices: dict[str, Device] = {}
    together: dict[HostNode, None] = {}
    has_machines = False
    for accelerator in accelerators:
        for name, nodes in names_of(accelerator, profile.names or NAMINGS):
            edits = node_edits(nodes, profile)
            # A device without edits is left out, because the whole spec would be invalid.
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


# The roles of the nodes whose names are also names of the device.
_NAMING_ROLES = ("card", "accel")


def is_for_machines(accelerator: Accelerator) -> bool:
    """Return whether ACCELERATOR is bound to a VFIO driver, so that it is for virtual machines."""
    return any(node.role == VFIO_ROLE for node in accelerator.nodes)


def names_of(
    accelerator: Accelerator, namings: tuple[str, ...]
) -> tuple[tuple[str, tuple[HostNode, ...]], ...]:
    """Return the names of ACCELERATOR, each with its nodes.

    The result omits a name if the value of its naming is not known. A device for virtual machines has no
    index as a name, so that it does not change the indices of other devices. In the class of firmware nodes,
    the index of a GPU means all firmware nodes of the GPU. The name of a firmware node (``mei1``) means only
    this node, as in Intel's generator.
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
