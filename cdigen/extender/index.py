"""``Index``: the state of nodes and pods, updated by the events of the API.

The index may be out of date. ``binding`` is also correct with an index that is out of date. The index
computes the free capacity of a node once after each change of the node. Therefore, a filter request with
1,000 nodes only reads values. The index is not thread-safe, so ``service`` holds a lock.
"""

from __future__ import annotations

import time

from cdigen.gpushare.free_capacity import FreeCapacity, combine_reservations, free_capacity
from cdigen.gpushare.names import UNHEALTHY, Resources
from cdigen.gpushare.nodes import read_node, unhealthy_gpus
from cdigen.gpushare.pods import read_pod
from cdigen.gpushare.reservations import ANNOTATION_KEYS, Reservation, read_placement, reservation_of
from cdigen.kubeapi.calls import object_name
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cdigen.gpushare.ledger import Ledger
    from cdigen.gpushare.nodes import NodeCapacity
    from cdigen.gpushare.pods import GpuPod

# The limit for stored UIDs of pods that have ended. A ledger may still have entries of these pods. If the UID
# of an entry is not in the index, a bind reads the pod from the API server.
MAX_GONE = 50_000
# The time for which the index uses a ledger. A bind always reads the ledger again.
LEDGER_S = 60.0


class Index:
    """The capacities of nodes, and the pods that request GPU memory, by UID and by node."""

    def __init__(self, resources: Resources, clock: Callable[[], float] = time.monotonic) -> None:
        self.resources = resources
        self._clock = clock
        self.capacities: dict[str, NodeCapacity] = {}
        self._pods: dict[str, GpuPod] = {}
        self._by_node: dict[str, dict[str, Reservation]] = {}
        self._in_ledger: dict[str, dict[str, Reservation]] = {}
        # The nodes whose ledgers have an entry of a pod, by the pod's UID.
        self._ledgers_of: dict[str, set[str]] = {}
        self._ledger_read_s: dict[str, float] = {}
        self._unhealthy: dict[str, dict[str, frozenset[int]]] = {}
        self._free: dict[str, FreeCapacity] = {}
        self._gone: dict[str, None] = {}

    # Updates by events of the API. Each event has the present state of an object.

    def put_pod(self, document: object) -> None:
        """Store the Pod object DOCUMENT, or raise ValueError if DOCUMENT is not a Pod."""
        pod = read_pod(document, self.resources, ANNOTATION_KEYS)
        if pod is None or pod.uid in self._gone:
            return
        if pod.is_ended:
            self.drop_pod(pod.uid)
            return
        self._put(pod)

    def _put(self, pod: GpuPod) -> None:
        self._remove(pod.uid)
        # The annotations are not stored, because the reservation has their contents. With 10,000 pods, the
        # annotations would need most of the memory.
        self._pods[pod.uid] = replace(pod, annotations=())
        self._invalidate_ledgers_of(pod.uid)
        if pod.node:
            reservation = reservation_of(pod.request, read_placement(pod))
            self._by_node.setdefault(pod.node, {})[pod.uid] = reservation
            self._free.pop(pod.node, None)

    def note_bound(self, pod: GpuPod, node: str) -> None:
        """Store that POD is now bound to NODE; POD has the state before the binding."""
        if pod.request.total and pod.uid not in self._gone:
            self._put(replace(pod, node=node))

    def drop_pod(self, uid: str) -> None:
        """Remove the pod UID, which has ended or was deleted; the same UID never exists again."""
        self._remove(uid)
        self._mark_gone(uid)

    def pods(self) -> frozenset[str]:
        """Return the UIDs of all pods, also of pods that are only in a ledger."""
        return frozenset(self._pods.keys() | self._ledgers_of.keys())

    def put_node(self, document: object) -> None:
        """Store the Node object DOCUMENT, or raise ValueError if DOCUMENT is not a Node."""
        node = read_node(document, self.resources)
        if self.capacities.get(node.name) != node:
            self.capacities[node.name] = node
            self._free.pop(node.name, None)

    def drop_node(self, name: str) -> None:
        """Remove the node NAME; separate events remove the node's pods."""
        self._drop_ledger(name)
        for known in (self.capacities, self._free):
            known.pop(name, None)

    def nodes(self) -> frozenset[str]:
        """Return the names of all nodes."""
        return frozenset(self.capacities)

    def put_unhealthy(self, configmap: object) -> None:
        """Store the unhealthy GPUs in CONFIGMAP if CONFIGMAP is a list of such GPUs."""
        listed = unhealthy_gpus(configmap)
        if listed is not None:
            node, gpus = listed
            self._unhealthy.setdefault(node, {})[object_name(configmap)] = gpus
            self._free.pop(node, None)

    def drop_unhealthy(self, name: str) -> None:
        """Remove the unhealthy GPUs that the ConfigMap NAME lists."""
        prefix = next((each for each in UNHEALTHY if name.startswith(each)), "")
        node = name.removeprefix(prefix)
        if prefix and self._unhealthy.get(node, {}).pop(name, None) is not None:
            self._free.pop(node, None)

    def unhealthy_lists(self) -> frozenset[str]:
        """Return the names of all ConfigMaps that list unhealthy GPUs."""
        return frozenset(name for listed in self._unhealthy.values() for name in listed)

    def put_ledger(self, node: str, ledger: Ledger) -> None:
        """Store the reservations in the LEDGER of NODE, which was read or written just now."""
        self._drop_ledger(node)
        self._ledger_read_s[node] = self._clock()
        self._in_ledger[node] = {entry.uid: entry.reservation for entry in ledger.entries}
        for entry in ledger.entries:
            self._ledgers_of.setdefault(entry.uid, set()).add(node)
        self._free.pop(node, None)

    def drop_old_ledgers(self) -> None:
        """Remove ledgers that were read more than LEDGER_S ago.

        Other writers may have removed reservations from such a ledger. With the old ledger, the node would
        still seem full. Then no bind to this node would start, and no bind would read the ledger again.
        """
        for node in [each for each, at_s in self._ledger_read_s.items() if self._clock() - at_s > LEDGER_S]:
            self._drop_ledger(node)
            self._free.pop(node, None)

    # Queries.

    def count(self) -> int:
        """Return the number of pods."""
        return len(self._pods)

    def units(self) -> tuple[int, int]:
        """Return the number of units of all nodes, and the number of reserved units."""
        capacities = [free for name in self.capacities if (free := self.free_capacity(name)) is not None]
        used = sum(free.reserved for free in capacities)
        return sum(node.capacity for node in self.capacities.values()), used

    def pod(self, uid: str) -> GpuPod | None:
        """Return the pod UID, or None if the pod has ended or is not in the index."""
        return self._pods.get(uid)

    def pods_on(self, node: str) -> Iterator[tuple[GpuPod, Reservation]]:
        """Yield the pods that are bound to NODE, each with its reservation."""
        in_ledger = self._in_ledger.get(node, {})
        for uid, annotated in self._by_node.get(node, {}).items():
            yield self._pods[uid], combine_reservations(in_ledger.get(uid), annotated)

    def free_capacity(self, node: str, uid: str = "") -> FreeCapacity | None:
        """Return the free capacity of NODE, or None if NODE is unknown.

        An entry of the pod UID in the ledger does not reduce the free capacity.
        """
        if node in self._ledgers_of.get(uid, ()):
            in_ledger = self._in_ledger.get(node, {})
            return self._computed(node, in_ledger, without=uid) if node in self.capacities else None
        found = self._free.get(node)
        if found is None and node in self.capacities:
            found = self._free[node] = self._computed(node, self._in_ledger.get(node, {}))
        return found

    def free_capacity_by(self, node: str, ledger: Ledger, uid: str) -> FreeCapacity:
        """Return the free capacity of NODE with its present LEDGER, without reservations of the pod UID."""
        in_ledger = {entry.uid: entry.reservation for entry in ledger.entries}
        return self._computed(node, in_ledger, without=uid)

    def is_obsolete(self, node: str, uid: str) -> bool:
        """Return whether the pod UID does not need its reservation on NODE any more."""
        return uid not in self._by_node.get(node, {}) and self._is_elsewhere(uid, node)

    def is_bound(self, node: str, uid: str) -> bool:
        """Return whether the pod UID is bound to NODE according to the index."""
        return uid in self._by_node.get(node, {})

    def unhealthy(self, node: str) -> frozenset[int]:
        """Return the GPUs of NODE that ConfigMaps list as unhealthy."""
        return frozenset().union(*self._unhealthy.get(node, {}).values())

    def _computed(
        self, node: str, in_ledger: Mapping[str, Reservation], *, without: str = ""
    ) -> FreeCapacity:
        reservations = self._reservations(node, in_ledger, without)
        return free_capacity(self.capacities[node], self.unhealthy(node), reservations)

    def _reservations(
        self, node: str, in_ledger: Mapping[str, Reservation], without: str
    ) -> Iterator[Reservation]:
        annotated = self._by_node.get(node, {})
        for uid in annotated.keys() | in_ledger.keys():
            if uid == without or (uid not in annotated and self._is_elsewhere(uid, node)):
                continue
            yield combine_reservations(in_ledger.get(uid), annotated.get(uid))

    def _is_elsewhere(self, uid: str, node: str) -> bool:
        """Return whether the pod UID has ended or is bound to another node than NODE.

        Both states are permanent.
        """
        pod = self._pods.get(uid)
        return uid in self._gone or (pod is not None and pod.node not in {"", node})

    def _drop_ledger(self, node: str) -> None:
        self._ledger_read_s.pop(node, None)
        for uid in self._in_ledger.pop(node, {}):
            nodes = self._ledgers_of[uid]
            nodes.discard(node)
            if not nodes:
                del self._ledgers_of[uid]

    def _invalidate_ledgers_of(self, uid: str) -> None:
        """Remove the computed free capacity of all nodes whose ledgers have the pod UID."""
        for node in self._ledgers_of.get(uid, ()):
            self._free.pop(node, None)

    def _mark_gone(self, uid: str) -> None:
        self._gone[uid] = None
        self._invalidate_ledgers_of(uid)
        while len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]

    def _remove(self, uid: str) -> None:
        old = self._pods.pop(uid, None)
        if old is not None and old.node:
            on_node = self._by_node.get(old.node, {})
            on_node.pop(uid, None)
            if not on_node:
                self._by_node.pop(old.node, None)
            self._free.pop(old.node, None)
