"""Which GPUs of a node a pod gets: ``place``. Pure.

Each container is on one GPU, and all of a pod are on the same one if that is possible. ``binpack`` takes the
GPU with the least that suffices, so that large requests find a whole one later; ``spread`` the one with the
most.
"""

from __future__ import annotations

from cdigen.gpushare.claims import Placement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.gpushare.pods import Ask
    from cdigen.gpushare.room import Room

    Strategy = Literal["binpack", "spread"]

STRATEGIES = ("binpack", "spread")
# Dividing containers among GPUs is bin packing; real pods need a few steps, and a hostile one gets these.
_MAX_STEPS = 500
# Each container is a level of the interpreter's stack.
_MAX_LEVELS = 64
# What the scheduler takes from an extender (k8s.io/kube-scheduler/extender/v1, MaxExtenderPriority).
MAX_SCORE = 10


def place(ask: Ask, room: Room, strategy: Strategy = "binpack") -> Placement | None:
    """Return where a pod that asks ASK goes in ROOM; None: nowhere."""
    if ask.problem or not 0 < ask.total <= room.left:
        return None
    free = dict(room.free)
    single = next((gpu for gpu in _order(free, strategy) if free[gpu] >= ask.total), None)
    if single is not None:
        return Placement(containers=tuple((container, single) for container, _ in ask.shares), gpu=single)
    if ask.together or len(ask.shares) < 2:
        return None
    found = _divide(ask, free, strategy)
    return None if found is None else Placement(containers=tuple(sorted(found.items())))


def score(room: Room, strategy: Strategy) -> int:
    """Return how good a node with ROOM is, to MAX_SCORE: the fuller the better, for ``spread`` the worse."""
    used = sum([units for _, units in room.used]) + room.floating
    total = used + room.left
    fullness = MAX_SCORE * used // total if total else 0
    return fullness if strategy == "binpack" else MAX_SCORE - fullness


def _order(free: dict[int, int], strategy: Strategy) -> list[int]:
    sign = 1 if strategy == "binpack" else -1
    return sorted(free, key=lambda gpu: (sign * free[gpu], gpu))


def _divide(ask: Ask, free: dict[int, int], strategy: Strategy) -> dict[int, int] | None:
    """Return a GPU for each container, the largest first; None: none was found."""
    shares = sorted(ask.shares, key=lambda share: -share[1])
    if len(shares) > _MAX_LEVELS or not _may_fit([units for _, units in shares], free):
        return None
    found: dict[int, int] = {}
    steps = _MAX_STEPS

    def put(position: int) -> bool:
        nonlocal steps
        if position == len(shares):
            return True
        container, units = shares[position]
        tried = set()
        for gpu in _order(free, strategy):
            if free[gpu] < units or free[gpu] in tried or steps <= 0:
                continue
            steps -= 1
            tried.add(free[gpu])
            free[gpu] -= units
            found[container] = gpu
            if put(position + 1):
                return True
            free[gpu] += units
        return False

    return found if put(0) else None


def _may_fit(sizes: list[int], free: dict[int, int]) -> bool:
    """Return False where the largest of SIZES are too many for what is FREE, were all as small as the last.

    It answers for most nodes what the search would take all its steps for.
    """
    counts = {units: count for count, units in enumerate(sizes, 1)}
    return all(count <= sum([left // units for left in free.values()]) for units, count in counts.items())
