"""``NodeWriter`` writes the annotation and GPU count of the Node, and corrects reservations."""

from __future__ import annotations

import threading
import time

from cdigen.kubelet.gpu_memory.assign import AllocationRefusedError, mismatch, repair
from cdigen.kubelet.gpu_memory.node_status import NodeUpdateError, update_node
from cdigen.kubelet.gpu_memory.state import GpuMemoryState
from cdigen.model.times.backoff import Backoff
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.gpushare.names import Resources
    from cdigen.kubeapi.client import Client
    from cdigen.kubelet.gpu_memory.node_pods import NodePods

# The delay before a repair, because the kubelet must store its response first.
_REPAIR_AFTER_S = 1.0
_REPAIR_EVERY_S = 60.0
_BACKOFF = Backoff(first_s=5.0, most_s=_REPAIR_EVERY_S)


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
