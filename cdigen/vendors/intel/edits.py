"""Turn an inventory of Intel's into drafts: a kind for GPUs, one for NPUs, one for Gaudis.

Pure: the same inventory and profiles give the same drafts on any machine.
"""

from __future__ import annotations

from cdigen.model.cdi import ContainerEdits, Device, Draft
from cdigen.vendors.intel.naming import is_for_machines, names_of
from cdigen.vendors.intel.tables import CDI_VENDOR, GPU, NAMINGS
from cdigen.vendors.nodes import device_nodes, gids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.inventory import Accelerator, HostNode, Inventory
    from cdigen.model.profile import Profile

ALL = "all"


def drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return one draft per profile, of the GPUs, and one per other class that has a device.

    A profile of such a class is that class's own (its names), and no GPU's. Profiles whose GPUs are all
    unusable, or of which there are none, have drafts without devices.
    """
    usable = [each for each in inventory.accelerators if each.usable]
    classes = dict.fromkeys(each.device_class for each in inventory.accelerators if each.device_class != GPU)
    by_class = {profile.device_class: profile for profile in profiles}
    gpus = [each for each in usable if each.device_class == GPU]
    made = [
        _draft(gpus, profile, profile.device_class)
        for profile in profiles
        if profile.device_class not in classes
    ]
    for device_class in classes:
        # The first of the profiles says how others than GPUs are delivered; what it picks of a GPU's nodes is
        # not for them.
        profile = by_class.get(device_class, profiles[0])
        own = [each for each in usable if each.device_class == device_class]
        draft = _draft(own, profile, device_class)
        if draft.devices:
            made.append(draft)
    return tuple(made)


def _draft(accelerators: Iterable[Accelerator], profile: Profile, device_class: str) -> Draft:
    """Return the draft of ACCELERATORS; a name that another has already is not given twice."""
    devices: dict[str, Device] = {}
    together: dict[HostNode, None] = {}
    has_machines = False
    for accelerator in accelerators:
        edits = _edits(accelerator.nodes, profile)
        # A device without any edit would make the whole document invalid.
        if not edits.device_nodes:
            continue
        for name in names_of(accelerator, profile.names or NAMINGS):
            devices.setdefault(name, Device(name=name, edits=edits))
        if is_for_machines(accelerator):
            has_machines = True
        else:
            together.update(dict.fromkeys(accelerator.nodes))
    if has_machines and together:
        devices[ALL] = Device(name=ALL, edits=_edits(together, profile))
    return Draft(
        kind=f"{CDI_VENDOR}/{device_class}",
        devices=tuple(devices.values()),
        edits=ContainerEdits(),
        profile=profile,
        has_all=bool(together),
    )


def _edits(nodes: Iterable[HostNode], profile: Profile) -> ContainerEdits:
    wanted = device_nodes(nodes, profile)
    return ContainerEdits(device_nodes=wanted, additional_gids=gids(wanted))
