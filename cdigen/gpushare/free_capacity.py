"""``free_capacity`` computes the free units of a node from the node's capacity and the reservations.

Unknown values reduce the free capacity, so the result is never too large. A reservation on an unknown GPU is
subtracted from each GPU. If the ledger and the annotations of a pod differ, the larger number of units is
subtracted for each GPU.

``node_usages`` returns the used GPU memory of nodes, for ``kubectl inspect gpushare``. The computation is the
same as in the extender, but uses only the annotations of pods. Ledgers are not used, because some users have
no permission to read ledgers.
"""

from __future__ import annotations

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
class FreeCapacity:
    """The free units of a node.

    ``free`` has the free units of each healthy shared GPU. ``left`` is the number of free units on all GPUs
    together. ``used`` has the reserved units of each GPU, also if the reserved units exceed the GPU's size.
    ``unplaced`` is the number of reserved units on unknown GPUs. ``largest`` is the size of the largest
    shared GPU. ``most`` is the largest number of free units on one GPU.
    """

    free: tuple[tuple[int, int], ...] = ()
    left: int = 0
    used: tuple[tuple[int, int], ...] = ()
    unplaced: int = 0
    largest: int = 0
    most: int = 0

    @property
    def reserved(self) -> int:
        """The number of reserved units, including the units on unknown GPUs."""
        return sum([units for _, units in self.used]) + self.unplaced


@frozen
class NodeUsage:
    """A node, its free capacity, and its pods with their reservations, sorted by namespace and name."""

    node: NodeCapacity
    free: FreeCapacity
    pods: tuple[tuple[GpuPod, Reservation], ...] = ()


def combine_reservations(in_ledger: Reservation | None, annotated: Reservation | None) -> Reservation:
    """Return the reservation of a pod from the ledger (IN_LEDGER) and from its annotations (ANNOTATED)."""
    if in_ledger is None or annotated is None or in_ledger == annotated:
        return in_ledger or annotated or Reservation()
    if annotated.unplaced:
        return in_ledger
    on = dict(in_ledger.on)
    for gpu, units in annotated.on:
        on[gpu] = max(units, on.get(gpu, 0))
    return Reservation(on=tuple(sorted(on.items())))


def free_capacity(
    node: NodeCapacity, unhealthy: frozenset[int], reservations: Iterable[Reservation]
) -> FreeCapacity:
    """Return the free capacity of NODE after RESERVATIONS, without the UNHEALTHY GPUs."""
    used = {gpu.index: 0 for gpu in node.gpus}
    unplaced = 0
    for reservation in reservations:
        unplaced += reservation.unplaced
        for gpu, units in reservation.on:
            if gpu in used:
                used[gpu] += units
            else:
                unplaced += units  # the GPU was removed, or has another index now
    left = max(0, node.capacity - sum(used.values()) - unplaced)
    free = tuple(
        (gpu.index, max(0, min(gpu.units - used[gpu.index] - unplaced, left)))
        for gpu in node.gpus
        if gpu.units and gpu.is_healthy and gpu.index not in unhealthy
    )
    return FreeCapacity(
        free=free,
        left=left,
        used=tuple(used.items()),
        unplaced=unplaced,
        most=max([units for _, units in free], default=0),
        largest=max([gpu.units for gpu in node.gpus], default=0),
    )


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
