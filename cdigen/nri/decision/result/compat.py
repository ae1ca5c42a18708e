"""``abilities``: the abilities of a runtime, by the name and version of the runtime.

NRI does not report these abilities. A runtime without support for CDI devices silently ignores CDI devices in
an adjustment. A runtime that does not support an event closes the connection when a plugin subscribes to the
event.
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

# The events as bits of a subscription. The bit is 1 << (number - 1), with the number of Event in api.proto.
CREATE_CONTAINER = 0x0008
REMOVE_CONTAINER = 0x0400
VALIDATE_CONTAINER_ADJUSTMENT = 0x2000

_WORST: tuple[Cdi, ...] = ("unknown", "refuses", "drops", "injects")

_VALIDATES: tuple[int, int] = (0, 10)
_REPORTS_NRI_VERSION: tuple[int, int] = (0, 12)
_OLDEST: tuple[int, int] = (0, 3)

# Distributions use versions such as v2.1.4-k3s1, 2.1.9+unknown and 1.7.24~ds1. Text after the numbers is
# ignored, except the mark of a pre-release.
_VERSION = re.compile(r"v?(\d{1,5})\.(\d{1,5})(?:\.(\d{1,5}))?([-~.]?(?:alpha|beta|rc|dev|pre))?", re.ASCII)


@frozen
class Abilities:
    """The abilities of a runtime, with safe assumptions for an unknown runtime.

    ``cdi`` is "injects" if the runtime injects the CDI devices of an adjustment. It is "drops" if the runtime
    silently ignores the CDI devices, "refuses" if the runtime refuses the container, or "unknown".
    ``takes_devices`` is true if the runtime applies the device nodes and hooks of an adjustment.
    ``validates`` is true if the runtime calls plugins to validate an adjustment. ``nri`` is the lowest
    possible NRI version of the runtime.
    """

    runtime: str
    version: str
    nri: tuple[int, int]
    cdi: Cdi
    takes_devices: bool
    validates: bool

    @property
    def events(self) -> int:
        """The mask of the subscribed events: the events that cdigen handles and that the runtime supports."""
        validation = VALIDATE_CONTAINER_ADJUSTMENT if self.validates else 0
        return CREATE_CONTAINER | REMOVE_CONTAINER | validation

    @property
    def remedy(self) -> str:
        """A text with the releases of the runtime that inject CDI devices.

        The text is empty if this runtime injects CDI devices, or if no such release is known.
        """
        if self.cdi == "injects":
            return ""
        firsts = [".".join(map(str, end)) for _, end in _ranges_without_cdi(self.runtime) if end]
        return f"{self.runtime} injects CDI devices since {' and '.join(firsts)}" if firsts else ""


def abilities(runtime: str, version: str, nri_version: str = "", *, may_validate: bool = True) -> Abilities:
    """Return the abilities of RUNTIME in VERSION; both values come from the Configure request.

    NRI_VERSION has priority over the NRI versions in ``runtimes.releases``. Only NRI 0.12 and later reports
    NRI_VERSION. A pre-release can lack a change of its release. Therefore a pre-release has only the
    abilities that the runtime has both before and after this change.

    MAY_VALIDATE is false if the runtime has rejected the subscription to validations (``is_rejected``). A
    custom build of a runtime can have an older NRI than the standard build of the same version.
    """
    release, is_early = _parse(version)
    changes = [change for change in _changes(runtime) if release is not None and change <= release]
    # The last release that changed NRI, and for a pre-release of this release also the previous change.
    chosen = changes[-2:] if is_early and changes[-1:] == [release] else changes[-1:]
    nri = min((nri_of(runtime, change) or _OLDEST for change in chosen), default=_OLDEST)
    cdi: Cdi = min((_cdi_of(runtime, change) for change in chosen), key=_WORST.index, default="unknown")
    if nri_version:
        reported, _ = _parse(nri_version)
        nri = max(_REPORTS_NRI_VERSION, reported[:2] if reported else _OLDEST)
    return Abilities(
        runtime=runtime,
        version=version,
        nri=nri,
        cdi=cdi,
        takes_devices=runtime != "docker",
        validates=may_validate and nri >= _VALIDATES and cdi != "refuses",
    )


def is_rejected(subscribed: Abilities | None, *, was_synchronized: bool) -> bool:
    """Return whether a connection probably ended because the runtime does not support an event.

    SUBSCRIBED are the abilities that determined the subscribed events, or None before the subscription.
    WAS_SYNCHRONIZED is true if the runtime called Synchronize. The runtime calls Synchronize only after it
    has accepted the events.
    """
    return subscribed is not None and subscribed.validates and not was_synchronized


def _parse(version: str) -> tuple[Release | None, bool]:
    """Return the numbers of VERSION, and whether VERSION is a pre-release.

    The numbers are None if VERSION has no numbers.
    """
    match = _VERSION.match(version)
    if match is None:
        return None, False
    major, minor, patch, early = match.groups()
    return (int(major), int(minor), int(patch or 0)), early is not None


def _ranges_without_cdi(runtime: str) -> list[tuple[Release | None, Release | None]]:
    """Return the ranges (since, until) of releases of RUNTIME that do not inject CDI devices of plugins."""
    return [
        (row.since, row.until)
        for row in BEHAVIOURS
        if row.runtime == runtime and row.behaviour is RuntimeBehaviour.NRI_WITHOUT_CDI
    ]


def _changes(runtime: str) -> list[Release]:
    """Return the releases of RUNTIME that changed the version or the abilities of NRI."""
    ends = [end for ends in _ranges_without_cdi(runtime) for end in ends if end]
    return sorted({*(since for since, _ in NRI.get(runtime, ())), *ends})


def _cdi_of(runtime: str, release: Release) -> Cdi:
    if not behaves(runtime, release, RuntimeBehaviour.NRI_WITHOUT_CDI):
        return "injects"
    # Docker accepts only environment and mounts: "unsupported container adjustments" (moby 51511).
    return "refuses" if runtime == "docker" else "drops"
