"""Turn an inventory of Intel's into drafts: kinds for GPUs, their firmware's nodes, NPUs and Gaudis.

Pure: the same inventory and profiles give the same drafts on any machine.
"""

from __future__ import annotations

from cdigen.model.cdi import ContainerEdits, Device, Draft
from cdigen.vendors.classes import by_class
from cdigen.vendors.intel.naming import is_for_machines, names_of
from cdigen.vendors.intel.tables import CDI_VENDOR, NAMINGS
from cdigen.vendors.kernel.nodes import device_nodes, gids

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
    """Return the draft of ACCELERATORS; a name that another has already is not given twice."""
    devices: dict[str, Device] = {}
    together: dict[HostNode, None] = {}
    has_machines = False
    for accelerator in accelerators:
        for name, nodes in names_of(accelerator, profile.names or NAMINGS):
            edits = _edits(nodes, profile)
            # A device without any edit would make the whole document invalid.
            if edits.device_nodes:
                devices.setdefault(name, Device(name=name, edits=edits))
        if is_for_machines(accelerator):
            has_machines = True
        elif _edits(accelerator.nodes, profile).device_nodes:
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
