"""``NodeWriter`` writes the annotation and GPU count of the Node, and corrects reservations.

``update_node`` is a generator of requests to the API server. Both values of the Node are written through the
subresource ``status``, which cannot change taints or the specification. The kubelet sets the GPU count to
zero when the kubelet starts (kubernetes, pkg/kubelet/kubelet_node_status.go, reconcileExtendedResource). A
Node may also be deleted and created again. So the Node is read before each write.
"""

from __future__ import annotations

import threading
import time
from types import MappingProxyType
from urllib.parse import quote

from cdigen.gpushare import names
from cdigen.gpushare.nodes import NodeGpu, node_annotation
from cdigen.gpushare.quantity import parse_quantity
from cdigen.kubeapi.calls import MERGE, Call, Reply
from cdigen.kubelet.gpu_memory.assign import AllocationRefusedError, mismatch, repair
from cdigen.model.times.backoff import Backoff
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    from cdigen.gpushare.names import Resources
    from cdigen.kubeapi.client import Client
    from cdigen.kubelet.gpu_memory.node_pods import NodePods
    from cdigen.kubelet.resources.memory import AdvertisedMemory

# The delay before a repair, because the kubelet must store its response first.
_REPAIR_AFTER_S = 1.0
_REPAIR_EVERY_S = 60.0
_BACKOFF = Backoff(first_s=5.0, most_s=_REPAIR_EVERY_S)
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


class NodeUpdateError(Exception):
    """The Node object is not up to date; the text is the reason."""


class NodeWriter:
    """Writes through CLIENT, until STOPPING is set, what differs from PODS.

    ``due`` is set after a change. ``state`` has the problems. LOG is called with a line about each new
    problem.
    """

    def __init__(
        self,
        pods: NodePods,
        client: Client,
        resources: Resources,
        log: Callable[[str], object],
        stopping: threading.Event,
    ) -> None:
        self.due = threading.Event()
        self.state = GpuMemoryState(node=pods.context.node)
        self._pods = pods
        self._client = client
        self._resources = resources
        self._log = log
        self._stopping = stopping

    def run(self) -> None:
        """Write after each change, and repeatedly."""
        wait_s, failures = 0.0, 0
        while not self._stopping.is_set():
            self.due.wait(wait_s)
            self.due.clear()
            if self._stopping.wait(_REPAIR_AFTER_S):
                break
            is_done = not self._pods.has_advertised or self._update_node()
            if self._pods.reflector.is_synced:
                is_done = self._repair() and is_done
            wait_s = _REPAIR_EVERY_S if is_done else _BACKOFF.delay(failures)
            failures = 0 if is_done else failures + 1
        self._client.close()

    def clear_node(self) -> None:
        """Remove annotation and GPU count from the Node; try until this succeeds."""
        failures = 0
        while not self._update_node() and not self._stopping.wait(_BACKOFF.delay(failures)):
            failures += 1
        self._client.close()

    def _repair(self) -> bool:
        pods = self._pods
        pods.apply_pod_list()
        problem, changed = "", 0
        try:
            steps = repair(pods.reservations, pods.context)
            changed = pods.drive(steps, self._client, time.monotonic(), _REPAIR_EVERY_S)
        except AllocationRefusedError as refusal:
            problem = str(refusal)
        except Exception as error:  # noqa: BLE001 - an invalid response must not end the thread
            problem = f"reservations cannot be corrected: {type(error).__name__}: {error}"
        problem = problem or self._mismatch()
        self._set_state(reservation_problem=problem, repaired=self.state.repaired + changed)
        return not problem

    def _mismatch(self) -> str:
        """Return a problem if the ledger of the pod that was bound last is in another namespace, or ""."""
        with self._pods.lock:
            reservations = self._pods.reservations
            last = max(reservations.bound_pods.values(), key=lambda bound: bound.assumed_ns, default=None)
            return (
                mismatch(last, self._pods.context) if last and reservations.has_foreign_ledger(last) else ""
            )

    def _update_node(self) -> bool:
        """Update the Node's annotation and GPU count; return whether they are up to date."""
        pods, problem = self._pods, ""
        try:
            steps = update_node(pods.context.node, pods.offer, self._resources)
            uid = pods.drive(steps, self._client, time.monotonic(), _REPAIR_EVERY_S)
            pods.context = replace(pods.context, node_uid=uid)
        except (NodeUpdateError, AllocationRefusedError) as refusal:
            problem = str(refusal)
        except Exception as error:  # noqa: BLE001 - an invalid response must not end the thread
            problem = f"invalid response of the API server about the node: {type(error).__name__}: {error}"
        self._set_state(node_problem=problem)
        return not problem

    def _set_state(self, **changed: object) -> None:
        """Set the CHANGED members of the state, and log a new problem."""
        before, self.state = self.state, replace(self.state, **changed)
        for was, now in (
            (before.node_problem, self.state.node_problem),
            (before.reservation_problem, self.state.reservation_problem),
        ):
            if now and now != was:
                self._log(now)


def update_node(
    node: str, offer: AdvertisedMemory | None, resources: Resources
) -> Generator[Call, Reply, str]:
    """Write the annotation and the GPU count of OFFER to NODE, and return the Node's UID.

    If OFFER is None, the annotation and the GPU count are removed. If the Node is up to date, nothing is
    written. Raise ``NodeUpdateError`` if the API server refuses a request.
    """
    path = f"/api/v1/nodes/{quote(node, safe='')}"
    found = yield Call(method="GET", path=path)
    if found.status == 404:
        raise NodeUpdateError(f"the API server has no node {node}: set its name with --node-name")
    body = _body(found, "GET", path)
    gpus = [
        NodeGpu(index=gpu.index, units=gpu.units, uuid=gpu.uuid, is_healthy=gpu.is_healthy)
        for gpu in (offer.gpus if offer else ())
    ]
    text, count = (node_annotation(gpus), len(gpus)) if gpus else (None, None)
    metadata, status = (_members(body.get(key)) for key in ("metadata", "status"))
    change: dict[str, object] = {}
    if _members(metadata.get("annotations")).get(names.GPUS) != text:
        change["metadata"] = {"annotations": {names.GPUS: text}}
    parts = ("capacity", "allocatable")
    if any(_count(_members(status.get(part)), resources.count) != count for part in parts):
        counts = {resources.count: None if count is None else str(count)}
        change["status"] = dict.fromkeys(parts, counts)
    if change:
        path = f"{path}/status"
        _body((yield Call(method="PATCH", path=path, body=change, content_type=MERGE)), "PATCH", path)
    return str(metadata.get("uid") or "")


def _body(reply: Reply, method: str, path: str) -> Any:
    if not reply.is_done:
        raise NodeUpdateError(f"the API server refused {method} {path}: {reply.text}")
    return reply.body


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(values: dict[str, Any], name: str) -> int | None:
    """Return the number NAME of VALUES. None means that NAME is missing. -1 means an invalid number."""
    try:
        return parse_quantity(values[name]) if name in values else None
    except ValueError:
        return -1
