"""A node with a kubelet that admits pods, extenders that bind them, and our side: `World`."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from support.kubernetes.cluster_model import Cluster, index_of
from support.kubernetes.shared_pods import RESOURCES, container, node_object, pod_object

from cdigen.extender.binding import Terms as BindingTerms
from cdigen.extender.binding import Wanted, bind
from cdigen.gpushare.claims import Placement, is_assigned, read_placement
from cdigen.gpushare.ledger import read_ledger
from cdigen.gpushare.names import ledger_name
from cdigen.gpushare.room import counted
from cdigen.kubeapi.calls import UNKNOWN, Reply, configmap_path
from cdigen.kubelet.shares.books import Books
from cdigen.kubelet.shares.bound import gpu_at, place_of, read_bound
from cdigen.kubelet.shares.given import STORED_S
from cdigen.kubelet.shares.settling import ShareRefused, Terms, repair, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cdigen.kubeapi.calls import Call
    from cdigen.kubelet.shares.bound import Bound

NODE = "node1"
POD = "/api/v1/namespaces/default/pods/"
TERMS = Terms(node=NODE, namespace="kube-system")


class World:
    """NODE has GPUs of SIZES; `held` are the units by GPU of each container, as the kubelet has them."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = dict(enumerate(sizes))
        self.cluster = Cluster()
        self.cluster.add_node(node_object(NODE, sizes))
        self.held: dict[tuple[str, str], tuple[int, int]] = {}
        # Pods that the kubelet has admitted; what they have pulled yet is another matter.
        self.admitted: set[str] = set()
        self.refused: list[str] = []
        self.created = 0
        self.books = Books(RESOURCES, self.sizes)
        self.seen = 0
        # Whether requests of ours have failed, or others have changed something between two of them.
        self.is_disturbed = False
        # Whether the kubelet has ever asked us before we had heard of everything: promises to pods that were
        # not admitted yet may then be more than there is.
        self.is_late = False
        # Whether units were taken for those of another pod, where one of both has several containers.
        self.is_guessed = False

    def create(self, *units: int, early: int = 0, is_bound: bool = True) -> str:
        """Create a pod, and let an extender bind it if there is room; returns its name."""
        name = f"p{self.created}"
        self.created += 1
        inits = [container(early, "early")] if early else []
        self.cluster.add_pod(pod_object(name, *units, inits=inits))
        if is_bound:
            self.bind(name)
        return name

    def bind(self, name: str) -> str:
        """Let an extender that knows everything bind the pod NAME; returns why it did not."""
        wanted = Wanted(namespace="default", name=name, uid=f"uid-{name}", node=NODE)
        self.created += 1
        terms = BindingTerms(namespace="kube-system", token=f"e{self.created}", now_ns=self.created)
        return str(self.drive(bind(wanted, index_of(self.cluster), terms)))

    def drive(self, steps: Generator[Call, Reply, Any], fate: Callable[[], str] = lambda: "done") -> Any:
        """Run STEPS against the cluster; each request has a FATE."""
        try:
            call = next(steps)
            while True:
                version, what = self.cluster.version, fate()
                self.is_disturbed |= what != "done" or version != self.cluster.version
                self.is_late |= what != "done"
                if what == "killed":
                    steps.close()
                    return None
                reply = Reply(status=UNKNOWN, body={}, reason="lost")
                if what in {"done", "no answer"}:
                    done = self.answer(call)
                    reply = done if what == "done" else reply
                call = steps.send(reply)
        except StopIteration as end:
            return end.value

    def answer(self, call: Call) -> Reply:
        if call.is_raw:
            items = [pod for pod in self.cluster.pods() if pod["spec"].get("nodeName") == NODE]
            return Reply(status=200, body={}, content=json.dumps({"items": items}).encode())
        return self.cluster.answer(call)

    # The kubelet.

    def free(self) -> dict[int, int]:
        """Return the units of each GPU that no container has; those of init containers are used again."""
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
        """Admit the bound pod NAME as the kubelet does; by STRAY it may choose another GPU than ours."""
        bound = read_bound(self.cluster.objects[POD + name], RESOURCES)
        assert bound is not None
        uid = bound.pod.uid
        is_late = self.seen < len(self.cluster.events)
        self.is_late |= is_late
        for want in bound.wants:
            if not is_late:
                self.hear()
            reused = self._reused(uid, want.units) if want.index >= 0 else None
            gpu = reused if reused is not None else self._choose(uid, want.units, stray)
            if gpu is None:
                return self.fail(name, f"no GPU has {want.units} units free")
            try:
                # Its own ids, and those of the init container that it is given again.
                again = self.held.get((uid, "early"), (-1, 0))[0] == gpu and want.index >= 0
                again = again and not any(key[0] == uid and key[1] != "early" for key in self.held)
                ids = frozenset({f"{uid}-{want.container}", *([f"{uid}-early"] if again else [])})
                self.is_disturbed = False
                settled = self.drive(settle(self.books, gpu, want.units, TERMS, ids), fate)
            except ShareRefused as refusal:
                if _is_plain(bound, want.units) and not self.is_disturbed:
                    self.hold(gpu, want.units, str(refusal))
                return self.fail(name, str(refusal))
            if settled is None:
                return self.fail(name, "killed")
            self.held[uid, want.container] = (gpu, want.units)
            if settled.bound.pod.uid != uid and len(settled.bound.wants) + len(bound.wants) > 2:
                self.is_guessed = True
            if POD + name not in self.cluster.objects:
                self.release(uid)
                return False
        self.admitted.add(name)
        return True

    def run(self, name: str) -> None:
        """Let the containers of the admitted pod NAME run: its image may take minutes."""
        found = self.cluster.objects[POD + name]
        self.cluster.put(POD + name, {**found, "status": {"phase": "Running"}})

    def hold(self, gpu: int, units: int, refusal: str) -> None:
        """Hold a REFUSAL against what the API server knows."""
        assert self.is_refusal_right(gpu, units), refusal

    def is_refusal_right(self, gpu: int, units: int) -> bool:
        """Return whether nobody who waits for UNITS, and for nothing else, can have them of GPU.

        That is: none of them was promised it, so there is nothing to exchange, and there is no room. A
        promise of GPU is used up if an admitted container of the same size has units of GPU and was promised
        others. Where the request may be for a pod that must not be torn apart, a refusal is right as well.
        """
        ledger = read_ledger(self.cluster.objects.get(configmap_path("kube-system", ledger_name(NODE)), {}))
        bounds = [read_bound(found, RESOURCES) for found in self.answer_list()]
        known = [bound for bound in bounds if bound is not None and not bound.pod.is_ended]
        waiting = [b for b in known if b.pod.name not in self.admitted and _is_plain(b, units)]
        if any(
            each.units == units
            for bound in known
            if bound.pod.name not in self.admitted and bound.pod.ask.together
            for each in bound.wants
        ):
            return True
        place = Placement(containers=((0, gpu),), gpu=gpu)
        exchanged = [
            b
            for b in known
            if b.pod.name in self.admitted and _is_plain(b, units) and place_of(b, ledger) != place
            if self.held[b.pod.uid, b.wants[0].container][0] == gpu
        ]
        if sum(place_of(bound, ledger) == place for bound in waiting) > len(exchanged):
            return False
        shown = {b.pod.uid: b.claim(b.shown()) for b in known}
        promised = {entry.uid: entry.claim for entry in ledger.entries}
        held = self._by_pod()

        def used(uid: str) -> int:
            claim = counted(promised.get(uid), shown.get(uid))
            return max(dict(claim.on).get(gpu, 0) + claim.floating, held.get(uid, {}).get(gpu, 0))

        uids = promised.keys() | shown.keys()
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
            # What is left of an init container's comes first, and we are told of it.
            free[gpu] += count - late
            return self.books.prefer(free, (gpu,), units)
        fitting = sorted(gpu for gpu, count in free.items() if count >= units)
        if stray and fitting:
            return fitting[stray % len(fitting)]
        return self.books.prefer(free, (), units)

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

    # Our side.

    def hear(self, count: int = 1 << 30) -> None:
        """Let our side hear of COUNT events."""
        for kind, found in self.cluster.events[self.seen :][:count]:
            self.seen += 1
            if found["kind"] == "Pod" and found["spec"].get("nodeName") == NODE:
                if kind == "DELETED":
                    self.books.drop(found["metadata"]["uid"])
                else:
                    self.books.put(found)

    def restart(self) -> None:
        """Start our side anew: it lists, and asks the kubelet."""
        self.books = Books(RESOURCES, self.sizes)
        self.seen = len(self.cluster.events)
        for found in self.answer_list():
            self.books.put(found)
        self.learn()

    def answer_list(self) -> list[dict[str, Any]]:
        return [pod for pod in self.cluster.pods() if pod["spec"].get("nodeName") == NODE]

    def learn(self) -> None:
        """Let the kubelet tell what containers have: it does not tell of init containers.

        (kubernetes, pkg/kubelet/apis/podresources/server_v1.go, List)
        """
        told = {
            (f"default/{uid[4:]}", name): gpu
            for (uid, name), (gpu, _) in self.held.items()
            if name != "early"
        }
        names = {f"default/{found['metadata']['name']}" for found in self.answer_list()}
        self.books.learn(told, names, time.monotonic() + 2 * STORED_S)

    def repair(self, fate: Callable[[], str] = lambda: "done") -> None:
        self.learn()
        with suppress(ShareRefused):  # what failed is left to the next time
            self.drive(repair(self.books, TERMS), fate)

    # What must hold.

    def pending(self) -> list[str]:
        """Return bound pods that were not admitted yet."""
        names = [p["metadata"]["name"] for p in self.answer_list() if p["status"]["phase"] == "Pending"]
        return [name for name in names if name not in self.admitted]

    def starting(self) -> list[str]:
        """Return pods that were admitted and do not run yet."""
        names = [p["metadata"]["name"] for p in self.answer_list() if p["status"]["phase"] == "Pending"]
        return [name for name in names if name in self.admitted]

    def check(self) -> None:
        """Hold ids, annotations and ledger against each other: after a repair all three are the same."""
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
            for want in bound.wants if is_admitted else ():
                if want.index < 0 and place is not None and place.gpu < 0:
                    continue  # of a pod on several GPUs, annotations have the containers that run
                assert gpu_at(place, want) == self.held[bound.pod.uid, want.container][0]
            entry = ledger.entry(bound.pod.uid)
            assert (entry is not None) or not is_admitted
            assert entry is None or entry.claim == bound.claim(place)
        # Units that were taken for those of a pod with several containers may leave no room for what others
        # were promised: no exchange of equal sizes is sure to fit. The kubelet refuses those then.
        if self.is_late or self.is_guessed:
            return
        used = self.cluster.used(NODE)
        assert all(units <= self.sizes.get(gpu, 0) for gpu, units in used.items()), used


def _is_plain(bound: Bound, units: int) -> bool:
    """Return whether BOUND wants UNITS in one container, and nothing else."""
    return [want.units for want in bound.wants] == [units] and not bound.pod.ask.together
