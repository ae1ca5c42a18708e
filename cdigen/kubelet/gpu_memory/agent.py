"""``Agent``: the client of the API server for GPU memory, with its own threads.

One thread watches the node's pods (``node_pods``). Another thread writes the Node and the reservations
(``node_writer``). The ids in a request of the kubelet belong to a GPU. A request waits for the API server if
the pod's reservation is on another GPU, or if the known pods may be out of date (``assign``). This wait is at
most 3 s, or 5 s if a call is in progress. The kubelet may ask for a preference before the watch has the new
pod. Then the preference waits for a list of the pods, at most 2 s.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from cdigen.kubeapi.client import Client
from cdigen.kubelet.gpu_memory.assign import (
    AllocationRefusedError,
    AssignContext,
    StaleAgentError,
    assign,
    read_reservations,
)
from cdigen.kubelet.gpu_memory.node_pods import NodePods
from cdigen.kubelet.gpu_memory.node_writer import OUTCOMES, GpuMemoryState, NodeWriter
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cdigen.gpushare.names import Resources
    from cdigen.kubeapi.credentials import ApiServerConfig
    from cdigen.kubelet.gpu_memory.assign import Assignment
    from cdigen.kubelet.pods import PodList
    from cdigen.kubelet.resources.memory import AdvertisedMemory


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
        self._stopping = threading.Event()
        context = AssignContext(node=node, namespace=namespace)
        self._pods = NodePods(Client(server), context, resources, log, self._stopping)
        self._writer = NodeWriter(self._pods, Client(server), resources, log, self._stopping)
        # Requests of the kubelet use their own client, so that they do not wait for other calls.
        self._client = Client(server, timeout_s=limits.request_s, page_timeout_s=limits.assign_s)
        self._executor = ThreadPoolExecutor(1, "gpu-memory-assign")
        self._has_pod_list = threading.Event()
        self._begun_s = time.monotonic()
        self._outcomes = dict.fromkeys(OUTCOMES, 0)

    @property
    def problem(self) -> str:
        """The reason why the pod of a request cannot be identified now, or ""."""
        return self._pods.problem

    def state(self) -> GpuMemoryState:
        """Return the state of GPU memory sharing."""
        with self._pods.lock:
            pods, served, waiting = self._pods.reservations.counts()
            return replace(
                self._writer.state,
                problem=self.problem,
                pods=pods,
                served=served,
                waiting=waiting,
                outcomes=self._outcomes.copy(),
            )

    def start(self) -> None:
        """Start the threads."""
        for name, run in (("pods", self._pods.reflector.run), ("write", self._writer.run)):
            threading.Thread(target=run, name=f"gpu-memory-{name}", daemon=True).start()

    def clear_node(self) -> None:
        """Start a thread that removes annotation and GPU count from the Node; used instead of ``start``."""
        threading.Thread(target=self._writer.clear_node, name="gpu-memory-clear-node", daemon=True).start()

    def stop(self) -> None:
        """Stop the threads; do not wait for their end."""
        self._stopping.set()
        self._writer.due.set()
        self._executor.submit(self._client.close)
        self._executor.shutdown(wait=False)

    def advertise(self, offer: AdvertisedMemory | None) -> None:
        """Advertise OFFER from now on, or no GPU memory if OFFER is None."""
        if self._pods.advertise(offer):
            self._writer.due.set()

    def set_pods(self, pods: PodList, requested_s: float) -> None:
        """Set the kubelet's list of pods, which was requested at the monotonic time REQUESTED_S."""
        if self._pods.set_pods(pods, requested_s):
            self._has_pod_list.set()
            self._writer.due.set()

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
        with self._pods.lock:
            done.set_result(self._pods.reservations.preferred_gpu(free, must, count))
        return done

    def _is_known(self, count: int) -> bool:
        """Return whether a known pod waits for COUNT units."""
        with self._pods.lock:
            candidates = self._pods.reservations.candidates(-1, count)
            return any(not each.is_doubtful for each in candidates)

    def _preferred_gpu(self, free: Mapping[int, int], count: int) -> int | None:
        pods = self._pods
        # The list may have arrived while this call waited for its turn.
        if not self._is_known(count):
            steps = read_reservations(pods.reservations, pods.context)
            # An invalid response must not fail the pod. The request for the units reads the pods again.
            with suppress(Exception):
                pods.drive(steps, self._client, time.monotonic(), self._limits.request_s)
        with pods.lock:
            return pods.reservations.preferred_gpu(free, (), count)

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
        pods, begun_s = self._pods, time.monotonic()
        self._has_pod_list.wait(max(0.0, self._begun_s + self._limits.pod_list_s - begun_s))
        pods.apply_pod_list()
        outcome = "refused"
        try:
            steps = assign(pods.reservations, gpu, len(ids), pods.context, ids)
            found = pods.drive(steps, self._client, begun_s, self._limits.assign_s)
            outcome = ("as_reserved", "moved")[found.moves] if found.moves < 2 else "exchanged"
        except AllocationRefusedError:
            raise
        except Exception as error:
            text = f"invalid response of the API server: {type(error).__name__}: {error}"
            raise AllocationRefusedError(text) from error
        finally:
            self._outcomes[outcome] += 1
            self._writer.due.set()
        return found
