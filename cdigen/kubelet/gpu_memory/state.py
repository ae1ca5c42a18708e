"""``GpuMemoryState``: the state of GPU memory sharing on this node, for status and metrics."""

from __future__ import annotations

from types import MappingProxyType

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# The outcomes of requests. as_reserved: the units were allocated as reserved. moved: the reservation of one
# pod was moved first. exchanged: the reservations of several pods were exchanged first. refused: no units
# were allocated.
OUTCOMES = ("as_reserved", "moved", "exchanged", "refused")
_NONE: Mapping[str, int] = MappingProxyType(dict.fromkeys(OUTCOMES, 0))


@frozen
class GpuMemoryState:
    """The state of GPU memory sharing on the node ``node``.

    ``problem`` is the reason why the pod of a request cannot be identified. ``node_problem`` is the reason
    why the Node object is not up to date. ``reservation_problem`` is the reason why reservations do not match
    containers. Each reason is "" if there is no problem. ``pods`` is the number of pods that request memory.
    ``served`` is the number of containers in these pods that have their units according to cdigen.
    ``waiting`` is the number of containers without units. ``outcomes`` counts requests by outcome.
    ``repaired`` counts the pods whose reservations were corrected afterwards.
    """

    node: str
    problem: str = ""
    node_problem: str = ""
    reservation_problem: str = ""
    pods: int = 0
    served: int = 0
    waiting: int = 0
    outcomes: Mapping[str, int] = _NONE
    repaired: int = 0
