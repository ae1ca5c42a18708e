"""The node's side with an API server that misbehaves, GPUs that change, and pods that lie."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.kubelet.shares_side import OFFER, Side, bound, wait
from support.kubelet.shares_world import NODE, POD
from support.kubernetes.shared_pods import RESOURCES, pod_object

from cdigen.gpushare import names
from cdigen.kubelet.answers import Answer, Refusal
from cdigen.value import replace

LEDGER = f"/api/v1/namespaces/kube-system/configmaps/cdigen-gpu-mem-{NODE}"
NODE_PATH = f"/api/v1/nodes/{NODE}"


def sure(side: Side, name: str, gpu: str) -> bool:
    return bool(side.annotations(name).get(names.INDEX) == gpu)


@pytest.mark.parametrize("status", [401, 403, 404, 410, 429, 500, 503])
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH"])
def test_what_the_server_does_not_do_is_a_refusal_with_its_words_and_nothing_stays(
    side: Side, status: int, method: str
) -> None:
    name = bound(side, 3)
    side.server.faults = lambda asked, path: status if asked == method and "watch" not in path else None
    answer = side.allocate(1, 3)
    if isinstance(answer, Refusal):
        said = ("a fault", "always first", "did not answer")
        assert any(word in answer.reason for word in said), answer.reason
    else:
        # The ledger has it already, and annotations follow.
        assert method == "PATCH"
    assert sure(side, name, "0")
    side.server.faults = lambda _, _path: None
    assert isinstance(answer, Answer) or isinstance(side.allocate(1, 3), Answer)
    wait(lambda: sure(side, name, "1"))


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_conflict_is_somebody_elses_success_and_tried_again(side: Side, method: str) -> None:
    name = bound(side, 3)
    told = iter((409, 409))
    side.server.faults = lambda asked, path: (
        next(told, None) if asked == method and "watch" not in path and "nodes" not in path else None
    )
    assert isinstance(side.allocate(1, 3), Answer)
    wait(lambda: sure(side, name, "1"))


@pytest.mark.parametrize("forget", [False, True])
def test_a_watch_that_ended_goes_on(side: Side, forget: bool) -> None:  # noqa: FBT001 - a parameter of the test
    side.server.end_watches(forget=forget)
    name = bound(side, 2)
    wait(lambda: side.agent.state().pods == 1)
    assert isinstance(side.allocate(int(side.annotations(name)[names.INDEX]), 2), Answer)


@pytest.mark.parametrize(
    "lies",
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
def test_annotations_that_lie_are_corrected(side: Side, lies: dict[str, str]) -> None:
    name = bound(side, 3)

    def lie(cluster: Any) -> None:
        found = cluster.objects[POD + name]
        found["metadata"]["annotations"].pop(names.ALLOCATION)
        found["metadata"]["annotations"].update(lies)
        cluster.put(POD + name, found)

    side.server.change(lie)
    assert isinstance(side.allocate(0, 3), Answer)
    side.told(name, "GPU-0-_-0")
    wait(lambda: side.annotations(name)[names.ASSIGNED] == "true" and sure(side, name, "0"))
    # gpushare's index alone says it as well.
    allocation = side.annotations(name).get(names.ALLOCATION, '{"0":{"0":3}}')
    assert json.loads(allocation) == {"0": {"0": 3}}
    assert side.annotations(name)[names.OF_POD] == "3"


@pytest.mark.parametrize("units", ["-3", "9" * 18, "1.5", "x", "", "3m"])
def test_pods_that_ask_for_nonsense_are_in_nobodys_way(side: Side, units: str) -> None:
    name = bound(side, 3)

    def intrude(cluster: Any) -> None:
        cluster.add_pod(pod_object("nonsense", units, node=NODE))
        torn = pod_object("torn", 3, node=NODE)
        torn["metadata"]["annotations"], torn["status"] = ["x"], {"phase": 7}
        cluster.add_pod(torn)

    side.server.change(intrude)
    assert isinstance(side.allocate(1, 3), Answer)
    assert sure(side, name, "1")


@pytest.mark.parametrize("text", ["{", "[]", "", '{"uid-x": {"gpus": 1}}'])
def test_a_ledger_that_was_torn_is_written_anew(side: Side, text: str) -> None:
    name = bound(side, 3)

    def tear(cluster: Any) -> None:
        cluster.put(LEDGER, {**cluster.objects[LEDGER], "data": {"claims": text}})

    side.server.change(tear)
    assert isinstance(side.allocate(1, 3), Answer)
    assert json.loads(side.world.cluster.objects[LEDGER]["data"]["claims"])[f"uid-{name}"]["gpus"] == {"1": 3}


def test_where_gpus_have_other_indices_annotations_follow_their_ids(side: Side) -> None:
    name = bound(side, 3)
    assert isinstance(side.allocate(0, 3), Answer)
    side.told(name, "GPU-0-_-0", "GPU-0-_-1", "GPU-0-_-2")
    wait(lambda: side.annotations(name)[names.ASSIGNED] == "true")
    first, second = OFFER.gpus
    side.agent.show(replace(OFFER, gpus=(replace(second, index=0), replace(first, index=1))))
    wait(lambda: sure(side, name, "1"))
    assert json.loads(side.annotations(name)[names.ALLOCATION]) == {"0": {"1": 3}}
    wait(
        lambda: (
            '"uuid":"GPU-1","units":6'
            in side.world.cluster.objects[NODE_PATH]["metadata"]["annotations"][names.GPUS]
        )
    )


def test_a_gpu_that_left_takes_nobody_elses_place(side: Side) -> None:
    name = bound(side, 3)
    assert isinstance(side.allocate(0, 3), Answer)
    side.agent.show(replace(OFFER, gpus=OFFER.gpus[1:]))
    second = bound(side, 4)
    assert isinstance(side.allocate(1, 4), Answer)
    wait(lambda: sure(side, second, "1"))
    assert sure(side, name, "0")
    assert side.agent.state().problem == ""


def test_a_plugin_that_shares_no_more_takes_back_what_it_said_of_the_node(side: Side) -> None:
    wait(lambda: f"GET {NODE_PATH}" in side.server.asked)
    side.agent.show(None)

    def is_away() -> bool:
        found = side.world.cluster.objects[NODE_PATH]
        return (
            names.GPUS not in found["metadata"]["annotations"]
            and RESOURCES.count not in found["status"]["capacity"]
        )

    wait(is_away)
