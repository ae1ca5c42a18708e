"""``NodePods``: the pods of a node and their reservations, from the API server and from the kubelet.

A reflector stores the pods of the API server. The kubelet's list of pods has the devices of containers.
"""

from __future__ import annotations

import threading
import time

from cdigen.kubeapi.calls import UNKNOWN, drive
from cdigen.kubeapi.reflector import ObjectStore, Reflector
from cdigen.kubelet.gpu_memory.allocations import STORED_S
from cdigen.kubelet.gpu_memory.assign import AllocationRefusedError, AssignContext, active_pods
from cdigen.kubelet.gpu_memory.reservations import NodeReservations
from cdigen.kubelet.pods import PodList
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeVar

    from cdigen.gpushare.names import Resources
    from cdigen.kubeapi.calls import Call, Reply
    from cdigen.kubeapi.client import Client
    from cdigen.kubelet.resources.memory import AdvertisedMemory

    T = TypeVar("T")


class NodePods:
    """The pods of CONTEXT's node. CLIENT watches the pods until STOPPING is set.

    A thread that uses ``reservations`` holds ``lock``. ``offer`` is the advertised memory, or None. LOG is
    called with a line about each new problem of the watch.
    """

    def __init__(
        self,
        client: Client,
        context: AssignContext,
        resources: Resources,
        log: Callable[[str], object],
        stopping: threading.Event,
    ) -> None:
        self.lock = threading.Lock()
        self.reservations = NodeReservations(resources, {}, context.namespace)
        self.context = context
        self.offer: AdvertisedMemory | None = None
        self.has_advertised = False
        self._resource = resources.memory
        self._log = log
        self.reflector = Reflector(
            client,
            "/api/v1/pods",
            ObjectStore(key="uid", put=self._put, drop=self._drop, known=self._known),
            stopping,
            field_selector=active_pods(context.node),
            on_change=self._on_watch_change,
        )
        # The last logged problem of the watch.
        self._watch_problem = ""
        # The kubelet's last list of pods, and a list that is not applied to the reservations yet.
        self._pods = PodList(devices=(), names=frozenset())
        self._pending_list: tuple[dict[tuple[str, str], int], frozenset[str], float] | None = None

    @property
    def problem(self) -> str:
        """The reason why the pod of a request cannot be identified now, or ""."""
        if self.reflector.problem:
            return f"the API server: {self.reflector.problem}"
        return "" if self.reflector.is_synced else "the API server has not listed this node's pods yet"

    def advertise(self, offer: AdvertisedMemory | None) -> bool:
        """Set OFFER; return False if OFFER is set already."""
        with self.lock:
            has_begun, self.has_advertised = self.has_advertised, True
            if has_begun and offer == self.offer:
                return False
            before, self.offer = self.offer, offer
            self.reservations.sizes = {gpu.index: gpu.units for gpu in offer.gpus} if offer else {}
            if before is not None and offer is not None and _are_renumbered(before, offer):
                # The known allocations have old indices. The kubelet's list has ids, which identify the GPUs.
                self.reservations.forget()
                found = _gpus_of(offer, self._pods)
                self._pending_list = found, self._pods.names, time.monotonic() + STORED_S
        return True

    def set_pods(self, pods: PodList, requested_s: float) -> bool:
        """Set the kubelet's list of pods, requested at REQUESTED_S; return False if there is no offer."""
        offer = self.offer
        if offer is None:
            return False
        ours = tuple(pod for pod in pods.devices if pod.resource == self._resource)
        pods = replace(pods, devices=ours)
        found = _gpus_of(offer, pods)
        with self.lock:
            self._pods, self._pending_list = pods, (found, pods.names, requested_s)
        return True

    def apply_pod_list(self) -> None:
        """Apply the kubelet's list to the reservations if the pods of the node are known."""
        with self.lock:
            if self._pending_list is not None and self.reflector.is_synced:
                self.reservations.apply_pod_list(*self._pending_list)
                self._pending_list = None

    def drive(self, steps: Generator[Call, Reply, T], client: Client, begun_s: float, limit_s: float) -> T:
        """Run STEPS, which began at BEGUN_S, and return their result.

        Raises ``AllocationRefusedError`` if the next call would begin after LIMIT_S.
        """

        def send(call: Call, before: Reply | None) -> Reply:
            if time.monotonic() >= begun_s + limit_s:
                reason = f": {before.text}" if before is not None and before.status == UNKNOWN else ""
                raise AllocationRefusedError(f"the API server did not answer within {limit_s:g} s{reason}")
            return client.send(call)

        return drive(steps, self.lock, send)

    # Functions for the reflector, which stores the node's pods here.

    def _put(self, found: object) -> None:
        with self.lock:
            self.reservations.put(found)

    def _drop(self, uid: str) -> None:
        with self.lock:
            self.reservations.drop(uid)

    def _known(self) -> frozenset[str]:
        with self.lock:
            return frozenset(self.reservations.bound_pods)

    def _on_watch_change(self) -> None:
        """Log a new problem of the watch."""
        before, self._watch_problem = self._watch_problem, self.reflector.problem
        if self._watch_problem not in {"", before}:
            self._log(f"pods of {self.context.node} are unknown: {self.problem}")


def _gpus_of(offer: AdvertisedMemory, pods: PodList) -> dict[tuple[str, str], int]:
    """Return the GPU index in OFFER for each container of PODS, by pod and container."""
    found: dict[tuple[str, str], int] = {}
    for pod in pods.devices:
        gpus = {gpu.index for id_ in pod.ids if (gpu := offer.gpu_of(id_))}
        if len(gpus) == 1:
            found[f"{pod.namespace}/{pod.pod}", pod.container] = gpus.pop()
    return found


def _are_renumbered(before: AdvertisedMemory, after: AdvertisedMemory) -> bool:
    """Return whether the index of a GPU differs between BEFORE and AFTER."""
    indices = {gpu.id: gpu.index for gpu in before.gpus}
    return any(indices.get(gpu.id, gpu.index) != gpu.index for gpu in after.gpus)
