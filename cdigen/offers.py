"""What a vendor's inventory offers: its drafts, named as profiles wish, or as they can be.

A profile is every vendor's, and not every vendor has the namings that it names. Devices that would have no
name at all keep their vendor's own.
"""

from __future__ import annotations

from cdigen.model.findings import Finding
from cdigen.model.profile import NAMINGS
from cdigen.value import replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.cdi import Draft
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile


def drafts(
    name: str, inventory: Inventory, profiles: tuple[Profile, ...]
) -> tuple[tuple[Draft, ...], dict[str, Finding]]:
    """Return the drafts of the vendor NAME that have devices, and by kind which are not named as wished."""
    edits = registry.load(name).edits
    wished = _with_devices(edits(inventory, profiles))
    if not any(profile.names for profile in profiles):
        return wished, {}
    kinds = {draft.kind for draft in wished}
    usual = _with_devices(edits(inventory, _named(profiles, ())))
    nameless = tuple(draft for draft in usual if draft.kind not in kinds)
    if not nameless:
        return wished, {}
    having: dict[str, list[str]] = {}
    for naming in NAMINGS:
        for draft in _with_devices(edits(inventory, _named(profiles, (naming,)))):
            having.setdefault(draft.kind, []).append(naming)
    findings = {
        draft.kind: _finding(name, draft.kind, profiles, having.get(draft.kind, [])) for draft in nameless
    }
    return (*wished, *nameless), findings


def _named(profiles: tuple[Profile, ...], namings: tuple[str, ...]) -> tuple[Profile, ...]:
    return tuple(replace(profile, names=namings) for profile in profiles)


def _with_devices(drafts: tuple[Draft, ...]) -> tuple[Draft, ...]:
    return tuple(draft for draft in drafts if draft.devices)


def _finding(vendor: str, kind: str, profiles: tuple[Profile, ...], having: list[str]) -> Finding:
    wished = dict.fromkeys(naming for profile in profiles for naming in profile.names)
    return Finding(
        severity="warning",
        rule="naming-not-had",
        path=kind,
        message=f"no device of {kind} has a name by {' or '.join(wished)}: they have {vendor}'s usual names",
        hint=f"the namings that they have: {', '.join(having)}",
    )
