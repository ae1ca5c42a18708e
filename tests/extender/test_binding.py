"""A bind step by step: what is asked of the API server, and what an interruption leaves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.kubernetes.binds import Bind, pod_sink, wanted
from support.kubernetes.cluster_model import Cluster, drive, index_of
from support.kubernetes.shared_pods import RESOURCES, container, node_object, pod_object

from cdigen.extender.binding import MAX_ATTEMPTS, Outcome, Terms, bind
from cdigen.extender.index import Index
from cdigen.gpushare import names
from cdigen.gpushare.ledger import read_ledger
from cdigen.kubeapi.calls import UNKNOWN, Reply

if TYPE_CHECKING:
    from cdigen.extender.binding import Wanted
    from cdigen.kubeapi.calls import Call

LOST = Reply(status=UNKNOWN, body={}, reason="lost")
FORBIDDEN = Reply(status=403, body={"message": "forbidden"})
LEDGER = "/api/v1/namespaces/kube-system/configmaps/cdigen-gpu-mem-node1"
POD = "/api/v1/namespaces/default/pods/p"


def cluster_with(*sizes: int, **asks: int) -> Cluster:
    cluster = Cluster(has_binding_versions=False)
    cluster.add_node(node_object(sizes=sizes))
    for name, units in asks.items():
        cluster.add_pod(pod_object(name, units))
    return cluster


class Running(Bind):
    """A bind of the pod NAME to node1, which goes on as far as it is told."""

    def __init__(self, cluster: Cluster, index: Index, name: str, token: str = "a") -> None:
        super().__init__(index, wanted(name), token)
        self.cluster = cluster
        self.calls: list[str] = []

    def go_on(self, reply: Reply | None = None) -> None:
        assert self.call is not None
        self.calls.append(f"{self.call.method} {self.call.path.rsplit('/', 1)[-1]}")
        super().go_on(reply or self.cluster.answer(self.call))

    def until(self, what: str) -> Call:
        """Go on until a call waits to be sent whose method is WHAT, or whose path ends so, and return it."""
        while self.call is not None and self.call.method != what and not self.call.path.endswith(what):
            self.go_on()
        assert self.call is not None
        return self.call

    def to_the_end(self) -> str:
        while self.call is not None:
            self.go_on()
        assert self.answer is not None
        return self.answer


def bound(cluster: Cluster, name: str, token: str = "z") -> str:
    return Running(cluster, index_of(cluster), name, token).to_the_end()


def test_a_bind_is_four_requests() -> None:
    cluster = cluster_with(8, 8, p=3)
    cluster.put(LEDGER, {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"claims": "{}"}})
    running = Running(cluster, index_of(cluster), "p")
    assert running.to_the_end() == ""
    assert running.calls == [
        "GET p", "GET cdigen-gpu-mem-node1", "PUT cdigen-gpu-mem-node1", "POST binding",
    ]  # fmt: skip


def test_a_bound_pod_has_gpushares_annotations() -> None:
    cluster = cluster_with(8, 4, p=3)
    assert bound(cluster, "p") == ""
    pod = cluster.objects[POD]
    assert pod["spec"]["nodeName"] == "node1"
    assert pod["metadata"]["annotations"] == {
        names.INDEX: "1",
        names.OF_GPU: "4",
        names.OF_POD: "3",
        names.ASSUME_TIME: "7",
        names.ASSIGNED: "false",
        names.ALLOCATION: '{"0":{"1":3}}',
        names.LEDGER_IN: "kube-system",
    }
    assert json.loads(cluster.objects[LEDGER]["data"]["claims"])["uid-p"]["gpus"] == {"1": 3}


def test_two_containers_get_a_gpu_each_where_none_has_room_for_both() -> None:
    cluster = cluster_with(4, 4)
    cluster.add_pod(pod_object("p", 3, 2))
    assert bound(cluster, "p") == ""
    annotations = cluster.objects[POD]["metadata"]["annotations"]
    assert annotations[names.INDEX] == "0,1"
    assert annotations[names.ALLOCATION] == '{"0":{"0":3},"1":{"1":2}}'


def test_a_pod_with_an_asking_init_container_stays_on_one_gpu() -> None:
    cluster = cluster_with(4, 5)
    cluster.add_pod(pod_object("p", 3, 2, inits=[container(1)]))
    assert bound(cluster, "p") == ""
    assert cluster.objects[POD]["metadata"]["annotations"][names.INDEX] == "1"
    cluster.add_pod(pod_object("q", 1, inits=[container(5)]))
    assert "none has more than" in bound(cluster, "q")


def test_a_bind_that_comes_again_is_done_already() -> None:
    cluster = cluster_with(8, p=3)
    assert bound(cluster, "p") == bound(cluster, "p", "y") == ""
    assert cluster.used("node1") == {0: 3}


@pytest.mark.parametrize(
    ("units", "said"), [(9, "the largest has 8"), (5, "none has more than 4 free"), (0, "")]
)
def test_who_has_no_room_is_told_why(units: int, said: str) -> None:
    cluster = cluster_with(8, q=4, p=units)
    bound(cluster, "q")
    assert said in bound(cluster, "p")


def test_a_pod_of_another_uid_is_not_bound() -> None:
    cluster = cluster_with(8, p=3)
    running = Running(cluster, index_of(cluster), "p")
    cluster.delete(POD)
    cluster.add_pod(pod_object("p", 3, uid="another"))
    assert "another one of this name" in running.to_the_end()


def test_a_pod_that_has_ended_or_is_on_another_node_is_not_bound() -> None:
    cluster = cluster_with(8, p=3)
    pod = cluster.objects[POD]
    pod["status"]["phase"] = "Failed"
    assert bound(cluster, "p") == "the pod has ended"
    pod["status"]["phase"], pod["spec"]["nodeName"] = "Running", "node2"
    assert bound(cluster, "p") == "the pod is bound to node2"


def test_a_refused_binding_takes_the_promise_back() -> None:
    cluster = cluster_with(4, p=4, q=4)
    running = Running(cluster, index_of(cluster), "p")
    running.until("binding")
    running.go_on(FORBIDDEN)
    assert "refuses the binding" in running.to_the_end()
    assert bound(cluster, "q") == ""


def test_a_binding_that_may_still_come_keeps_its_promise() -> None:
    cluster = cluster_with(4, p=4, q=4)
    running = Running(cluster, index_of(cluster), "p")
    late = running.until("binding")
    running.go_on(LOST)
    running.go_on(LOST)
    running.to_the_end()
    assert bound(cluster, "q") != ""
    cluster.answer(late)
    assert cluster.used("node1") == {0: 4}


def test_an_adopted_promise_is_not_taken_back() -> None:
    cluster = cluster_with(4, p=4, q=4)
    first = Running(cluster, index_of(cluster), "p", "a")
    first.until("binding")
    second = Running(cluster, index_of(cluster), "p", "b")
    second.until("binding")
    second.go_on(FORBIDDEN)
    assert second.to_the_end() != ""
    assert bound(cluster, "q") != ""
    assert first.to_the_end() == ""
    assert cluster.used("node1") == {0: 4}


def test_a_promise_that_another_attempt_may_use_still_counts() -> None:
    cluster = cluster_with(4, 4, p=4, q=4, r=4)
    late_index = index_of(cluster)
    first = Running(cluster, index_of(cluster), "p", "a")
    first.until("binding")
    sick = index_of(cluster)
    sick.put_unhealthy({"metadata": {"name": "unhealthy-gpu-node1"}, "data": {"gpus": "0"}})
    second = Running(cluster, sick, "p", "b")
    second.until("binding")
    assert first.to_the_end() == ""
    for name in "qr":
        Running(cluster, late_index, name, name).to_the_end()
    assert max(cluster.used("node1").values()) <= 4
    second.to_the_end()
    assert max(cluster.used("node1").values()) <= 4


def test_a_request_that_names_a_living_pods_uid_wrongly_frees_nothing() -> None:
    cluster = cluster_with(4, p=4, q=4)
    bound(cluster, "p")
    index = index_of(cluster)
    assert driven(cluster, wanted("nobody", uid="uid-p"), index).kind == "over"
    assert Running(cluster, index, "q").to_the_end() != ""
    assert cluster.used("node1") == {0: 4}


def test_a_pod_that_a_bind_learns_of_during_a_list_is_not_taken_for_gone() -> None:
    cluster = cluster_with(4, q=4)
    index = index_of(cluster)
    sink = pod_sink(index)
    sink.begin()
    listed = [found["metadata"] for found in cluster.pods()]
    cluster.add_pod(pod_object("p", 4))
    assert Running(cluster, index, "p").to_the_end() == ""
    sink.keep(listed)
    assert Running(cluster, index, "q").to_the_end() != ""
    assert cluster.used("node1") == {0: 4}
    sink.begin()
    sink.keep([])
    assert index.count() == 0


def test_a_list_without_a_pod_that_only_a_ledger_names_frees_its_units() -> None:
    cluster = cluster_with(4, p=4)
    index = index_of(cluster_with(4))
    bound(cluster, "p")
    sink = pod_sink(index)
    sink.begin()
    sink.keep([])
    index.put_ledger("node1", read_ledger(cluster.objects[LEDGER]))
    assert room_of_node1(index) == 0
    sink.keep([])  # that list began before the ledger was read
    assert room_of_node1(index) == 0
    sink.begin()
    sink.keep([])
    assert room_of_node1(index) == 4


def room_of_node1(index: Index) -> int:
    room = index.room("node1")
    assert room is not None
    return room.most


def test_promises_to_pods_that_are_gone_or_elsewhere_are_dropped() -> None:
    cluster = cluster_with(4, p=4, q=4, r=4)
    Running(cluster, index_of(cluster), "p").until("binding")
    cluster.objects[POD]["spec"]["nodeName"] = "node2"
    running = Running(cluster, index_of(cluster), "q")
    running.until("binding")
    cluster.delete(POD.removesuffix("p") + "q")
    assert bound(cluster, "r") == ""
    assert set(json.loads(cluster.objects[LEDGER]["data"]["claims"])) == {"uid-r"}


def test_a_ledger_that_others_always_change_ends_in_a_refusal() -> None:
    cluster = cluster_with(8, p=3)
    bound(cluster, "p")
    cluster.add_pod(pod_object("q", 1))
    running = Running(cluster, index_of(cluster), "q")
    for _ in range(MAX_ATTEMPTS):
        running.until("PUT")
        running.go_on(Reply(status=409, body={}))
    assert "others were always first" in running.to_the_end()


@pytest.mark.parametrize("data", ["{", "[]", '{"uid-p": 3}', '{"uid-p": {"gpus": {"0": -4}}}'])
def test_with_a_torn_ledger_the_annotations_still_count(data: str) -> None:
    cluster = cluster_with(4, p=4, q=4)
    bound(cluster, "p")
    cluster.objects[LEDGER]["data"]["claims"] = data
    assert "none has more than 0 free" in bound(cluster, "q")


def test_an_entry_of_nobody_holds_nothing() -> None:
    cluster = cluster_with(4, p=4, q=4)
    running = Running(cluster, index_of(cluster), "p")
    running.until("binding")
    cluster.objects[LEDGER]["data"]["claims"] = '{"x": {"pod": "", "gpus": {"0": 4}, "containers": {"0": 0}}}'
    assert bound(cluster, "q") == ""
    running.to_the_end()


def test_what_floats_counts_on_every_gpu() -> None:
    cluster = cluster_with(4, 4, q=3)
    cluster.add_pod(pod_object("p", 2, node="node1", annotations={names.INDEX: "seven"}))
    assert "none has more than 2 free" in bound(cluster, "q")


def test_a_terminating_pod_counts_until_it_is_gone() -> None:
    cluster = cluster_with(4, p=4, q=4)
    bound(cluster, "p")
    cluster.objects[POD]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert bound(cluster, "q") != ""
    cluster.delete(POD)
    assert bound(cluster, "q") == ""


def test_what_a_ledger_said_long_ago_keeps_no_node_looking_full() -> None:
    cluster = cluster_with(4, p=4, q=1)
    now_s = [0.0]
    index = index_of(cluster, clock=lambda: now_s[0])
    Running(cluster, index_of(cluster), "p", "b").until("binding")
    index.put_ledger("node1", read_ledger(cluster.objects[LEDGER]))
    cluster.objects[LEDGER]["data"]["claims"] = "{}"  # its maker takes it back
    index.forget_promises()
    assert room_of_node1(index) == 0
    now_s[0] = 61.0
    index.forget_promises()
    assert room_of_node1(index) == 4


def test_annotations_take_no_memory_once_they_are_read() -> None:
    index = Index(RESOURCES)
    given = {names.INDEX: "1", names.ALLOCATION: "x" * 60_000}
    index.put_pod(pod_object("p", 3, node="node1", annotations=given))
    pod = index.pod("uid-p")
    assert pod is not None
    assert pod.annotations == ()
    assert [claim.on for _, claim in index.pods_on("node1")] == [((1, 3),)]


def test_how_a_bind_ended_is_told_with_its_gpus() -> None:
    cluster = cluster_with(8, 4, p=3, q=9)
    for _ in range(2):  # the second finds it bound
        assert driven(cluster, wanted("p")) == Outcome(on=((1, 3),))
    outcome = driven(cluster, wanted("q"))
    assert (outcome.kind, outcome.on) == ("no-room", ())


def driven(cluster: Cluster, asked: Wanted, index: Index | None = None) -> Outcome:
    terms = Terms(namespace="kube-system", token="t", now_ns=1)
    return drive(bind(asked, index or index_of(cluster), terms), cluster.answer)
