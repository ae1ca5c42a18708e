"""The agent finds the container of each request, writes to the API server, and refuses requests in time."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from support.kubelet.gpu_memory_side import OFFER, PATIENT, SIZES, Side, bound, running_side, wait
from support.kubelet.gpu_memory_world import NODE, POD, World
from support.kubelet.host_resources import preferred
from support.kubelet.resources import listed
from support.kubernetes.api_server import ApiServer
from support.kubernetes.gpu_memory_pods import RESOURCES
from support.waiting import PATIENCE_S

from cdigen.gpushare import names
from cdigen.kubeapi.credentials import from_kubeconfig
from cdigen.kubelet.allocation.container_response import AllocationRefusal, ContainerResponse
from cdigen.kubelet.gpu_memory.agent import Agent, RequestLimits
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.resources.memory import unit_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_a_container_gets_gpushares_variables(side: Side) -> None:
    name = bound(side, 3)
    wait(lambda: side.agent.preferred_gpu({0: 4, 1: 6}, (), 3).result() == 0)
    answer = side.allocate(0, 3)
    assert isinstance(answer, ContainerResponse)
    assert dict(answer.variables) == {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "3",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "3",
        "ALIYUN_COM_GPU_MEM_DEV": "4",
    }
    wait(lambda: side.annotations(name)[names.ASSIGNED] == "true")


def test_a_reservation_moves_to_the_gpu_of_the_requested_ids_before_the_response(side: Side) -> None:
    name = bound(side, 3)
    assert side.annotations(name)[names.INDEX] == "0"
    assert isinstance(side.allocate(1, 3), ContainerResponse)
    assert side.annotations(name)[names.INDEX] == "1"
    assert json.loads(side.annotations(name)[names.ALLOCATION]) == {"0": {"1": 3}}


def test_each_container_gets_only_the_gpu_of_its_own_ids(side: Side) -> None:
    bound(side, 4, 5)
    for container, (gpu, units) in enumerate(((0, 4), (1, 5))):
        answer = side.allocate(gpu, units)
        assert isinstance(answer, ContainerResponse), container
        # Each unit of OFFER has its id as the CDI name.
        assert answer.names == tuple(unit_id(f"GPU-{gpu}", number) for number in range(units))
        assert dict(answer.variables)[names.INDEX] == str(gpu)


def test_the_first_request_waits_for_the_kubelets_first_list_of_pods(tmp_path: Path) -> None:
    world = World(SIZES)
    with ApiServer(world.cluster) as server:
        first, second = world.create(2), world.create(2)
        api = from_kubeconfig(str(server.kubeconfig(tmp_path / "kubeconfig")))
        agent = Agent(api, NODE, "kube-system", RESOURCES, print, limits=PATIENT)
        agent.advertise(OFFER)
        agent.start()
        # An earlier plugin has allocated units to the first pod, which waits for its image.
        has = PodDevices(
            namespace="default",
            pod=first,
            container="c0",
            resource=RESOURCES.memory,
            ids=("GPU-0-_-0", "GPU-0-_-1"),
        )
        assigning = agent.assign(0, frozenset({"GPU-0-_-2", "GPU-0-_-3"}))
        wait(lambda: not agent.problem)
        assert not assigning.done()
        agent.set_pods(listed(has), time.monotonic() + 1.0)
        assert assigning.result(PATIENCE_S).bound.pod.name == second
        agent.stop()


def test_a_number_of_units_that_no_pending_pod_requests_is_refused(side: Side) -> None:
    bound(side, 3)
    answer = side.allocate(1, 2)
    assert isinstance(answer, AllocationRefusal)
    assert answer.reason == f"{RESOURCES.memory}: no container of a pending pod on {NODE} requests 2 units"


def test_units_of_two_gpus_are_refused(side: Side) -> None:
    bound(side, 2)
    answer = side.request("GPU-0-_-0", "GPU-1-_-0")
    assert isinstance(answer, AllocationRefusal)
    assert "1 units of GPU 0, 1 units of GPU 1" in answer.reason


@pytest.fixture
def unresponsive(tmp_path: Path) -> Iterator[Callable[[RequestLimits], Side]]:
    """Yield a function that makes a `Side` with time limits; its API server responds only to watches."""
    answers = threading.Event()

    def hang(_: str, path: str) -> None:
        if "watch" not in path:
            answers.wait(2 * PATIENCE_S)

    def make(limits: RequestLimits) -> Side:
        side = sides.enter_context(running_side(tmp_path, limits=limits))
        bound(side, 3)
        wait(lambda: side.agent.preferred_gpu({0: 4, 1: 6}, (), 3).result() == 0)
        side.server.faults = hang
        return side

    with ExitStack() as sides:
        yield make
        answers.set()


def test_a_request_is_refused_in_time_if_the_api_server_does_not_respond(
    unresponsive: Callable[[RequestLimits], Side],
) -> None:
    side = unresponsive(RequestLimits(assign_s=0.2, request_s=0.2, pod_list_s=PATIENCE_S))
    assert isinstance(side.allocate(1, 3), AllocationRefusal)
    # No known pod waits for two units. The list of pods fails, so the GPU with fewer free units is preferred.
    assert side.agent.preferred_gpu({0: 4, 1: 6}, (), 2).result() == 0
    # A reservation on the GPU of the kubelet's ids needs no response of the server.
    assert isinstance(side.allocate(0, 3), ContainerResponse)


@pytest.mark.wall_clock
def test_a_request_waits_a_few_seconds_at_most_if_the_api_server_does_not_respond(
    unresponsive: Callable[[RequestLimits], Side],
) -> None:
    side = unresponsive(RequestLimits())
    begun_s = time.monotonic()
    assert isinstance(side.allocate(1, 3), AllocationRefusal)
    assert time.monotonic() - begun_s < RequestLimits().assign_s + 3.0


def test_the_node_has_the_advertised_gpus_in_its_annotation(side: Side) -> None:
    path = f"/api/v1/nodes/{NODE}"
    wait(lambda: f"PATCH {path}/status" in side.server.requests)
    rows = json.loads(side.world.cluster.objects[path]["metadata"]["annotations"][names.GPUS])["gpus"]
    assert [(row["index"], row["uuid"], row["units"]) for row in rows] == [(0, "GPU-0", 4), (1, "GPU-1", 6)]


def test_ids_of_one_gpu_are_preferred(side: Side) -> None:
    ids = tuple(unit_id(f"GPU-{gpu}", number) for number in range(3) for gpu in (0, 1))
    assert preferred(side.allocator, ids, (), 3) == tuple(unit_id("GPU-0", number) for number in range(3))
    assert preferred(side.allocator, ids, ("GPU-1-_-2",), 2) == ("GPU-1-_-2", "GPU-1-_-0")


def test_the_gpu_of_a_reservation_is_preferred_before_the_watch_has_the_pod(side: Side) -> None:
    """kube-apiserver sends a new pod to the kubelet and to the plugin, and the kubelet may be faster."""
    is_hung, end = threading.Event(), threading.Event()

    def hang(_: str, path: str) -> None:
        if "watch=1" in path:
            is_hung.set()
            end.wait(2 * PATIENCE_S)

    def has_no_watch() -> bool:
        side.server.end_watches()
        return is_hung.is_set()

    side.server.faults = hang
    try:
        wait(has_no_watch)
        bound(side, 3)
        name = bound(side, 2)
        assert side.annotations(name)[names.INDEX] == "1"
        # Without the reservation, GPU 0 would be preferred, because it has fewer free units.
        assert side.agent.preferred_gpu({0: 4, 1: 6}, (), 2).result() == 1
    finally:
        end.set()


def test_reservations_in_a_ledger_of_another_namespace_stay_and_are_reported(tmp_path: Path) -> None:
    """The other reservations of that ledger are unknown, so the agent moves no reservation of the ledger."""
    with running_side(tmp_path, namespace="cdigen") as side:
        first, second = bound(side, 3), bound(side, 2)
        text = f"pod default/{first}: the extender has its ledgers in namespace 'kube-system'"
        answer = side.allocate(1, 3)
        assert isinstance(answer, AllocationRefusal)
        assert text in answer.reason
        assert "namespace}}' is 'cdigen'" in answer.reason
        # A reservation on the GPU of the kubelet's ids is served even if it is in another ledger.
        assert [side.annotations(name)[names.INDEX] for name in (first, second)] == ["0", "1"]
        assert isinstance(side.allocate(1, 2), ContainerResponse)
        wait(lambda: "has its ledgers in namespace" in side.agent.state().reservation_problem)
        wait(lambda: any("has its ledgers in namespace" in line for line in side.logged))


def bind_elsewhere(side: Side, name: str) -> None:
    """Set the ledger namespace in the annotation of the pod NAME to another namespace."""
    found = side.world.cluster.objects[POD + name]
    annotations = found["metadata"]["annotations"] | {names.LEDGER_NAMESPACE: "another"}
    changed = found | {"metadata": found["metadata"] | {"annotations": annotations}}
    # A new version: otherwise the agent keeps the annotations that it has read before.
    side.server.change(lambda cluster: cluster.put(POD + name, changed))


def test_only_the_ledger_namespace_of_the_pod_that_was_bound_last_is_checked(side: Side) -> None:
    """Pods that were bound before a change of the extender's namespace are not checked."""
    old, new = bound(side, 3), bound(side, 2)
    bind_elsewhere(side, old)
    assert isinstance(side.allocate(1, 2), ContainerResponse)
    wait(lambda: side.annotations(new)[names.ASSIGNED] == "true")
    assert not side.agent.state().reservation_problem


def test_a_pod_with_another_ledger_is_not_moved_and_does_not_affect_other_pods(side: Side) -> None:
    """A user may write such an annotation and bind the pod. Other reservations are still exchanged."""
    pods = [bound(side, units) for units in (4, 2, 2)]
    bind_elsewhere(side, pods[1])
    assert isinstance(side.allocate(1, 4), ContainerResponse)
    # After a conflict of a PATCH, `repair` annotates the pod, possibly after the response.
    wait(lambda: [side.annotations(name)[names.INDEX] for name in pods] == ["1", "1", "0"])


def test_a_forbidden_watch_of_pods_is_logged_once(side: Side) -> None:
    """A missing permission, for example to watch pods, is logged once."""

    def forbid(_: str, path: str) -> int | None:
        return 403 if "watch=1" in path else None

    def is_logged() -> bool:
        side.server.end_watches()  # A watch that was being opened did not end at the last call.
        return any("pods of node1 are unknown" in line for line in side.logged)

    side.server.faults = forbid
    wait(is_logged)
    before = len(side.server.requests)
    wait(lambda: sum("watch=1" in call for call in side.server.requests[before:]) >= 3)
    assert sum("pods of node1 are unknown" in line for line in side.logged) == 1
