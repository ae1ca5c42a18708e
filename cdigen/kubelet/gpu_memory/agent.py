"""``Agent``: the client of the API server for GPU memory, with its own threads.

One thread watches the node's pods. Another thread writes the annotation and the GPU count of the Node. This
thread also corrects reservations that differ from the devices of containers. The ids in a request of the
kubelet belong to a GPU. A request waits for the API server if the pod's reservation is on another GPU, or if
the known pods may be out of date (``assign``). This wait is at most 3 s, or 5 s if a call is in progress. The
kubelet may ask for a preference before the watch has the new pod. Then the preference waits for a list of the
pods, at most 2 s.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from cdigen.kubeapi.calls import UNKNOWN, Call, Reply
from cdigen.kubeapi.client import Client
from cdigen.kubeapi.reflector import Reflector
from cdigen.kubelet.gpu_memory.allocations import STORED_S
from cdigen.kubelet.gpu_memory.assign import (
    AllocationRefusedError,
    AssignContext,
    StaleAgentError,
    active_pods,
    assign,
    mismatch,
    read_reservations,
    repair,
)
from cdigen.kubelet.gpu_memory.node_status import NodeUpdateError, update_node
from cdigen.kubelet.gpu_memory.reservations import NodeReservations
from cdigen.kubelet.gpu_memory.state import OUTCOMES, GpuMemoryState
from cdigen.kubelet.pods import PodList
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from typing import TypeVar

    from cdigen.gpushare.names import Resources
    from cdigen.kubeapi.credentials import ApiServerConfig
    from cdigen.kubeapi.reflector import ObjectKey
    from cdigen.kubelet.gpu_memory.assign import Assignment
    from cdigen.kubelet.resources.memory import AdvertisedMemory

    T = TypeVar("T")

# The delay before a repair, because the kubelet must store its response first.
_REPAIR_AFTER_S = 1.0
_REPAIR_EVERY_S = 60.0
_RETRY_S = 5.0


@frozen
class RequestLimits:
    """The limits in seconds for a request of the kubelet.

    ``assign_s`` is the limit for the whole request. The kubelet's own limit is at least 10 s (kubelet 1.20
    has no limit), and each admission delays the next admissions. ``request_s`` is the limit for each response
    of the API server. A call that is in progress at the end of ``assign_s`` is not interrupted, and a read
    may be sent twice. ``pod_list_s`` is the limit for the kubelet's first list of pods, from the start of the
    agent. This list shows pending pods that have their units already and, for example, wait for images.
    """

    assign_s: float = 3.0
    request_s: float = 1.0
    pod_list_s: float = 2.0


class Agent:
    """Watches the pods of NODE at the API server SERVER; the ledgers are in NAMESPACE.

    RESOURCES are the names of the resources. LOG is called with a line about each new error.
    """

    def __init__(  # noqa: PLR0913 - each is a setting of one agent
        self,
        server: ApiServerConfig,
        node: str,
        namespace: str,
        resources: Resources,
        log: Callable[[str], object],
        *,
        limits: RequestLimits = RequestLimits(),  # noqa: B008 - a value
    ) -> None:
        self._limits = limits
        self._node = node
        self._resources = resources
        self._context = AssignContext(node=node, namespace=namespace)
        self._log = log
        self._lock = threading.Lock()
        self._reservations = NodeReservations(resources, {}, namespace)
        # The pods that were known when the watch began to list pods. A request may add pods during that time.
        self._before: frozenset[str] = frozenset()
        self._stop = threading.Event()
        self._due = threading.Event()
        # Requests of the kubelet use their own client, so that they do not wait for other calls.
        self._client = Client(server, timeout_s=limits.request_s, page_timeout_s=limits.assign_s)
        self._executor = ThreadPoolExecutor(1, "gpu-memory-assign")
        self._writer = Client(server)
        selector = active_pods(node)
        self._reflector = Reflector(
            Client(server),
            "/api/v1/pods",
            self,
            self._stop,
            field_selector=selector,
            on_change=self._on_watch_change,
        )
        # The last logged problem of the watch.
        self._watch_problem = ""
        self._offer: AdvertisedMemory | None = None
        self._has_advertised = False
        # The kubelet's last list of pods, and a list that is not applied to the reservations yet.
        self._pods = PodList(devices=(), names=frozenset())
        self._pending_list: tuple[dict[tuple[str, str], int], frozenset[str], float] | None = None
        self._has_pod_list = threading.Event()
        self._begun_s = time.monotonic()
        self._state = GpuMemoryState(node=node)
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._threads = [
            threading.Thread(target=self._reflector.run, name="gpu-memory-pods", daemon=True),
            threading.Thread(target=self._write, name="gpu-memory-write", daemon=True),
        ]

    @property
    def problem(self) -> str:
        """The reason why the pod of a request cannot be identified now, or ""."""
        if self._reflector.problem:
            return f"the API server: {self._reflector.problem}"
        return "" if self._reflector.is_synced else "the API server has not listed this node's pods yet"

    def state(self) -> GpuMemoryState:
        """Return the state of GPU memory sharing."""
        with self._lock:
            pods, served, waiting = self._reservations.counts()
            return replace(
                self._state,
                problem=self.problem,
                pods=pods,
                served=served,
                waiting=waiting,
                outcomes=self._outcomes.copy(),
            )

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def clear_node(self) -> None:
        """Start a thread that removes annotation and GPU count from the Node; used instead of ``start``."""
        threading.Thread(target=self._clear_node, name="gpu-memory-clear-node", daemon=True).start()

    def stop(self) -> None:
        """Stop the threads; do not wait for their end."""
        self._stop.set()
        self._due.set()
        self._executor.submit(self._client.close)
        self._executor.shutdown(wait=False)

    def advertise(self, offer: AdvertisedMemory | None) -> None:
        """Advertise OFFER from now on, or no GPU memory if OFFER is None."""
        with self._lock:
            has_begun, self._has_advertised = self._has_advertised, True
            if has_begun and offer == self._offer:
                return
            before, self._offer = self._offer, offer
            self._reservations.sizes = {gpu.index: gpu.units for gpu in offer.gpus} if offer else {}
            if before is not None and offer is not None and _are_renumbered(before, offer):
                # The known allocations have old indices. The kubelet's list has ids, which identify the GPUs.
                self._reservations.forget()
                self._pending_list = (
                    self._found(offer, self._pods),
                    self._pods.names,
                    time.monotonic() + STORED_S,
                )
        self._due.set()

    def set_pods(self, pods: PodList, requested_s: float) -> None:
        """Set the kubelet's list of pods, which was requested at the monotonic time REQUESTED_S."""
        offer = self._offer
        if offer is None:
            return
        ours = tuple(pod for pod in pods.devices if pod.resource == self._resources.memory)
        pods = replace(pods, devices=ours)
        found = self._found(offer, pods)
        with self._lock:
            self._pods, self._pending_list = pods, (found, pods.names, requested_s)
        self._has_pod_list.set()
        self._due.set()

    def _found(self, offer: AdvertisedMemory, pods: PodList) -> dict[tuple[str, str], int]:
        """Return the GPU index in OFFER for each container of PODS, by pod and container."""
        found: dict[tuple[str, str], int] = {}
        for pod in pods.devices:
            gpus = {gpu.index for id_ in pod.ids if (gpu := offer.gpu_of(id_))}
            if len(gpus) == 1:
                found[f"{pod.namespace}/{pod.pod}", pod.container] = gpus.pop()
        return found

    # Methods for the kubelet's requests.

    def preferred_gpu(self, free: Mapping[int, int], must: Sequence[int], count: int) -> Future[int | None]:
        """Return a future with the GPU for a container with COUNT units (``NodeReservations.preferred_gpu``).

        If no known pod waits for COUNT units, the pods are read first. If the read fails, the result is a GPU
        with COUNT free units.
        """
        if not must and not self._is_known(count):
            with suppress(RuntimeError):  # the agent was stopped
                return self._executor.submit(self._preferred_gpu, free, count)
        done: Future[int | None] = Future()
        with self._lock:
            done.set_result(self._reservations.preferred_gpu(free, must, count))
        return done

    def _is_known(self, count: int) -> bool:
        """Return whether a known pod waits for COUNT units."""
        with self._lock:
            return any(not each.is_doubtful for each in self._reservations.candidates(-1, count))

    def _preferred_gpu(self, free: Mapping[int, int], count: int) -> int | None:
        # The list may have arrived while this call waited for its turn.
        if not self._is_known(count):
            steps = read_reservations(self._reservations, self._context)
            # An invalid response must not fail the pod. The request for the units reads the pods again.
            with suppress(Exception):
                self._drive(steps, self._client, time.monotonic() + self._limits.request_s)
        with self._lock:
            return self._reservations.preferred_gpu(free, (), count)

    def assign(self, gpu: int, ids: frozenset[str]) -> Future[Assignment]:
        """Return a future with the container for the units IDS of GPU; requests run one after another.

        The future raises ``AllocationRefusedError`` if there is no such container. The method raises
        ``StaleAgentError`` if the agent was stopped.
        """
        try:
            return self._executor.submit(self._assign, gpu, ids)
        except RuntimeError:
            raise StaleAgentError("the configuration changed during the request") from None

    def _assign(self, gpu: int, ids: frozenset[str]) -> Assignment:
        until_s = time.monotonic() + self._limits.assign_s
        self._has_pod_list.wait(max(0.0, self._begun_s + self._limits.pod_list_s - time.monotonic()))
        self._apply_pod_list()
        outcome = "refused"
        try:
            found = self._drive(
                assign(self._reservations, gpu, len(ids), self._context, ids), self._client, until_s
            )
            outcome = ("as_reserved", "moved")[found.moves] if found.moves < 2 else "exchanged"
        except AllocationRefusedError:
            raise
        except Exception as error:
            text = f"invalid response of the API server: {type(error).__name__}: {error}"
            raise AllocationRefusedError(text) from error
        finally:
            self._outcomes[outcome] += 1
            self._due.set()
        return found

    def _drive(self, steps: Generator[Call, Reply, T], client: Client, until_s: float) -> T:
        """Run STEPS; hold the lock while STEPS compute, but not during calls to the API server."""
        reply: Reply | None = None
        while True:
            try:
                with self._lock:
                    call = next(steps) if reply is None else steps.send(reply)
            except StopIteration as end:
                found: T = end.value
                return found
            if time.monotonic() >= until_s:
                steps.close()
                reason = f": {reply.text}" if reply is not None and reply.status == UNKNOWN else ""
                raise AllocationRefusedError(
                    f"the API server did not answer within {self._limits.assign_s:g} s{reason}"
                )
            reply = client.send(call)

    # Methods for the reflector, which stores the node's pods here.

    def put(self, found: object) -> None:
        """Add or update a pod."""
        with self._lock:
            self._reservations.put(found)

    def delete(self, found: object) -> None:
        """Remove a pod."""
        with self._lock:
            self._reservations.drop(str(found["metadata"]["uid"]))  # type: ignore[index]

    def begin_list(self) -> None:
        """Store the known pods, because the reflector begins to list the pods."""
        with self._lock:
            self._before = frozenset(self._reservations.bound_pods)

    def end_list(self, listed: Iterable[ObjectKey]) -> None:
        """Remove the pods that were known when the list began, except LISTED."""
        with self._lock:
            self._reservations.keep([each["uid"] for each in listed], self._before)

    def _on_watch_change(self) -> None:
        """Log a new problem of the watch."""
        before, self._watch_problem = self._watch_problem, self._reflector.problem
        if self._watch_problem not in {"", before}:
            self._log(f"pods of {self._node} are unknown: {self.problem}")

    # Methods of the thread that writes.

    def _write(self) -> None:
        wait_s = retry_s = 0.0
        while not self._stop.is_set():
            self._due.wait(wait_s)
            self._due.clear()
            if self._stop.wait(_REPAIR_AFTER_S):
                break
            is_done = not self._has_advertised or self._update_node()
            if self._reflector.is_synced:
                is_done = self._repair() and is_done
            retry_s = 0.0 if is_done else min(max(_RETRY_S, 2 * retry_s), _REPAIR_EVERY_S)
            wait_s = retry_s or _REPAIR_EVERY_S
        self._writer.close()

    def _clear_node(self) -> None:
        wait_s = _RETRY_S
        while not self._update_node() and not self._stop.wait(wait_s):
            wait_s = min(2 * wait_s, _REPAIR_EVERY_S)
        self._writer.close()

    def _apply_pod_list(self) -> None:
        """Apply the kubelet's list to the reservations if the pods of the node are known."""
        with self._lock:
            if self._pending_list is not None and self._reflector.is_synced:
                self._reservations.apply_pod_list(*self._pending_list)
                self._pending_list = None

    def _repair(self) -> bool:
        self._apply_pod_list()
        problem, changed = "", 0
        try:
            steps = repair(self._reservations, self._context)
            changed = self._drive(steps, self._writer, time.monotonic() + _REPAIR_EVERY_S)
        except AllocationRefusedError as refusal:
            problem = str(refusal)
        except Exception as error:  # noqa: BLE001 - an invalid response must not end the thread
            problem = f"reservations cannot be corrected: {type(error).__name__}: {error}"
        problem = problem or self._mismatch()
        self._set_state(reservation_problem=problem, repaired=self._state.repaired + changed)
        return not problem

    def _mismatch(self) -> str:
        """Return a problem if the ledger of the pod that was bound last is in another namespace, or ""."""
        with self._lock:
            bound_pods = self._reservations.bound_pods.values()
            last = max(bound_pods, key=lambda bound: bound.assumed_ns, default=None)
            return (
                mismatch(last, self._context) if last and self._reservations.has_foreign_ledger(last) else ""
            )

    def _update_node(self) -> bool:
        """Update the Node's annotation and GPU count; return whether they are up to date."""
        problem = ""
        try:
            steps = update_node(self._node, self._offer, self._resources)
            uid = self._drive(steps, self._writer, time.monotonic() + _REPAIR_EVERY_S)
            self._context = replace(self._context, node_uid=uid)
        except (NodeUpdateError, AllocationRefusedError) as refusal:
            problem = str(refusal)
        except Exception as error:  # noqa: BLE001 - an invalid response must not end the thread
            problem = f"invalid response of the API server about the node: {type(error).__name__}: {error}"
        self._set_state(node_problem=problem)
        return not problem

    def _set_state(self, **changed: object) -> None:
        """Set the CHANGED members of the state, and log a new problem."""
        before, self._state = self._state, replace(self._state, **changed)
        for was, now in (
            (before.node_problem, self._state.node_problem),
            (before.reservation_problem, self._state.reservation_problem),
        ):
            if now and now != was:
                self._log(now)


def _are_renumbered(before: AdvertisedMemory, after: AdvertisedMemory) -> bool:
    """Return whether the index of a GPU differs between BEFORE and AFTER."""
    indices = {gpu.id: gpu.index for gpu in before.gpus}
    return any(indices.get(gpu.id, gpu.index) != gpu.index for gpu in after.gpus)
