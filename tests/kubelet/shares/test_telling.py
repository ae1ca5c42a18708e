"""What a node's object says of shares: written when it is not so, whoever changed it, and taken away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.shares_side import OFFER
from support.kubernetes.cluster_model import Cluster, drive
from support.kubernetes.shared_pods import COUNT, MEMORY, RESOURCES, node_object

from cdigen.gpushare.names import GPUS
from cdigen.gpushare.nodes import read_node
from cdigen.kubeapi.calls import UNKNOWN, Call, Reply
from cdigen.kubelet.shares.telling import UntoldError, tell_node
from cdigen.value import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.kubelet.resources.memory import MemoryOffer

PATH = "/api/v1/nodes/node1"


class Teller:
    """Tells a node of a cluster; `asked` are the methods and paths."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        found = node_object("node1", (), with_annotation=False)
        found["status"] = {}
        self.cluster.add_node(found)
        self.asked: list[str] = []
        self.fault: Callable[[Call], Reply | None] = lambda _: None

    def tell(self, offer: MemoryOffer | None = OFFER) -> str:
        self.asked.clear()
        return str(drive(tell_node("node1", offer, RESOURCES), self.answer))

    def answer(self, call: Call) -> Reply:
        self.asked.append(f"{call.method} {call.path}")
        return self.fault(call) or self.cluster.answer(call)

    @property
    def node(self) -> dict[str, Any]:
        return self.cluster.objects[PATH]


def offered(teller: Teller) -> list[tuple[int, int, bool]]:
    found = json.loads(teller.node["metadata"]["annotations"][GPUS])["gpus"]
    return [(row["index"], row["units"], row["healthy"]) for row in found]


def test_it_is_written_once_and_read_by_the_other_side() -> None:
    teller = Teller()
    teller.tell()
    assert teller.asked == [f"GET {PATH}", f"PATCH {PATH}/status"]
    teller.tell()
    assert teller.asked == [f"GET {PATH}"]
    teller.node["status"]["capacity"][MEMORY] = "10"
    assert [gpu.units for gpu in read_node(teller.node, RESOURCES).gpus] == [4, 6]


def test_health_is_written_when_it_changes() -> None:
    teller = Teller()
    teller.tell()
    sick = replace(OFFER, gpus=(OFFER.gpus[0], replace(OFFER.gpus[1], is_healthy=False)))
    teller.tell(sick)
    assert offered(teller) == [(0, 4, True), (1, 6, False)]
    assert teller.asked == [f"GET {PATH}", f"PATCH {PATH}/status"]


@pytest.mark.parametrize("value", ["", "torn {", "[]", '{"gpus":[{"index":0,"units":-4}]}', None])
def test_what_somebody_else_wrote_is_corrected(value: str | None) -> None:
    teller = Teller()
    teller.tell()
    teller.node["metadata"]["annotations"][GPUS] = value
    teller.tell()
    assert offered(teller) == [(0, 4, True), (1, 6, True)]


@pytest.mark.parametrize("value", ["0", "3", "-1", "many", "99999999999999999999", None, 7])
def test_a_number_of_gpus_that_is_not_so_is_corrected(value: object) -> None:
    # The kubelet zeroes it when it begins without its checkpoint.
    teller = Teller()
    teller.tell()
    teller.node["status"]["capacity"][COUNT] = value
    teller.tell()
    assert teller.node["status"]["capacity"][COUNT] == teller.node["status"]["allocatable"][COUNT] == "2"


def test_a_node_that_was_made_anew_is_told_again_and_has_its_new_uid() -> None:
    teller = Teller()
    before = teller.tell()
    teller.cluster.delete(PATH)
    with pytest.raises(UntoldError, match="knows no node node1: give its name by --node-name"):
        teller.tell()
    anew = node_object("node1", (), with_annotation=False)
    anew["metadata"]["uid"] = "another"
    teller.cluster.add_node({**anew, "status": {}})
    assert teller.tell() == "another" != before
    assert offered(teller) == [(0, 4, True), (1, 6, True)]


@pytest.mark.parametrize("offer", [None, replace(OFFER, gpus=())])
def test_what_is_offered_no_more_is_taken_away(offer: MemoryOffer | None) -> None:
    teller = Teller()
    teller.tell()
    teller.tell(offer)
    assert GPUS not in teller.node["metadata"].get("annotations", {})
    assert COUNT not in teller.node["status"]["capacity"]
    teller.tell(offer)
    assert teller.asked == [f"GET {PATH}"]


@pytest.mark.parametrize("status", [UNKNOWN, 401, 403, 409, 410, 429, 500, 503])
@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_what_the_server_refuses_is_said(status: int, method: str) -> None:
    teller = Teller()
    words = Reply(status=status, body={"message": "not today"})
    teller.fault = lambda call: words if call.method == method else None
    with pytest.raises(UntoldError, match=f"does not let us (show|write) {PATH}.*: not today"):
        teller.tell()


@pytest.mark.parametrize(
    "body",
    [{}, {"metadata": []}, {"metadata": {"annotations": "x"}}, {"status": 3}, {"status": {"capacity": []}}],
)
def test_a_torn_node_is_written_as_it_should_be(body: dict[str, Any]) -> None:
    teller = Teller()
    teller.fault = lambda call: Reply(status=200, body=body) if call.method == "GET" else None
    teller.tell()
    assert offered(teller) == [(0, 4, True), (1, 6, True)]
