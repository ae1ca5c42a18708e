"""What a vendor's inventory offers: its drafts, named as profiles wish, or as they can be.

A profile is every vendor's, and not every vendor has the namings that it names. Devices that would have no
name at all keep their vendor's own. Nor has every vendor devices of its class: a profile for NPUs makes no
kind of NPUs out of GPUs.
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
) -> tuple[tuple[Draft, ...], dict[str, Finding]]:
    """Return the drafts of the vendor NAME that have devices, and by kind which are not named as wished."""
    vendor = registry.load(name)
    edits = vendor.edits
    wished = _with_devices(edits(inventory, profiles), inventory)
    if not any(profile.names for profile in profiles):
        return wished, {}
    kinds = {draft.kind for draft in wished}
    usual = _with_devices(edits(inventory, _named(profiles, ())), inventory)
    nameless = tuple(draft for draft in usual if draft.kind not in kinds)
    if not nameless:
        return wished, {}
    having: dict[str, list[str]] = {}
    for naming in dict.fromkeys((*NAMINGS, *vendor.NAMINGS)):
        for draft in _with_devices(edits(inventory, _named(profiles, (naming,))), inventory):
            having.setdefault(draft.kind, []).append(naming)
    findings = {
        draft.kind: _finding(name, draft.kind, profiles, having.get(draft.kind, [])) for draft in nameless
    }
    return (*wished, *nameless), findings


def require_kinds(
    kinds: tuple[str, ...],
    inventories: Mapping[str, Inventory],
    profiles: tuple[Profile, ...],
    *,
    names: Iterable[str],
    known: Collection[str] = (),
) -> None:
    """Raise ConfigError for one of KINDS that nobody offers here, naming those that there are.

    NAMES are the vendors that were asked. A kind of one that has nothing here is no mistake: its driver may
    not be loaded yet. KNOWN are kinds that count although they are not offered.
    """
    if not kinds:
        return
    asked = tuple(names)
    there: dict[str, None] = {}
    defective = set()
    for name, inventory in inventories.items():
        try:
            there.update((draft.kind, None) for draft in named_drafts(name, inventory, profiles)[0])
        except Exception:  # noqa: BLE001 - a defect of the vendor's code, which whoever makes specs tells
            defective.add(name)
    for kind in kinds:
        vendor = registry.vendor_of(kind, asked)
        is_absent = bool(vendor) and (vendor not in inventories or vendor in defective)
        if kind not in there and kind not in known and not is_absent:
            raise ConfigError(
                f"nothing here is of the kind {shown(kind)}",
                hint=f"the kinds that there are: {', '.join(there) or 'none'}",
            )


def _named(profiles: tuple[Profile, ...], namings: tuple[str, ...]) -> tuple[Profile, ...]:
    return tuple(replace(profile, names=namings) for profile in profiles)


def _with_devices(named_drafts: tuple[Draft, ...], inventory: Inventory) -> tuple[Draft, ...]:
    never = OTHERS.difference(each.device_class for each in inventory.accelerators)
    return tuple(
        draft for draft in named_drafts if draft.devices and draft.kind.partition("/")[2] not in never
    )


def _finding(vendor: str, kind: str, profiles: tuple[Profile, ...], having: list[str]) -> Finding:
    wished = dict.fromkeys(naming for profile in profiles for naming in profile.names)
    return Finding(
        severity="warning",
        rule="naming-not-had",
        path=kind,
        message=f"no device of {kind} has a name by {' or '.join(wished)}: they have {vendor}'s usual names",
        hint=f"the namings that they have: {', '.join(having)}",
    )
