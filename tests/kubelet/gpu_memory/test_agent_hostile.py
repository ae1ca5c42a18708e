"""The agent with a faulty API server, GPUs that change, and pods with wrong annotations."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.kubelet.gpu_memory_side import OFFER, Side, bound, wait
from support.kubelet.gpu_memory_world import NODE, POD
from support.kubernetes.gpu_memory_pods import RESOURCES, pod_object

from cdigen.gpushare import names
from cdigen.kubelet.allocation.container_response import AllocationRefusal, ContainerResponse
from cdigen.value import replace

LEDGER = f"/api/v1/namespaces/kube-system/configmaps/cdigen-gpu-mem-{NODE}"
NODE_PATH = f"/api/v1/nodes/{NODE}"


def is_reserved_on(side: Side, name: str, gpu: str) -> bool:
    return bool(side.annotations(name).get(names.INDEX) == gpu)


@pytest.mark.parametrize("status", [401, 403, 404, 410, 429, 500, 503])
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH"])
def test_after_an_error_of_the_api_server_the_next_request_succeeds(
    side: Side, status: int, method: str
) -> None:
    name = bound(side, 3)
    side.server.faults = lambda verb, path: status if verb == method and "watch" not in path else None
    answer = side.allocate(1, 3)
    if isinstance(answer, AllocationRefusal):
        texts = ("a fault", "conflicts with other writers", "did not answer")
        assert any(text in answer.reason for text in texts), answer.reason
    else:
        # The ledger already has the new GPU. The annotations follow later.
        assert method == "PATCH"
    assert is_reserved_on(side, name, "0")
    side.server.faults = lambda _, _path: None
    assert isinstance(answer, ContainerResponse) or isinstance(side.allocate(1, 3), ContainerResponse)
    wait(lambda: is_reserved_on(side, name, "1"))


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_request_is_repeated_after_a_conflict(side: Side, method: str) -> None:
    name = bound(side, 3)
    conflicts = iter((409, 409))
    side.server.faults = lambda verb, path: (
        next(conflicts, None) if verb == method and "watch" not in path and "nodes" not in path else None
    )
    assert isinstance(side.allocate(1, 3), ContainerResponse)
    wait(lambda: is_reserved_on(side, name, "1"))


@pytest.mark.parametrize("forget", [False, True])
def test_the_watch_continues_after_its_connection_has_ended(side: Side, forget: bool) -> None:  # noqa: FBT001 - a parameter of the test
    side.server.end_watches(forget=forget)
    name = bound(side, 2)
    wait(lambda: side.agent.state().pods == 1)
    assert isinstance(side.allocate(int(side.annotations(name)[names.INDEX]), 2), ContainerResponse)


@pytest.mark.parametrize(
    "annotations",
    [
        {names.INDEX: "7"},
        {names.INDEX: "-1"},
        {names.INDEX: "9" * 5000},
        {names.ASSUME_TIME: "9" * 5000},
        {names.ASSUME_TIME: "-5"},
        {names.ASSIGNED: "true"},
        {names.ALLOCATION: "[" * 70000, names.INDEX: "x"},
        {names.ALLOCATION: '{"0":{"1":-3}}', names.INDEX: "\u0663"},
        {names.ALLOCATION: '{"0":{"0":1,"1":2}}', names.OF_POD: "99999999999"},
        {names.ALLOCATION: '{"0":{"1":3}}'},
    ],
)
def test_wrong_annotations_are_corrected(side: Side, annotations: dict[str, str]) -> None:
    name = bound(side, 3)

    def annotate(cluster: Any) -> None:
        found = cluster.objects[POD + name]
        found["metadata"]["annotations"].pop(names.ALLOCATION)
        found["metadata"]["annotations"].update(annotations)
        cluster.put(POD + name, found)

    side.server.change(annotate)
    assert isinstance(side.allocate(0, 3), ContainerResponse)
    side.list_pod(name, "GPU-0-_-0")
    wait(lambda: side.annotations(name)[names.ASSIGNED] == "true" and is_reserved_on(side, name, "0"))
    # The pod may have only gpushare's index, without an allocation.
    allocation = side.annotations(name).get(names.ALLOCATION, '{"0":{"0":3}}')
    assert json.loads(allocation) == {"0": {"0": 3}}
    assert side.annotations(name)[names.OF_POD] == "3"


@pytest.mark.parametrize("units", ["-3", "9" * 18, "1.5", "x", "", "3m"])
def test_pods_with_invalid_requests_affect_no_other_pod(side: Side, units: str) -> None:
    name = bound(side, 3)

    def add_invalid_pods(cluster: Any) -> None:
        cluster.add_pod(pod_object("nonsense", units, node=NODE))
        invalid = pod_object("torn", 3, node=NODE)
        invalid["metadata"]["annotations"], invalid["status"] = ["x"], {"phase": 7}
        cluster.add_pod(invalid)

    side.server.change(add_invalid_pods)
    assert isinstance(side.allocate(1, 3), ContainerResponse)
    assert is_reserved_on(side, name, "1")


@pytest.mark.parametrize("text", ["{", "[]", "", '{"uid-x": {"gpus": 1}}'])
def test_an_invalid_ledger_is_replaced(side: Side, text: str) -> None:
    name = bound(side, 3)

    def invalidate(cluster: Any) -> None:
        cluster.put(LEDGER, {**cluster.objects[LEDGER], "data": {"reservations": text}})

    side.server.change(invalidate)
    assert isinstance(side.allocate(1, 3), ContainerResponse)
    assert json.loads(side.world.cluster.objects[LEDGER]["data"]["reservations"])[f"uid-{name}"]["gpus"] == {
        "1": 3
    }


def test_an_annotation_gets_the_new_index_of_a_gpu_if_the_index_changes(side: Side) -> None:
    name = bound(side, 3)
    assert isinstance(side.allocate(0, 3), ContainerResponse)
    side.list_pod(name, "GPU-0-_-0", "GPU-0-_-1", "GPU-0-_-2")
    wait(lambda: side.annotations(name)[names.ASSIGNED] == "true")
    first, second = OFFER.gpus
    side.agent.advertise(replace(OFFER, gpus=(replace(second, index=0), replace(first, index=1))))
    wait(lambda: is_reserved_on(side, name, "1"))
    assert json.loads(side.annotations(name)[names.ALLOCATION]) == {"0": {"1": 3}}
    wait(
        lambda: (
            '"uuid":"GPU-1","units":6'
            in side.world.cluster.objects[NODE_PATH]["metadata"]["annotations"][names.GPUS]
        )
    )


def test_a_removed_gpu_does_not_change_the_indices_of_other_gpus(side: Side) -> None:
    name = bound(side, 3)
    assert isinstance(side.allocate(0, 3), ContainerResponse)
    side.agent.advertise(replace(OFFER, gpus=OFFER.gpus[1:]))
    second = bound(side, 4)
    assert isinstance(side.allocate(1, 4), ContainerResponse)
    wait(lambda: is_reserved_on(side, second, "1"))
    assert is_reserved_on(side, name, "0")
    assert side.agent.state().problem == ""


def test_a_plugin_without_shared_memory_removes_its_annotation_from_the_node(side: Side) -> None:
    wait(lambda: f"GET {NODE_PATH}" in side.server.requests)
    side.agent.advertise(None)

    def is_removed() -> bool:
        found = side.world.cluster.objects[NODE_PATH]
        return (
            names.GPUS not in found["metadata"]["annotations"]
            and RESOURCES.count not in found["status"]["capacity"]
        )

    wait(is_removed)
