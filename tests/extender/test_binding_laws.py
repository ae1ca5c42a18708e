"""No GPU is reserved twice, even if extenders are late, killed, paused or disconnected."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kubernetes.binds import Bind, bind_request, end_list, pod_store
from support.kubernetes.cluster_model import Cluster, index_of, send_event
from support.kubernetes.gpu_memory_pods import container, node_object, pod_object
from support.law_examples import examples

from cdigen.kubeapi.calls import UNKNOWN, Reply

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cdigen.kubeapi.calls import Call

NODES = {"node1": (4, 4), "node2": (6,)}
POD = "/api/v1/namespaces/default/pods/"
# The results of requests. Most requests succeed. Some requests or their replies are lost. Some requests
# are processed later.
FATES = (*["done"] * 9, "no request", "no answer", "late")


class Extender:
    """An extender with its index, the number of received events, and its binds in progress."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        # The index has the present state of the cluster.
        self.index = index_of(cluster)
        self.event_count = len(cluster.events)
        self.binds: list[Bind] = []
        self.store = pod_store(self.index)
        self.known: frozenset[str] = frozenset()
        # A list in progress: its objects, and the number of events that it includes.
        self.list: tuple[list[dict[str, Any]], int] | None = None


class World:
    """A cluster with two extenders; `do` runs an action."""

    def __init__(self, requests: list[Any], *, has_binding_versions: bool) -> None:
        self.cluster = Cluster(has_binding_versions=has_binding_versions)
        for name, sizes in NODES.items():
            self.cluster.add_node(node_object(name, sizes))
        for place, (units, init_units) in enumerate(requests):
            inits = [container(init_units)] if init_units else []
            self.cluster.add_pod(pod_object(f"p{place}", *units, inits=inits))
        self.extenders = [Extender(self.cluster, name) for name in "ab"]
        self.late: list[Call] = []
        self.started = 0

    def do(self, action: int, which: int) -> None:
        """Run the action with the number ACTION on the object with the number WHICH."""
        extender = self.extenders[which % len(self.extenders)]
        rest = which // len(self.extenders)
        actions: list[Callable[[Extender, int], None]] = [
            *[self.start] * 6,
            *[self.step] * 24,
            *[self.receive] * 3,
            *[self.arrive] * 2,
        ]
        actions += [self.relist] * 2
        actions += [self.kill, self.restart, self.end_pod, self.delete_pod, self.delete_pod]
        actions[action % len(actions)](extender, rest)
        self.check()

    def start(self, extender: Extender, rest: int) -> None:
        pods = [pod for pod in self.cluster.pods() if not pod["spec"].get("nodeName")]
        if pods:
            metadata = pods[rest % len(pods)]["metadata"]
            node = sorted(NODES)[rest // len(pods) % len(NODES)]
            request = bind_request(metadata["name"], node, metadata["uid"])
            self.started += 1
            extender.binds.append(Bind(extender.index, request, f"{extender.name}-{self.started}"))

    def step(self, extender: Extender, rest: int) -> None:
        running = [each for each in extender.binds if each.call is not None]
        if running:
            one = running[rest % len(running)]
            fate = FATES[rest // len(running) % len(FATES)]
            assert one.call is not None
            unknown = Reply(status=UNKNOWN, body={}, reason="lost")
            if fate == "late":
                self.late.append(one.call)
            reply = self.cluster.answer(one.call) if fate in {"done", "no answer"} else unknown
            one.go_on(reply if fate == "done" else unknown)

    def arrive(self, _: Extender, rest: int) -> None:
        if self.late:
            self.cluster.answer(self.late.pop(rest % len(self.late)))

    def receive(self, extender: Extender, rest: int) -> None:
        if extender.list is not None:
            return
        for kind, found in self.cluster.events[extender.event_count :][: 1 + rest % 8]:
            send_event(extender.index, kind, found)
            extender.event_count += 1

    def relist(self, extender: Extender, _: int) -> None:
        """Begin a list, or end the list in progress; other actions may run in between."""
        if extender.list is None:
            extender.known = extender.store.known()
            extender.list = copy.deepcopy(self.cluster.pods()), len(self.cluster.events)
            return
        pods, events = extender.list
        for found in pods:
            extender.store.put(found)
        end_list(extender.store, extender.known, [found["metadata"] for found in pods])
        extender.event_count, extender.list = events, None

    def kill(self, extender: Extender, rest: int) -> None:
        if extender.binds:
            extender.binds.pop(rest % len(extender.binds)).steps.close()

    def restart(self, extender: Extender, _: int) -> None:
        self.extenders[self.extenders.index(extender)] = Extender(self.cluster, extender.name)

    def end_pod(self, _: Extender, rest: int) -> None:
        bound = [pod for pod in self.cluster.pods() if pod["spec"].get("nodeName")]
        if bound:
            pod = bound[rest % len(bound)]
            ended = {**pod, "status": {"phase": "Succeeded"}}
            self.cluster.put(POD + pod["metadata"]["name"], ended)

    def delete_pod(self, _: Extender, rest: int) -> None:
        pods = self.cluster.pods()
        if pods:
            self.cluster.delete(POD + pods[rest % len(pods)]["metadata"]["name"])

    def check(self) -> None:
        """Check that the units in the annotations of pods do not exceed the sizes of the GPUs."""
        for node, sizes in NODES.items():
            used = self.cluster.used(node)
            assert all(0 <= gpu < len(sizes) and units <= sizes[gpu] for gpu, units in used.items()), used

    def finish(self) -> None:
        """Complete all binds in progress, without faults."""
        for extender in self.extenders:
            for one in extender.binds:
                while one.call is not None:
                    one.go_on(self.cluster.answer(one.call))
                    self.check()


REQUESTS = st.lists(
    st.tuples(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.sampled_from([0, 0, 0, 3])),
    min_size=2,
    max_size=8,
)
ACTIONS = st.lists(st.tuples(st.integers(0, 41), st.integers(0, 400)), max_size=150)


@pytest.mark.parametrize("has_binding_versions", [True, False])
@given(requests=REQUESTS, actions=ACTIONS)
@examples(4)
def test_no_gpu_is_reserved_twice(
    *, has_binding_versions: bool, requests: list[Any], actions: list[tuple[int, int]]
) -> None:
    world = World(requests, has_binding_versions=has_binding_versions)
    for action, which in actions:
        world.do(action, which)
    world.finish()
    # No reservation stays after the deletion of all pods, so all units are free.
    for path in [path for path in world.cluster.objects if "/pods/" in path]:
        world.cluster.delete(path)
    for name, sizes in NODES.items():
        world.cluster.add_pod(pod_object(f"whole-{name}", *sizes))
        fresh = Extender(world.cluster, "fresh")
        fresh.binds.append(Bind(fresh.index, bind_request(f"whole-{name}", name), "fresh"))
        world.extenders = [fresh]
        world.finish()
        assert fresh.binds[0].answer == ""
