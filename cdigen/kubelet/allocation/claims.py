"""``claimed_units`` finds the units whose device a container has by a ResourceClaim (DRA). No I/O.

The scheduler tracks claims, and the kubelet tracks the devices of device plugins. Neither compares the two.
So the kubelet would allocate a device to a container although a claim has the device.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.kubelet.pods import ClaimedDevice
    from cdigen.kubelet.resources.model import Unit


def claimed_units(units: Iterable[Unit], claims: Iterable[ClaimedDevice]) -> dict[str, str]:
    """Return a description of the container by unit id, for the units of UNITS whose device CLAIMS have."""
    names: dict[str, str] = {}
    for claim in claims:
        names.setdefault(_name(claim), claim.description)
    if not names:
        return {}
    # All replicas or memory units of a device have the same names.
    users: dict[tuple[str, ...], str] = {}
    found: dict[str, str] = {}
    for unit in units:
        if unit.claim_names not in users:
            users[unit.claim_names] = next(
                (names[name] for name in names if any(fnmatchcase(name, own) for own in unit.claim_names)), ""
            )
        if user := users[unit.claim_names]:
            found[unit.id] = user
    return found


def claim_key(units: Iterable[Unit], claims: Iterable[ClaimedDevice]) -> frozenset[tuple[str, str]]:
    """Return the part of CLAIMS that affects ``claimed_units`` for UNITS: names and containers."""
    kept = tuple(claims)
    drivers = {_driver(name) for unit in units for name in unit.claim_names} if kept else set()
    return frozenset((_name(one), one.description) for one in kept if one.driver in drivers)


def _name(claim: ClaimedDevice) -> str:
    return f"{claim.driver}/{claim.device}"


def _driver(name: str) -> str:
    return name.partition("/")[0]
