"""``place`` chooses the GPUs of a node for a pod. The module does no I/O.

Each container is on one GPU. All containers of a pod are on the same GPU if possible. The strategy
``binpack`` chooses the fitting GPU with the fewest free units, so that empty GPUs stay free for larger
requests. The strategy ``spread`` chooses the GPU with the most free units.
"""

from __future__ import annotations

from cdigen.gpushare.reservations import ContainerPlacement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.gpushare.free_capacity import FreeCapacity
    from cdigen.gpushare.pods import MemoryRequest

    Strategy = Literal["binpack", "spread"]

# The limit for steps of the bin packing that divides containers among GPUs. Real pods need few steps.
_MAX_STEPS = 500
# The limit for containers, because the search is recursive, with a level for each container.
_MAX_LEVELS = 64
# The highest score of an extender (k8s.io/kube-scheduler/extender/v1, MaxExtenderPriority).
MAX_SCORE = 10


def place(
    request: MemoryRequest, free_capacity: FreeCapacity, strategy: Strategy = "binpack"
) -> ContainerPlacement | None:
    """Return the placement of a pod with REQUEST in FREE_CAPACITY, or None if the pod does not fit."""
    if request.problem or not 0 < request.total <= free_capacity.left:
        return None
    free = dict(free_capacity.free)
    single = next((gpu for gpu in _order(free, strategy) if free[gpu] >= request.total), None)
    if single is not None:
        return ContainerPlacement(
            containers=tuple((container, single) for container, _ in request.by_container), gpu=single
        )
    if request.on_one_gpu or len(request.by_container) < 2:
        return None
    found = _divide(request, free, strategy)
    return None if found is None else ContainerPlacement(containers=tuple(sorted(found.items())))


def score(free_capacity: FreeCapacity, strategy: Strategy) -> int:
    """Return the score of a node, from 0 to MAX_SCORE.

    With ``binpack``, a full node has a high score. With ``spread``, an empty node has a high score.
    """
    total = free_capacity.reserved + free_capacity.left
    fullness = MAX_SCORE * free_capacity.reserved // total if total else 0
    return fullness if strategy == "binpack" else MAX_SCORE - fullness


def _order(free: dict[int, int], strategy: Strategy) -> list[int]:
    sign = 1 if strategy == "binpack" else -1
    return sorted(free, key=lambda gpu: (sign * free[gpu], gpu))


def _divide(request: MemoryRequest, free: dict[int, int], strategy: Strategy) -> dict[int, int] | None:
    """Return a GPU for each container, or None if the search found no division.

    The search places the largest container first.
    """
    requests = sorted(request.by_container, key=lambda each: -each[1])
    if len(requests) > _MAX_LEVELS or not _may_fit([units for _, units in requests], free):
        return None
    found: dict[int, int] = {}
    steps = _MAX_STEPS

    def put(position: int) -> bool:
        nonlocal steps
        if position == len(requests):
            return True
        container, units = requests[position]
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
    """Return False if SIZES certainly do not fit into FREE.

    SIZES are in descending order. If SIZES fit into FREE, N containers of the Nth size also fit. The check
    tests this condition for each N. For most nodes, this check avoids a search that would need all
    _MAX_STEPS.
    """
    counts = {units: count for count, units in enumerate(sizes, 1)}
    return all(count <= sum([left // units for left in free.values()]) for units, count in counts.items())
