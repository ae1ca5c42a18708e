"""What a runtime can do, by its name and version: ``abilities``.

NRI itself does not tell a plugin: a runtime that does not know CDI devices drops them silently, and one that
does not know an event closes the connection at the subscription to it.
"""

from __future__ import annotations

import re

from cdigen.runtimes.releases import BEHAVIOURS, NRI, RuntimeBehaviour, behaves, nri_of
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Cdi = Literal["injects", "drops", "refuses", "unknown"]
    from cdigen.runtimes.releases import Release

# Events as bits of a subscription: 1 << (number - 1) of api.proto's Event.
CREATE_CONTAINER = 0x0008
REMOVE_CONTAINER = 0x0400
VALIDATE_CONTAINER_ADJUSTMENT = 0x2000

_WORST: tuple[Cdi, ...] = ("unknown", "refuses", "drops", "injects")

_VALIDATES: tuple[int, int] = (0, 10)
_TELLS_ITSELF: tuple[int, int] = (0, 12)
_OLDEST: tuple[int, int] = (0, 3)

# Distributions write v2.1.4-k3s1, 2.1.9+unknown, 1.7.24~ds1: what follows the numbers matters only before a
# release.
_VERSION = re.compile(r"v?(\d{1,5})\.(\d{1,5})(?:\.(\d{1,5}))?([-~.]?(?:alpha|beta|rc|dev|pre))?", re.ASCII)


@frozen
class Abilities:
    """What a runtime can do; where that is not known, what is safe to assume.

    ``cdi``: it *injects* CDI devices of an adjustment, *drops* them silently, *refuses* the container, or
    that is *unknown*. ``takes_devices``: it puts device nodes and hooks of an adjustment into the container.
    ``validates``: it asks before what plugins did is used. ``events`` is what to subscribe to, ``nri`` the
    version of NRI at least.
    """

    runtime: str
    version: str
    nri: tuple[int, int]
    cdi: Cdi
    takes_devices: bool
    validates: bool

    @property
    def events(self) -> int:
        """Return the mask of the events that cdigen handles and the runtime knows."""
        validation = VALIDATE_CONTAINER_ADJUSTMENT if self.validates else 0
        return CREATE_CONTAINER | REMOVE_CONTAINER | validation

    @property
    def remedy(self) -> str:
        """Return which releases of the runtime inject CDI devices, for one that does not; else nothing."""
        if self.cdi == "injects":
            return ""
        firsts = [".".join(map(str, end)) for _, end in _ranges_without_cdi(self.runtime) if end]
        return f"{self.runtime} injects CDI devices since {' and '.join(firsts)}" if firsts else ""


def abilities(runtime: str, version: str, nri_version: str = "", *, may_validate: bool = True) -> Abilities:
    """Return what the RUNTIME of that VERSION can do, as it says itself in Configure.

    NRI_VERSION, which only NRI 0.12 and later tells, counts more than the table. Of a release candidate and
    its like, which may be from before a change, the less is assumed.

    MAY_VALIDATE: false after a runtime has closed the connection at the subscription to validations
    (``is_rejected``), as it does where it does not know the event: one that somebody has built may have an
    older NRI than the table says.
    """
    release, is_early = _parse(version)
    changes = [change for change in _changes(runtime) if release is not None and change <= release]
    # What holds from the last change on; before a release perhaps only what held before it.
    chosen = changes[-2:] if is_early and changes[-1:] == [release] else changes[-1:]
    nri = min((nri_of(runtime, change) or _OLDEST for change in chosen), default=_OLDEST)
    cdi: Cdi = min((_cdi_of(runtime, change) for change in chosen), key=_WORST.index, default="unknown")
    if nri_version:
        told, _ = _parse(nri_version)
        nri = max(_TELLS_ITSELF, told[:2] if told else _OLDEST)
    return Abilities(
        runtime=runtime,
        version=version,
        nri=nri,
        cdi=cdi,
        takes_devices=runtime != "docker",
        validates=may_validate and nri >= _VALIDATES and cdi != "refuses",
    )


def is_rejected(able: Abilities | None, *, was_told: bool) -> bool:
    """Return whether a connection that has ended did so for the events of ABLE, as far as can be told.

    ABLE is what was subscribed by, None before that. WAS_TOLD: the runtime has told its state, or asked,
    which it does only to a plugin whose events it has accepted.
    """
    return able is not None and able.validates and not was_told


def _parse(version: str) -> tuple[Release | None, bool]:
    """Return the numbers of VERSION, None where it has none, and whether it is one before a release."""
    match = _VERSION.match(version)
    if match is None:
        return None, False
    major, minor, patch, early = match.groups()
    return (int(major), int(minor), int(patch or 0)), early is not None


def _ranges_without_cdi(runtime: str) -> list[tuple[Release | None, Release | None]]:
    """Return the releases of RUNTIME, since and until, that inject no CDI devices of an adjustment."""
    return [
        (row.since, row.until)
        for row in BEHAVIOURS
        if row.runtime == runtime and row.behaviour is RuntimeBehaviour.NRI_WITHOUT_CDI
    ]


def _changes(runtime: str) -> list[Release]:
    """Return the releases of RUNTIME that differ in NRI from the one before."""
    ends = [end for ends in _ranges_without_cdi(runtime) for end in ends if end]
    return sorted({*(since for since, _ in NRI.get(runtime, ())), *ends})


def _cdi_of(runtime: str, release: Release) -> Cdi:
    if not behaves(runtime, release, RuntimeBehaviour.NRI_WITHOUT_CDI):
        return "injects"
    # "unsupported container adjustments": Docker takes environment and mounts only (moby 51511).
    return "refuses" if runtime == "docker" else "drops"
