"""``node_usages`` returns the used GPU memory of nodes, for ``kubectl inspect gpushare``.

The computation is the same as in the extender, but uses only the annotations of pods. Ledgers are not used,
because some users have no permission to read ledgers.
"""

from __future__ import annotations

from cdigen.gpushare.free_capacity import FreeCapacity, free_capacity
from cdigen.gpushare.nodes import read_node
from cdigen.gpushare.pods import read_pod
from cdigen.gpushare.reservations import ANNOTATION_KEYS, Reservation, read_placement, reservation_of
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.gpushare.names import Resources
    from cdigen.gpushare.nodes import NodeCapacity
    from cdigen.gpushare.pods import GpuPod


@frozen
class NodeUsage:
    """A node, its free capacity, and its pods with their reservations, sorted by namespace and name."""

    node: NodeCapacity
    free: FreeCapacity
    pods: tuple[tuple[GpuPod, Reservation], ...] = ()


def node_usages(
    nodes: Iterable[object], pods: Iterable[object], resources: Resources
) -> tuple[NodeUsage, ...]:
    """Return the usage of each node of NODES that has a capacity, sorted by name.

    NODES and PODS are objects of the API. Pods that have ended or are not bound reserve nothing. Raise
    ValueError if an object is not a Node or not a Pod.
    """
    by_node: dict[str, list[tuple[GpuPod, Reservation]]] = {}
    for document in pods:
        pod = read_pod(document, resources, ANNOTATION_KEYS)
        if pod is not None and pod.node and not pod.is_ended:
            reservation = reservation_of(pod.request, read_placement(pod))
            by_node.setdefault(pod.node, []).append((pod, reservation))
    capacities = sorted((read_node(document, resources) for document in nodes), key=lambda node: node.name)
    return tuple(_usage(node, by_node.get(node.name, [])) for node in capacities if node.capacity)


def _usage(node: NodeCapacity, pods: list[tuple[GpuPod, Reservation]]) -> NodeUsage:
    free = free_capacity(node, frozenset(), (reservation for _, reservation in pods))
    return NodeUsage(node=node, free=free, pods=tuple(sorted(pods, key=lambda row: row[0].key)))
