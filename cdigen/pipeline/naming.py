"""Naming: the drafts of a vendor's inventory, with devices named as the profiles say, if possible.

A profile applies to every vendor, but a vendor may lack its namings: devices that would have no name keep the
vendor's own. A vendor may also lack devices of a profile's class: a profile for NPUs never contains GPUs.
"""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding
from cdigen.model.profile import NAMINGS
from cdigen.value import replace
from cdigen.vendors import registry
from cdigen.vendors.classes import OTHERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cdigen.model.cdi import Draft
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile


def named_drafts(
    name: str, inventory: Inventory, profiles: tuple[Profile, ...]
) -> tuple[tuple[Draft, ...], dict[str, tuple[Finding, ...]]]:
    """Return the drafts of the vendor NAME that have devices, and by kind the findings on replaced names."""
    vendor = registry.load(name)
    edits = vendor.edits
    wanted = _with_devices(edits(inventory, profiles), inventory)
    if not any(profile.names for profile in profiles):
        return wanted, {}
    kinds = {draft.kind for draft in wanted}
    usual = _with_devices(edits(inventory, _with_names(profiles, ())), inventory)
    nameless = tuple(draft for draft in usual if draft.kind not in kinds)
    if not nameless:
        return wanted, {}
    available: dict[str, list[str]] = {}
    for naming in dict.fromkeys((*NAMINGS, *vendor.NAMINGS)):
        for draft in _with_devices(edits(inventory, _with_names(profiles, (naming,))), inventory):
            available.setdefault(draft.kind, []).append(naming)
    findings: dict[str, tuple[Finding, ...]] = {
        draft.kind: (_unavailable(name, draft.kind, profiles, available.get(draft.kind, [])),)
        for draft in nameless
    }
    return (*wanted, *nameless), findings


def offered_kinds(inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...]) -> tuple[str, ...]:
    """Return the kinds of the devices in INVENTORIES, in the order in which specs are generated."""
    return tuple(
        draft.kind
        for name, inventory in inventories.items()
        for draft in named_drafts(name, inventory, profiles)[0]
    )


def require_kinds(
    kinds: tuple[str, ...],
    inventories: Mapping[str, Inventory],
    profiles: tuple[Profile, ...],
    *,
    names: Iterable[str],
    known: Collection[str] = (),
) -> None:
    """Raise ConfigError for one of KINDS that this host does not offer; the hint names those that it does.

    NAMES are the vendors that were asked. A kind of a vendor without devices is not a mistake: its driver may
    not be loaded yet. KNOWN are kinds that are accepted although they are not offered.
    """
    if not kinds:
        return
    asked = tuple(names)
    offered: dict[str, None] = {}
    defective = set()
    for name, inventory in inventories.items():
        try:
            offered.update(dict.fromkeys(offered_kinds({name: inventory}, profiles)))
        except Exception:  # noqa: BLE001 - a defect of the vendor's code, which generate_specs reports
            defective.add(name)
    for kind in kinds:
        vendor = registry.vendor_of(kind, asked)
        is_absent = bool(vendor) and (vendor not in inventories or vendor in defective)
        if kind not in offered and kind not in known and not is_absent:
            raise ConfigError(
                f"no device here is of the kind {shown(kind)}",
                hint=f"available kinds: {', '.join(offered) or 'none'}",
            )


def _with_names(profiles: tuple[Profile, ...], namings: tuple[str, ...]) -> tuple[Profile, ...]:
    return tuple(replace(profile, names=namings) for profile in profiles)


def _with_devices(drafts: tuple[Draft, ...], inventory: Inventory) -> tuple[Draft, ...]:
    never = OTHERS.difference(each.device_class for each in inventory.accelerators)
    return tuple(draft for draft in drafts if draft.devices and draft.kind.partition("/")[2] not in never)


def _unavailable(vendor: str, kind: str, profiles: tuple[Profile, ...], available: list[str]) -> Finding:
    wanted = dict.fromkeys(naming for profile in profiles for naming in profile.names)
    return Finding(
        severity="warning",
        rule="naming-not-had",
        path=kind,
        message=f"no device of {kind} has a name by {' or '.join(wanted)}: they have {vendor}'s usual names",
        hint=f"available namings: {', '.join(available)}",
    )
