"""How the shares of this node stand: ``SharesState``, for status and metrics."""

from __future__ import annotations

from types import MappingProxyType

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# What became of requests: given as promised; after one pod's promise was changed; after those of several were
# exchanged; refused.
OUTCOMES = ("promised", "moved", "exchanged", "refused")
_NONE: Mapping[str, int] = MappingProxyType(dict.fromkeys(OUTCOMES, 0))


@frozen
class SharesState:
    """What is known of NODE's shares, and what was done.

    ``problem`` is why pods cannot be told apart, ``node_problem`` why the node does not say what is offered,
    ``promise_problem`` why promises do not follow; "" each where all is well. ``pods`` ask for memory here,
    of whose containers ``served`` have their units, as far as is known, and ``waiting`` have not.
    ``outcomes`` counts requests, ``repaired`` pods whose promises were made to follow afterwards.
    """

    node: str
    problem: str = ""
    node_problem: str = ""
    promise_problem: str = ""
    pods: int = 0
    served: int = 0
    waiting: int = 0
    outcomes: Mapping[str, int] = _NONE
    repaired: int = 0
