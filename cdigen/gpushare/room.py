"""What is left on a node: ``room_of`` counts what pods hold against what the node offers.

What cannot be told counts against us: a claim on an unknown GPU counts on each, and one about which ledger
and annotation differ counts by both. So room is never more than there is.
"""

from __future__ import annotations

from cdigen.gpushare.claims import Claim
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.gpushare.nodes import Offer


@frozen
class Room:
    """What can be had on a node: ``free`` units by GPU, healthy ones alone; ``left`` on all of them.

    ``used`` are units by GPU, also of those that are too many; ``floating`` those on unknown GPUs.
    ``largest`` is the size of the largest GPU that is offered in units, ``most`` what one has free.
    """

    free: tuple[tuple[int, int], ...] = ()
    left: int = 0
    used: tuple[tuple[int, int], ...] = ()
    floating: int = 0
    largest: int = 0
    most: int = 0


def counted(promised: Claim | None, shown: Claim | None) -> Claim:
    """Return what a pod counts that the ledger PROMISED a claim, and whose annotations have SHOWN one."""
    if promised is None or shown is None or promised == shown:
        return promised or shown or Claim()
    if shown.floating:
        return promised
    on = dict(promised.on)
    for gpu, units in shown.on:
        on[gpu] = max(units, on.get(gpu, 0))
    return Claim(on=tuple(sorted(on.items())))


def room_of(offer: Offer, unhealthy: frozenset[int], claims: Iterable[Claim]) -> Room:
    """Return what CLAIMS leave of OFFER, of whose GPUs UNHEALTHY ones are out as well."""
    used = {gpu.index: 0 for gpu in offer.gpus}
    floating = 0
    for claim in claims:
        floating += claim.floating
        for gpu, units in claim.on:
            if gpu in used:
                used[gpu] += units
            else:
                floating += units  # of a GPU that is gone, or has another number by now
    left = max(0, offer.capacity - sum(used.values()) - floating)
    free = tuple(
        (gpu.index, max(0, min(gpu.units - used[gpu.index] - floating, left)))
        for gpu in offer.gpus
        if gpu.units and gpu.is_healthy and gpu.index not in unhealthy
    )
    return Room(
        free=free,
        left=left,
        used=tuple(used.items()),
        floating=floating,
        most=max([units for _, units in free], default=0),
        largest=max([gpu.units for gpu in offer.gpus], default=0),
    )
