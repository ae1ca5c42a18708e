"""The drafts of a vendor's inventory, with the device names of the profiles if possible.

A profile applies to all vendors, but a vendor need not support the namings of the profile. Devices that have
no name in the profile's namings get the usual names of the vendor. A vendor need not have devices of the
profile's class. A profile for NPUs never contains GPUs.
"""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.model.errors import ConfigError, WithheldError
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
    """Return the vendor's drafts with devices, and kind -> findings about unavailable names.

    NAME is the vendor.
    """
    vendor = registry.load(name)
    edits = vendor.edits
    named = _with_devices(edits(inventory, profiles), inventory)
    if not any(profile.names for profile in profiles):
        return named, {}
    kinds = {draft.kind for draft in named}
    usual = _with_devices(edits(inventory, _with_names(profiles, ())), inventory)
    nameless = tuple(draft for draft in usual if draft.kind not in kinds)
    if not nameless:
        return named, {}
    available: dict[str, list[str]] = {}
    for naming in dict.fromkeys((*NAMINGS, *vendor.NAMINGS)):
        for draft in _with_devices(edits(inventory, _with_names(profiles, (naming,))), inventory):
            available.setdefault(draft.kind, []).append(naming)
    findings: dict[str, tuple[Finding, ...]] = {
        draft.kind: (_unavailable(name, draft.kind, profiles, available.get(draft.kind, [])),)
        for draft in nameless
    }
    return (*named, *nameless), findings


def withheld_error(draft: Draft) -> WithheldError | None:
    """Return the error if the spec of DRAFT is withheld, or None."""
    if draft.withheld is None:
        return None
    message = f"no spec of {draft.kind} is written: {draft.withheld.message}"
    return WithheldError(message, hint=draft.withheld.hint)


def inventory_kinds(inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...]) -> tuple[str, ...]:
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
    """Raise ConfigError if a kind in KINDS has no devices on this host. The hint names the available kinds.

    NAMES are the vendors in use. If a vendor has no devices, all its kinds are valid, because its driver may
    be loaded later. The kinds in KNOWN are also valid without devices.
    """
    if not kinds:
        return
    vendors = tuple(names)
    offered: dict[str, None] = {}
    defective = set()
    for name, inventory in inventories.items():
        try:
            offered.update(dict.fromkeys(inventory_kinds({name: inventory}, profiles)))
        except Exception:  # noqa: BLE001 - a defect of the vendor's code, which generate_specs reports
            defective.add(name)
    for kind in kinds:
        vendor = registry.vendor_of(kind, vendors)
        is_absent = bool(vendor) and (vendor not in inventories or vendor in defective)
        if kind not in offered and kind not in known and not is_absent:
            raise ConfigError(
                f"this host has no device of the kind {shown(kind)}",
                hint=f"available kinds: {', '.join(offered) or 'none'}",
            )


def _with_names(profiles: tuple[Profile, ...], namings: tuple[str, ...]) -> tuple[Profile, ...]:
    return tuple(replace(profile, names=namings) for profile in profiles)


def _with_devices(drafts: tuple[Draft, ...], inventory: Inventory) -> tuple[Draft, ...]:
    never = OTHERS.difference(each.device_class for each in inventory.accelerators)
    return tuple(draft for draft in drafts if draft.devices and draft.kind.partition("/")[2] not in never)


def _unavailable(vendor: str, kind: str, profiles: tuple[Profile, ...], available: list[str]) -> Finding:
    namings = dict.fromkeys(naming for profile in profiles for naming in profile.names)
    return Finding(
        severity="warning",
        rule="naming-unavailable",
        path=kind,
        message=f"no device of {kind} has a name by {' or '.join(namings)}: the devices get the "
        f"usual names of {vendor}",
        hint=f"available namings: {', '.join(available)}",
    )
