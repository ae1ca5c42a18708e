"""Turn an inventory's groups into drafts: one kind for each device family.

Pure, as ``edits`` is for the GPUs.
"""

from __future__ import annotations

from cdigen.model.cdi import ContainerEdits, Device, Draft
from cdigen.vendors.nvidia.edits import CDI_VENDOR, ENV, device_nodes, gids, mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Group, GroupDevice, Inventory


def group_drafts(inventory: Inventory) -> tuple[Draft, ...]:
    """Return one draft per group that has a device with nodes; a device without any would be invalid."""
    drafts = (_draft(group, inventory.driver.architecture) for group in inventory.groups)
    return tuple(draft for draft in drafts if draft.devices)


def _draft(group: Group, architecture: str) -> Draft:
    return Draft(
        kind=f"{CDI_VENDOR}/{group.device_class}",
        devices=tuple(_device(device) for device in group.devices if device.nodes),
        edits=ContainerEdits(env=ENV, mounts=tuple(mounts(group.files, architecture))),
    )


def _device(device: GroupDevice) -> Device:
    nodes = device_nodes(device.nodes)
    return Device(name=device.name, edits=ContainerEdits(device_nodes=nodes, additional_gids=gids(nodes)))
