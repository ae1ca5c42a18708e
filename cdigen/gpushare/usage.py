"""What is used where, for people to look at: ``usages`` puts nodes and their pods together.

Counted as the extender counts, by the pods' annotations alone: ledgers are not for everybody to read.
"""

from __future__ import annotations

from cdigen.gpushare.claims import READ, Claim, claim_of, read_placement
from cdigen.gpushare.nodes import read_node
from cdigen.gpushare.pods import read_pod
from cdigen.gpushare.room import Room, room_of
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.gpushare.names import Resources
    from cdigen.gpushare.nodes import Offer
    from cdigen.gpushare.pods import Pod


@frozen
class Usage:
    """What a node offers, what is left of it, and which pod holds what, by namespace and name."""

    offer: Offer
    room: Room
    pods: tuple[tuple[Pod, Claim], ...] = ()

    @property
    def used(self) -> int:
        """Units that are used, also of GPUs that nobody knows."""
        return sum(units for _, units in self.room.used) + self.room.floating

    @property
    def pending(self) -> int:
        """Units that are on one of the node's GPUs, and nobody knows on which."""
        return self.room.floating


def usages(nodes: Iterable[object], pods: Iterable[object], resources: Resources) -> tuple[Usage, ...]:
    """Return the usage of each of NODES that offers something, by name; NODES and PODS are the API's objects.

    Pods that have ended, or are on no node, count nothing. ValueError: something is no node or no pod.
    """
    held: dict[str, list[tuple[Pod, Claim]]] = {}
    for found in pods:
        pod = read_pod(found, resources, READ)
        if pod is not None and pod.node and not pod.is_ended:
            held.setdefault(pod.node, []).append((pod, claim_of(pod.ask, read_placement(pod))))
    offers = sorted((read_node(found, resources) for found in nodes), key=lambda offer: offer.node)
    return tuple(_usage(offer, held.get(offer.node, [])) for offer in offers if offer.capacity)


def _usage(offer: Offer, held: list[tuple[Pod, Claim]]) -> Usage:
    room = room_of(offer, frozenset(), (claim for _, claim in held))
    return Usage(offer=offer, room=room, pods=tuple(sorted(held, key=lambda row: row[0].key)))
