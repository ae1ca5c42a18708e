"""Turn an inventory's groups into drafts: one kind for each device family.

Pure, as ``edits`` is for the GPUs.
"""

from __future__ import annotations

from cdigen.model.cdi import ContainerEdits, Device, Draft
from cdigen.value import replace
from cdigen.vendors.kernel.nodes import device_nodes, gids
from cdigen.vendors.nvidia.edits import CDI_VENDOR, ENV, payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Driver, Group, GroupDevice, Inventory
    from cdigen.model.profile import Profile


def group_drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return one draft per group that has a device with nodes; a device without any would be invalid.

    Its files get into containers as the profile of its class has it, or else as the first of PROFILES.
    """
    by_class = {profile.device_class: profile for profile in profiles}
    drafts = (
        _draft(group, inventory.driver, by_class.get(group.device_class, profiles[0]))
        for group in inventory.groups
    )
    return tuple(draft for draft in drafts if draft.devices)


def _draft(group: Group, driver: Driver, profile: Profile) -> Draft:
    return Draft(
        kind=f"{CDI_VENDOR}/{group.device_class}",
        devices=tuple(_device(device) for device in group.devices if device.nodes),
        edits=ContainerEdits(env=ENV),
        payload=payload(driver, group.files),
        profile=profile,
    )


def _device(device: GroupDevice) -> Device:
    nodes = device_nodes(device.nodes)
    return Device(name=device.name, edits=ContainerEdits(device_nodes=nodes, additional_gids=gids(nodes)))


def with_profiles(inventory: Inventory, profiles: tuple[Profile, ...]) -> Inventory:
    """Return INVENTORY with its GPUs once for each profile; such hosts name them in one way only."""
    groups = (
        replace(
            group,
            device_class=profile.device_class,
            files=tuple(file for file in group.files if profile.takes(file)),
        )
        for group in inventory.groups
        for profile in profiles
    )
    return replace(inventory, groups=tuple(groups))
