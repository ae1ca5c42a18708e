"""However extenders are late, killed, paused or cut off: no GPU is ever promised twice."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kubernetes.binds import Bind, pod_sink, wanted
from support.kubernetes.cluster_model import Cluster, index_of, tell
from support.kubernetes.shared_pods import container, node_object, pod_object
from support.law_examples import examples

from cdigen.kubeapi.calls import UNKNOWN, Reply

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cdigen.kubeapi.calls import Call

NODES = {"node1": (4, 4), "node2": (6,)}
POD = "/api/v1/namespaces/default/pods/"
# What becomes of a request: most are done. Some are lost, on their way or the answer's; some are done later.
FATES = (*["done"] * 9, "no request", "no answer", "late")


class Extender:
    """An extender: what it knows, how much of the events it has seen, and its binds under way."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        # A list is consistent: it knows what is there now.
        self.index = index_of(cluster)
        self.seen = len(cluster.events)
        self.binds: list[Bind] = []
        self.sink = pod_sink(self.index)
        # A list under way: what the server put into it, and how many events it has in it.
        self.list: tuple[list[dict[str, Any]], int] | None = None


class World:
    """A cluster with two extenders, in which `do` lets a numbered thing happen."""

    def __init__(self, asks: list[Any], *, has_binding_versions: bool) -> None:
        self.cluster = Cluster(has_binding_versions=has_binding_versions)
        for name, sizes in NODES.items():
            self.cluster.add_node(node_object(name, sizes))
        for place, (units, early) in enumerate(asks):
            inits = [container(early)] if early else []
            self.cluster.add_pod(pod_object(f"p{place}", *units, inits=inits))
        self.extenders = [Extender(self.cluster, name) for name in "ab"]
        self.late: list[Call] = []
        self.started = 0

    def do(self, what: int, which: int) -> None:
        """Let the thing WHAT happen to one of those it may happen to."""
        extender = self.extenders[which % len(self.extenders)]
        rest = which // len(self.extenders)
        things: list[Callable[[Extender, int], None]] = [
            *[self.start] * 6,
            *[self.step] * 24,
            *[self.hear] * 3,
            *[self.arrive] * 2,
        ]
        things += [self.relist] * 2
        things += [self.kill, self.restart, self.end_pod, self.delete_pod, self.delete_pod]
        things[what % len(things)](extender, rest)
        self.check()

    def start(self, extender: Extender, rest: int) -> None:
        pods = [pod for pod in self.cluster.pods() if not pod["spec"].get("nodeName")]
        if pods:
            metadata = pods[rest % len(pods)]["metadata"]
            node = sorted(NODES)[rest // len(pods) % len(NODES)]
            asked = wanted(metadata["name"], node, metadata["uid"])
            self.started += 1
            extender.binds.append(Bind(extender.index, asked, f"{extender.name}-{self.started}"))

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

    def hear(self, extender: Extender, rest: int) -> None:
        if extender.list is not None:
            return
        for kind, found in self.cluster.events[extender.seen :][: 1 + rest % 8]:
            tell(extender.index, kind, found)
            extender.seen += 1

    def relist(self, extender: Extender, _: int) -> None:
        """Begin a list, or take it: in between, all else goes on."""
        if extender.list is None:
            extender.sink.begin()
            extender.list = copy.deepcopy(self.cluster.pods()), len(self.cluster.events)
            return
        pods, events = extender.list
        for found in pods:
            extender.sink.put(found)
        extender.sink.keep(found["metadata"] for found in pods)
        extender.seen, extender.list = events, None

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
        """Hold what pods have by their annotations against the GPUs."""
        for node, sizes in NODES.items():
            used = self.cluster.used(node)
            assert all(0 <= gpu < len(sizes) and units <= sizes[gpu] for gpu, units in used.items()), used

    def settle(self) -> None:
        """Let all that is under way come to its end, with a cluster that works."""
        for extender in self.extenders:
            for one in extender.binds:
                while one.call is not None:
                    one.go_on(self.cluster.answer(one.call))
                    self.check()


ASKS = st.lists(
    st.tuples(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.sampled_from([0, 0, 0, 3])),
    min_size=2,
    max_size=8,
)
HAPPENINGS = st.lists(st.tuples(st.integers(0, 41), st.integers(0, 400)), max_size=150)


@pytest.mark.parametrize("has_binding_versions", [True, False])
@given(asks=ASKS, happenings=HAPPENINGS)
@examples(4)
def test_no_gpu_is_promised_twice(
    *, has_binding_versions: bool, asks: list[Any], happenings: list[tuple[int, int]]
) -> None:
    world = World(asks, has_binding_versions=has_binding_versions)
    for what, which in happenings:
        world.do(what, which)
    world.settle()
    # And nothing stays promised for ever: with all pods gone, there is all of the room again.
    for path in [path for path in world.cluster.objects if "/pods/" in path]:
        world.cluster.delete(path)
    for name, sizes in NODES.items():
        world.cluster.add_pod(pod_object(f"whole-{name}", *sizes))
        fresh = Extender(world.cluster, "fresh")
        fresh.binds.append(Bind(fresh.index, wanted(f"whole-{name}", name), "fresh"))
        world.extenders = [fresh]
        world.settle()
        assert fresh.binds[0].answer == ""
