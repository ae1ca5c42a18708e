"""The node's side with an API server: who gets what, what is written, and what is refused in time."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from support.kubelet.resources import listed
from support.kubelet.shares_side import OFFER, PATIENT, SIZES, Side, bound, running_side, wait
from support.kubelet.shares_world import NODE, World
from support.kubernetes.api_server import ApiServer
from support.kubernetes.shared_pods import RESOURCES
from support.waiting import PATIENCE_S

from cdigen.gpushare import names
from cdigen.kubeapi.credentials import from_kubeconfig
from cdigen.kubelet.answers import Answer, Refusal
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.resources.memory import unit_id
from cdigen.kubelet.shares.agent import Agent, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_a_container_gets_gpushares_variables(side: Side) -> None:
    name = bound(side, 3)
    wait(lambda: side.agent.prefer({0: 4, 1: 6}, (), 3) == 0)
    answer = side.allocate(0, 3)
    assert isinstance(answer, Answer)
    assert dict(answer.variables) == {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "3",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "3",
        "ALIYUN_COM_GPU_MEM_DEV": "4",
    }
    wait(lambda: side.annotations(name)[names.ASSIGNED] == "true")


def test_what_the_kubelet_chose_instead_is_written_before_the_answer(side: Side) -> None:
    name = bound(side, 3)
    assert side.annotations(name)[names.INDEX] == "0"
    assert isinstance(side.allocate(1, 3), Answer)
    assert side.annotations(name)[names.INDEX] == "1"
    assert json.loads(side.annotations(name)[names.ALLOCATION]) == {"0": {"1": 3}}


def test_each_container_gets_the_gpu_of_its_own_ids_alone(side: Side) -> None:
    bound(side, 4, 5)
    for container, (gpu, units) in enumerate(((0, 4), (1, 5))):
        answer = side.allocate(gpu, units)
        assert isinstance(answer, Answer), container
        # The double of the resource names what it was asked for.
        assert answer.names == tuple(unit_id(f"GPU-{gpu}", number) for number in range(units))
        assert dict(answer.variables)[names.INDEX] == str(gpu)


def test_what_the_kubelet_tells_at_the_start_counts_before_the_first_answer(tmp_path: Path) -> None:
    world = World(SIZES)
    with ApiServer(world.cluster) as server:
        first, second = world.create(2), world.create(2)
        api = from_kubeconfig(str(server.kubeconfig(tmp_path / "kubeconfig")))
        agent = Agent(api, NODE, "kube-system", RESOURCES, print, limits=PATIENT)
        agent.show(OFFER)
        agent.start()
        # The first has its units, and waits for its image: a plugin before this one gave them.
        has = PodDevices(
            namespace="default",
            pod=first,
            container="c0",
            resource=RESOURCES.memory,
            ids=("GPU-0-_-0", "GPU-0-_-1"),
        )
        settling = agent.settle(0, frozenset({"GPU-0-_-2", "GPU-0-_-3"}))
        wait(lambda: not agent.problem)
        assert not settling.done()
        agent.told(listed(has), time.monotonic() + 1.0)
        assert settling.result(PATIENCE_S).bound.pod.name == second
        agent.stop()


def test_what_nobody_asks_for_is_refused(side: Side) -> None:
    bound(side, 3)
    answer = side.allocate(1, 2)
    assert isinstance(answer, Refusal)
    assert answer.reason == f"{RESOURCES.memory}: no pending pod of {NODE} asks for 2 units in a container"


def test_units_of_two_gpus_are_refused(side: Side) -> None:
    bound(side, 2)
    answer = asyncio.run(side.desk.allocate(("GPU-0-_-0", "GPU-1-_-0")))
    assert isinstance(answer, Refusal)
    assert "1 units of GPU 0, 1 units of GPU 1" in answer.reason


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Callable[[Limits], Side]]:
    """Make a side, by its limits, whose API server answers no request but watches."""
    speaks = threading.Event()

    def hang(_: str, path: str) -> None:
        if "watch" not in path:
            speaks.wait(2 * PATIENCE_S)

    def make(limits: Limits) -> Side:
        side = sides.enter_context(running_side(tmp_path, limits=limits))
        bound(side, 3)
        wait(lambda: side.agent.prefer({0: 4, 1: 6}, (), 3) == 0)
        side.server.faults = hang
        return side

    with ExitStack() as sides:
        yield make
        speaks.set()


def test_an_api_server_that_is_silent_is_not_waited_for_without_end(
    silent: Callable[[Limits], Side],
) -> None:
    side = silent(Limits(settle_s=0.2, request_s=0.2, told_s=PATIENCE_S))
    assert isinstance(side.allocate(1, 3), Refusal)
    # What was promised as the kubelet chose needs no word of the server.
    assert isinstance(side.allocate(0, 3), Answer)


@pytest.mark.wall_clock
def test_an_api_server_that_is_silent_is_waited_for_a_moment(silent: Callable[[Limits], Side]) -> None:
    side = silent(Limits())
    begun_s = time.monotonic()
    assert isinstance(side.allocate(1, 3), Refusal)
    assert time.monotonic() - begun_s < Limits().settle_s + 3.0


def test_the_node_says_what_it_offers(side: Side) -> None:
    path = f"/api/v1/nodes/{NODE}"
    wait(lambda: f"PATCH {path}/status" in side.server.asked)
    rows = json.loads(side.world.cluster.objects[path]["metadata"]["annotations"][names.GPUS])["gpus"]
    assert [(row["index"], row["uuid"], row["units"]) for row in rows] == [(0, "GPU-0", 4), (1, "GPU-1", 6)]


def test_ids_of_one_gpu_are_preferred(side: Side) -> None:
    ids = tuple(unit_id(f"GPU-{gpu}", number) for number in range(3) for gpu in (0, 1))
    assert side.desk.prefer(ids, (), 3) == tuple(unit_id("GPU-0", number) for number in range(3))
    assert side.desk.prefer(ids, ("GPU-1-_-2",), 2) == ("GPU-1-_-2", "GPU-1-_-0")


def test_a_ledger_in_another_namespace_is_said_and_promises_stay(tmp_path: Path) -> None:
    """What is promised in a ledger that we do not see may be all of a GPU: nothing is moved there."""
    with running_side(tmp_path, namespace="cdigen") as side:
        first, second = bound(side, 3), bound(side, 2)
        told = f"pod default/{first} keeps its ledgers in namespace 'kube-system'"
        answer = side.allocate(1, 3)
        assert isinstance(answer, Refusal)
        assert told in answer.reason
        assert "namespace}}' is 'cdigen'" in answer.reason
        # What was promised as the kubelet chose is given, whoever keeps the promise.
        assert [side.annotations(name)[names.INDEX] for name in (first, second)] == ["0", "1"]
        assert isinstance(side.allocate(1, 2), Answer)
        wait(lambda: "keeps its ledgers in namespace" in side.agent.state().promise_problem)
        wait(lambda: any("keeps its ledgers in namespace" in line for line in side.said))


def bind_elsewhere(side: Side, name: str) -> None:
    """Let the pod NAME say that its ledger is in another namespace."""
    side.server.change(lambda _: side.annotations(name).update({names.LEDGER_IN: "another"}))


def test_the_pod_that_was_bound_last_tells_where_ledgers_are(side: Side) -> None:
    """Pods that run since the extender kept its ledgers elsewhere say nothing of it now."""
    old, new = bound(side, 3), bound(side, 2)
    bind_elsewhere(side, old)
    assert isinstance(side.allocate(1, 2), Answer)
    wait(lambda: side.annotations(new)[names.ASSIGNED] == "true")
    assert not side.agent.state().promise_problem


def test_a_pod_with_another_ledger_is_not_exchanged_and_costs_no_other(side: Side) -> None:
    """Anybody may write such an annotation on a pod and name the node himself: others are exchanged."""
    pods = [bound(side, units) for units in (4, 2, 2)]
    bind_elsewhere(side, pods[1])
    assert isinstance(side.allocate(1, 4), Answer)
    # If a PATCH meets another writer, `repair` annotates the pod, which may be after the answer.
    wait(lambda: [side.annotations(name)[names.INDEX] for name in pods] == ["1", "1", "0"])


def test_that_pods_cannot_be_followed_is_in_the_log(side: Side) -> None:
    """A right that is missing, such as to watch pods, is said once, and not only in the status."""

    def forbid(_: str, path: str) -> int | None:
        return 403 if "watch=1" in path else None

    def is_said() -> bool:
        side.server.end_watches()  # A watch that was just being opened missed the end of the others.
        return any("which pods are on" in line for line in side.said)

    side.server.faults = forbid
    wait(is_said)
    before = len(side.server.asked)
    wait(lambda: sum("watch=1" in asked for asked in side.server.asked[before:]) >= 3)
    assert sum("which pods are on" in line for line in side.said) == 1
