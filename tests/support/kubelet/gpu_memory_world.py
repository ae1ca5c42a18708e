"""A model of a node: a kubelet that admits pods, extenders that bind pods, and the plugin: `World`."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from support.kubernetes.cluster_model import Cluster, index_of
from support.kubernetes.gpu_memory_pods import RESOURCES, container, node_object, pod_object

from cdigen.extender.binding import BindConfig as BindingTerms
from cdigen.extender.binding import BindRequest, bind
from cdigen.gpushare.free_capacity import combine_reservations
from cdigen.gpushare.ledger import read_ledger
from cdigen.gpushare.names import ledger_name
from cdigen.gpushare.reservations import ContainerPlacement, is_assigned, read_placement
from cdigen.kubeapi.calls import UNKNOWN, Reply, configmap_path
from cdigen.kubelet.gpu_memory.allocations import STORED_S
from cdigen.kubelet.gpu_memory.assign import AllocationRefusedError, AssignContext, assign, repair
from cdigen.kubelet.gpu_memory.bound_pods import gpu_at, read_bound, reserved_placement
from cdigen.kubelet.gpu_memory.reservations import NodeReservations

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cdigen.kubeapi.calls import Call
    from cdigen.kubelet.gpu_memory.bound_pods import BoundPod

NODE = "node1"
POD = "/api/v1/namespaces/default/pods/"
CONTEXT = AssignContext(node=NODE, namespace="kube-system")


class World:
    """NODE with GPUs of SIZES. `held` has the GPU and the units of each container in the kubelet's record."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = dict(enumerate(sizes))
        self.cluster = Cluster()
        self.cluster.add_node(node_object(NODE, sizes))
        self.held: dict[tuple[str, str], tuple[int, int]] = {}
        # The pods that the kubelet has admitted; they may still pull images.
        self.admitted: set[str] = set()
        self.refused: list[str] = []
        self.created = 0
        self.reservations = NodeReservations(RESOURCES, self.sizes)
        self.seen = 0
        # Whether requests of the plugin have failed, or other writers have changed objects meanwhile.
        self.is_disturbed = False
        # Whether the kubelet has sent a request before the plugin had received all events. In this case, the
        # reservations of pods that are not admitted yet may exceed the capacity.
        self.is_late = False
        # Whether units were assigned to the wrong pod, and this pod or the right pod has several containers.
        self.is_guessed = False

    def create(self, *units: int, early: int = 0, is_bound: bool = True) -> str:
        """Create a pod, and let an extender bind it if it fits; return its name."""
        name = f"p{self.created}"
        self.created += 1
        inits = [container(early, "early")] if early else []
        self.cluster.add_pod(pod_object(name, *units, inits=inits))
        if is_bound:
            self.bind(name)
        return name

    def bind(self, name: str) -> str:
        """Bind the pod NAME by an extender with a new index; return the problem, or "" if it is bound."""
        request = BindRequest(namespace="default", name=name, uid=f"uid-{name}", node=NODE)
        self.created += 1
        context = BindingTerms(namespace="kube-system", token=f"e{self.created}", now_ns=self.created)
        return str(self.drive(bind(request, index_of(self.cluster), context)))

    def drive(self, steps: Generator[Call, Reply, Any], fate: Callable[[], str] = lambda: "done") -> Any:
        """Run STEPS against the cluster. FATE returns the fate of each request.

        The fate is "done", "no answer" (only the reply is lost), "killed" (the steps end), or another text
        (the request is lost).
        """
        try:
            call = next(steps)
            while True:
                version, outcome = self.cluster.version, fate()
                self.is_disturbed |= outcome != "done" or version != self.cluster.version
                self.is_late |= outcome != "done"
                if outcome == "killed":
                    steps.close()
                    return None
                reply = Reply(status=UNKNOWN, body={}, reason="lost")
                if outcome in {"done", "no answer"}:
                    done = self.answer(call)
                    reply = done if outcome == "done" else reply
                call = steps.send(reply)
        except StopIteration as result:
            return result.value

    def answer(self, call: Call) -> Reply:
        if call.is_raw:
            items = [pod for pod in self.cluster.pods() if pod["spec"].get("nodeName") == NODE]
            return Reply(status=200, body={}, content=json.dumps({"items": items}).encode())
        return self.cluster.answer(call)

    # The kubelet.

    def free(self) -> dict[int, int]:
        """Return the free units of each GPU; app containers reuse the units of init containers."""
        free = dict(self.sizes)
        for units in self._by_pod().values():
            for gpu, count in units.items():
                free[gpu] -= count
        return free

    def _by_pod(self) -> dict[str, dict[int, int]]:
        early: dict[str, dict[int, int]] = {}
        late: dict[str, dict[int, int]] = {}
        for (uid, name), (gpu, count) in self.held.items():
            units = (early if name == "early" else late).setdefault(uid, {})
            units[gpu] = units.get(gpu, 0) + count
        return {
            uid: {
                gpu: max(early.get(uid, {}).get(gpu, 0), late.get(uid, {}).get(gpu, 0)) for gpu in self.sizes
            }
            for uid in early.keys() | late.keys()
        }

    def admit(self, name: str, fate: Callable[[], str] = lambda: "done", stray: int = 0) -> bool:
        """Admit the bound pod NAME as the kubelet does, and return whether it is admitted.

        If STRAY is not 0, the kubelet may choose another GPU than the preferred one.
        """
        bound = read_bound(self.cluster.objects[POD + name], RESOURCES)
        assert bound is not None
        uid = bound.pod.uid
        is_late = self.seen < len(self.cluster.events)
        self.is_late |= is_late
        for request in bound.requests:
            if not is_late:
                self.receive()
            reused = self._reused(uid, request.units) if request.index >= 0 else None
            gpu = reused if reused is not None else self._choose(uid, request.units, stray)
            if gpu is None:
                return self.fail(name, f"no GPU has {request.units} units free")
            try:
                # The container's own ids, and the ids of the init container whose units it reuses.
                again = self.held.get((uid, "early"), (-1, 0))[0] == gpu and request.index >= 0
                again = again and not any(key[0] == uid and key[1] != "early" for key in self.held)
                ids = frozenset({f"{uid}-{request.container}", *([f"{uid}-early"] if again else [])})
                self.is_disturbed = False
                assignment = self.drive(assign(self.reservations, gpu, request.units, CONTEXT, ids), fate)
            except AllocationRefusedError as refusal:
                if _is_plain(bound, request.units) and not self.is_disturbed:
                    self.hold(gpu, request.units, str(refusal))
                return self.fail(name, str(refusal))
            if assignment is None:
                return self.fail(name, "killed")
            self.held[uid, request.container] = (gpu, request.units)
            if assignment.bound.pod.uid != uid and len(assignment.bound.requests) + len(bound.requests) > 2:
                self.is_guessed = True
            if POD + name not in self.cluster.objects:
                self.release(uid)
                return False
        self.admitted.add(name)
        return True

    def run(self, name: str) -> None:
        """Start the containers of the admitted pod NAME; this may be minutes after the admission."""
        found = self.cluster.objects[POD + name]
        self.cluster.put(POD + name, {**found, "status": {"phase": "Running"}})

    def hold(self, gpu: int, units: int, refusal: str) -> None:
        """Assert that the refusal of UNITS on GPU, with the text REFUSAL, is right."""
        assert self.is_refusal_right(gpu, units), refusal

    def is_refusal_right(self, gpu: int, units: int) -> bool:
        """Return whether the plugin may refuse UNITS of GPU.

        The plugin may refuse them if no waiting pod that requests only UNITS has an unused reservation on
        GPU, and if GPU has not enough free units for such a pod. A reservation on GPU is used if an admitted
        container of the same size has units of GPU, although its reservation is on another GPU. The plugin
        may also refuse the units if the request may be for a pod that must stay on one GPU.
        """
        ledger = read_ledger(self.cluster.objects.get(configmap_path("kube-system", ledger_name(NODE)), {}))
        bound_pods = [read_bound(found, RESOURCES) for found in self.answer_list()]
        known = [bound for bound in bound_pods if bound is not None and not bound.pod.is_ended]
        waiting = [b for b in known if b.pod.name not in self.admitted and _is_plain(b, units)]
        if any(
            each.units == units
            for bound in known
            if bound.pod.name not in self.admitted and bound.pod.request.on_one_gpu
            for each in bound.requests
        ):
            return True
        place = ContainerPlacement(containers=((0, gpu),), gpu=gpu)
        exchanged = [
            b
            for b in known
            if b.pod.name in self.admitted and _is_plain(b, units) and reserved_placement(b, ledger) != place
            if self.held[b.pod.uid, b.requests[0].container][0] == gpu
        ]
        if sum(reserved_placement(bound, ledger) == place for bound in waiting) > len(exchanged):
            return False
        shown = {b.pod.uid: b.reservation(b.annotated_placement()) for b in known}
        recorded = {entry.uid: entry.reservation for entry in ledger.entries}
        held = self._by_pod()

        def used(uid: str) -> int:
            claim = combine_reservations(recorded.get(uid), shown.get(uid))
            return max(dict(claim.on).get(gpu, 0) + claim.unplaced, held.get(uid, {}).get(gpu, 0))

        uids = recorded.keys() | shown.keys()
        return all(
            sum(used(uid) for uid in uids - {bound.pod.uid}) + units > self.sizes[gpu] for bound in waiting
        )

    def _reused(self, uid: str, units: int) -> int | None:
        gpu, count = self.held.get((uid, "early"), (-1, 0))
        late = sum(n for (pod, name), (_, n) in self.held.items() if pod == uid and name != "early")
        return gpu if count - late >= units else None

    def _choose(self, uid: str, units: int, stray: int) -> int | None:
        free = self.free()
        gpu, count = self.held.get((uid, "early"), (-1, 0))
        late = sum(n for (pod, name), (_, n) in self.held.items() if pod == uid and name != "early")
        if count > late:
            # The kubelet allocates the remaining units of the init container first, as required units.
            free[gpu] += count - late
            return self.reservations.preferred_gpu(free, (gpu,), units)
        fitting = sorted(gpu for gpu, count in free.items() if count >= units)
        if stray and fitting:
            return fitting[stray % len(fitting)]
        return self.reservations.preferred_gpu(free, (), units)

    def fail(self, name: str, reason: str) -> bool:
        self.refused.append(reason)
        self.release(f"uid-{name}")
        if found := self.cluster.objects.get(POD + name):
            self.cluster.put(POD + name, {**found, "status": {"phase": "Failed"}})
        return False

    def release(self, uid: str) -> None:
        self.held = {key: value for key, value in self.held.items() if key[0] != uid}

    def delete(self, name: str) -> None:
        self.cluster.delete(POD + name)
        self.release(f"uid-{name}")

    # The plugin.

    def receive(self, count: int = 1 << 30) -> None:
        """Send COUNT further events to the plugin."""
        for kind, found in self.cluster.events[self.seen :][:count]:
            self.seen += 1
            if found["kind"] == "Pod" and found["spec"].get("nodeName") == NODE:
                if kind == "DELETED":
                    self.reservations.drop(found["metadata"]["uid"])
                else:
                    self.reservations.put(found)

    def restart(self) -> None:
        """Restart the plugin: it lists the pods, and gets the kubelet's list."""
        self.reservations = NodeReservations(RESOURCES, self.sizes)
        self.seen = len(self.cluster.events)
        for found in self.answer_list():
            self.reservations.put(found)
        self.apply_pod_list()

    def answer_list(self) -> list[dict[str, Any]]:
        return [pod for pod in self.cluster.pods() if pod["spec"].get("nodeName") == NODE]

    def apply_pod_list(self) -> None:
        """Apply the kubelet's list of pods, which has no init containers.

        Source: kubernetes, pkg/kubelet/apis/podresources/server_v1.go, List.
        """
        listed = {
            (f"default/{uid[4:]}", name): gpu
            for (uid, name), (gpu, _) in self.held.items()
            if name != "early"
        }
        names = {f"default/{found['metadata']['name']}" for found in self.answer_list()}
        self.reservations.apply_pod_list(listed, names, time.monotonic() + 2 * STORED_S)

    def repair(self, fate: Callable[[], str] = lambda: "done") -> None:
        self.apply_pod_list()
        with suppress(AllocationRefusedError):  # the next repair tries again
            self.drive(repair(self.reservations, CONTEXT), fate)

    # Invariants.

    def pending(self) -> list[str]:
        """Return the bound pods that are not admitted yet."""
        names = [p["metadata"]["name"] for p in self.answer_list() if p["status"]["phase"] == "Pending"]
        return [name for name in names if name not in self.admitted]

    def starting(self) -> list[str]:
        """Return the admitted pods that do not run yet."""
        names = [p["metadata"]["name"] for p in self.answer_list() if p["status"]["phase"] == "Pending"]
        return [name for name in names if name in self.admitted]

    def check(self) -> None:
        """Assert that ids, annotations and ledger name the same GPUs, as they must after a repair."""
        assert all(count >= 0 for count in self.free().values())
        ledger = read_ledger(self.cluster.objects.get(configmap_path("kube-system", ledger_name(NODE)), {}))
        for found in self.answer_list():
            bound = read_bound(found, RESOURCES)
            assert bound is not None
            if bound.pod.is_ended:
                continue
            place = read_placement(bound.pod)
            is_admitted = bound.pod.name in self.admitted
            assert is_assigned(bound.pod) == is_admitted, bound.pod
            for request in bound.requests if is_admitted else ():
                if request.index < 0 and place is not None and place.gpu < 0:
                    continue  # for a pod on several GPUs, annotations have only app containers
                assert gpu_at(place, request) == self.held[bound.pod.uid, request.container][0]
            entry = ledger.entry(bound.pod.uid)
            assert (entry is not None) or not is_admitted
            assert entry is None or entry.reservation == bound.reservation(place)
        # If units were assigned to the wrong pod, and this pod or the right pod has several containers, there
        # may be no exchange between containers of equal sizes. The units then exceed the capacity together
        # with reservations of other pods, and the kubelet refuses those pods.
        if self.is_late or self.is_guessed:
            return
        used = self.cluster.used(NODE)
        assert all(units <= self.sizes.get(gpu, 0) for gpu, units in used.items()), used


def _is_plain(bound: BoundPod, units: int) -> bool:
    """Return whether BOUND requests UNITS in one container, and nothing else."""
    return [request.units for request in bound.requests] == [units] and not bound.pod.request.on_one_gpu
