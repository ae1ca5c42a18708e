"""update_node corrects the annotation and GPU count of a Node, and removes both if no GPUs are shared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.gpu_memory_side import OFFER
from support.kubernetes.cluster_model import Cluster, drive
from support.kubernetes.gpu_memory_pods import COUNT, MEMORY, RESOURCES, node_object

from cdigen.gpushare.names import GPUS
from cdigen.gpushare.nodes import read_node
from cdigen.kubeapi.calls import UNKNOWN, Call, Reply
from cdigen.kubelet.gpu_memory.node_writer import NodeUpdateError, update_node
from cdigen.value import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.kubelet.resources.memory import AdvertisedMemory

PATH = "/api/v1/nodes/node1"


class NodeWriter:
    """Updates a node of a cluster; `calls` are the methods and paths of the last update."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        found = node_object("node1", (), with_annotation=False)
        found["status"] = {}
        self.cluster.add_node(found)
        self.calls: list[str] = []
        self.fault: Callable[[Call], Reply | None] = lambda _: None

    def write(self, offer: AdvertisedMemory | None = OFFER) -> str:
        self.calls.clear()
        return str(drive(update_node("node1", offer, RESOURCES), self.answer))

    def answer(self, call: Call) -> Reply:
        self.calls.append(f"{call.method} {call.path}")
        return self.fault(call) or self.cluster.answer(call)

    @property
    def node(self) -> dict[str, Any]:
        return self.cluster.objects[PATH]


def offered(writer: NodeWriter) -> list[tuple[int, int, bool]]:
    found = json.loads(writer.node["metadata"]["annotations"][GPUS])["gpus"]
    return [(row["index"], row["units"], row["healthy"]) for row in found]


def test_annotation_and_count_are_written_once_and_can_be_read_by_the_extender() -> None:
    writer = NodeWriter()
    writer.write()
    assert writer.calls == [f"GET {PATH}", f"PATCH {PATH}/status"]
    writer.write()
    assert writer.calls == [f"GET {PATH}"]
    writer.node["status"]["capacity"][MEMORY] = "10"
    assert [gpu.units for gpu in read_node(writer.node, RESOURCES).gpus] == [4, 6]


def test_health_is_written_when_it_changes() -> None:
    writer = NodeWriter()
    writer.write()
    unhealthy = replace(OFFER, gpus=(OFFER.gpus[0], replace(OFFER.gpus[1], is_healthy=False)))
    writer.write(unhealthy)
    assert offered(writer) == [(0, 4, True), (1, 6, False)]
    assert writer.calls == [f"GET {PATH}", f"PATCH {PATH}/status"]


@pytest.mark.parametrize("value", ["", "torn {", "[]", '{"gpus":[{"index":0,"units":-4}]}', None])
def test_an_annotation_of_another_writer_is_corrected(value: str | None) -> None:
    writer = NodeWriter()
    writer.write()
    writer.node["metadata"]["annotations"][GPUS] = value
    writer.write()
    assert offered(writer) == [(0, 4, True), (1, 6, True)]


@pytest.mark.parametrize("value", ["0", "3", "-1", "many", "99999999999999999999", None, 7])
def test_a_wrong_number_of_gpus_is_corrected(value: object) -> None:
    # The kubelet sets the number to zero when it starts without its checkpoint.
    writer = NodeWriter()
    writer.write()
    writer.node["status"]["capacity"][COUNT] = value
    writer.write()
    assert writer.node["status"]["capacity"][COUNT] == writer.node["status"]["allocatable"][COUNT] == "2"


def test_a_node_that_was_created_again_is_written_again_and_its_new_uid_is_returned() -> None:
    writer = NodeWriter()
    before = writer.write()
    writer.cluster.delete(PATH)
    with pytest.raises(NodeUpdateError, match="has no node node1: set its name with --node-name"):
        writer.write()
    node = node_object("node1", (), with_annotation=False)
    node["metadata"]["uid"] = "another"
    writer.cluster.add_node({**node, "status": {}})
    assert writer.write() == "another" != before
    assert offered(writer) == [(0, 4, True), (1, 6, True)]


@pytest.mark.parametrize("offer", [None, replace(OFFER, gpus=())])
def test_annotation_and_count_are_removed_without_shared_gpus(offer: AdvertisedMemory | None) -> None:
    writer = NodeWriter()
    writer.write()
    writer.write(offer)
    assert GPUS not in writer.node["metadata"].get("annotations", {})
    assert COUNT not in writer.node["status"]["capacity"]
    writer.write(offer)
    assert writer.calls == [f"GET {PATH}"]


@pytest.mark.parametrize("status", [UNKNOWN, 401, 403, 409, 410, 429, 500, 503])
@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_a_request_that_the_server_refuses_is_an_error(status: int, method: str) -> None:
    writer = NodeWriter()
    reply = Reply(status=status, body={"message": "not today"})
    writer.fault = lambda call: reply if call.method == method else None
    with pytest.raises(NodeUpdateError, match=f"the API server refused {method} {PATH}.*: not today"):
        writer.write()


@pytest.mark.parametrize(
    "body",
    [{}, {"metadata": []}, {"metadata": {"annotations": "x"}}, {"status": 3}, {"status": {"capacity": []}}],
)
def test_an_invalid_node_is_corrected(body: dict[str, Any]) -> None:
    writer = NodeWriter()
    writer.fault = lambda call: Reply(status=200, body=body) if call.method == "GET" else None
    writer.write()
    assert offered(writer) == [(0, 4, True), (1, 6, True)]
