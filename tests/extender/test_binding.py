"""A bind step by step: its requests to the API server, and the state after an interruption."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.kubernetes.binds import Bind, bind_request, end_list, pod_store
from support.kubernetes.cluster_model import Cluster, drive, index_of
from support.kubernetes.gpu_memory_pods import RESOURCES, container, node_object, pod_object

from cdigen.extender.binding import MAX_ATTEMPTS, BindConfig, BindResult, bind
from cdigen.extender.index import Index
from cdigen.gpushare import names
from cdigen.gpushare.ledger import read_ledger
from cdigen.kubeapi.calls import UNKNOWN, Reply

if TYPE_CHECKING:
    from cdigen.extender.binding import BindRequest
    from cdigen.kubeapi.calls import Call

LOST = Reply(status=UNKNOWN, body={}, reason="lost")
FORBIDDEN = Reply(status=403, body={"message": "forbidden"})
LEDGER = "/api/v1/namespaces/kube-system/configmaps/cdigen-gpu-mem-node1"
POD = "/api/v1/namespaces/default/pods/p"


def cluster_with(*sizes: int, **requests: int) -> Cluster:
    cluster = Cluster(has_binding_versions=False)
    cluster.add_node(node_object(sizes=sizes))
    for name, units in requests.items():
        cluster.add_pod(pod_object(name, units))
    return cluster


class Running(Bind):
    """A bind of the pod NAME to node1, which a test continues request by request."""

    def __init__(self, cluster: Cluster, index: Index, name: str, token: str = "a") -> None:
        super().__init__(index, bind_request(name), token)
        self.cluster = cluster
        self.calls: list[str] = []

    def go_on(self, reply: Reply | None = None) -> None:
        assert self.call is not None
        self.calls.append(f"{self.call.method} {self.call.path.rsplit('/', 1)[-1]}")
        super().go_on(reply or self.cluster.answer(self.call))

    def until(self, text: str) -> Call:
        """Continue until the next call has the method TEXT or a path that ends with TEXT; return the call."""
        while self.call is not None and self.call.method != text and not self.call.path.endswith(text):
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


def test_a_bind_sends_four_requests() -> None:
    cluster = cluster_with(8, 8, p=3)
    cluster.put(LEDGER, {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"reservations": "{}"}})
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
        names.LEDGER_NAMESPACE: "kube-system",
    }
    assert json.loads(cluster.objects[LEDGER]["data"]["reservations"])["uid-p"]["gpus"] == {"1": 3}


def test_two_containers_get_separate_gpus_if_no_gpu_has_enough_free_units_for_both() -> None:
    cluster = cluster_with(4, 4)
    cluster.add_pod(pod_object("p", 3, 2))
    assert bound(cluster, "p") == ""
    annotations = cluster.objects[POD]["metadata"]["annotations"]
    assert annotations[names.INDEX] == "0,1"
    assert annotations[names.ALLOCATION] == '{"0":{"0":3},"1":{"1":2}}'


def test_a_pod_whose_init_container_requests_units_stays_on_one_gpu() -> None:
    cluster = cluster_with(4, 5)
    cluster.add_pod(pod_object("p", 3, 2, inits=[container(1)]))
    assert bound(cluster, "p") == ""
    assert cluster.objects[POD]["metadata"]["annotations"][names.INDEX] == "1"
    cluster.add_pod(pod_object("q", 1, inits=[container(5)]))
    assert "no GPU has more than" in bound(cluster, "q")


def test_a_repeated_bind_succeeds() -> None:
    cluster = cluster_with(8, p=3)
    assert bound(cluster, "p") == bound(cluster, "p", "y") == ""
    assert cluster.used("node1") == {0: 3}


@pytest.mark.parametrize(
    ("units", "expected"), [(9, "the largest GPU has 8"), (5, "no GPU has more than 4 free"), (0, "")]
)
def test_a_refused_bind_reports_the_reason(units: int, expected: str) -> None:
    cluster = cluster_with(8, q=4, p=units)
    bound(cluster, "q")
    assert expected in bound(cluster, "p")


def test_a_request_with_a_suffix_gets_a_hint() -> None:
    """Users write 10G for 10 GiB of memory, which is a number of units."""
    cluster = cluster_with(8, p=10_000_000_000, q=1_000_000, r=999_999)
    for name in ("p", "q"):
        assert "without a suffix (unit GiB: 10 for 10 GiB)" in bound(cluster, name)
    assert bound(cluster, "r").endswith("the largest GPU has 8")


def test_a_pod_with_another_uid_is_not_bound() -> None:
    cluster = cluster_with(8, p=3)
    running = Running(cluster, index_of(cluster), "p")
    cluster.delete(POD)
    cluster.add_pod(pod_object("p", 3, uid="another"))
    assert "another pod has this name" in running.to_the_end()


def test_a_pod_that_has_ended_or_is_on_another_node_is_not_bound() -> None:
    cluster = cluster_with(8, p=3)
    pod = cluster.objects[POD]
    pod["status"]["phase"] = "Failed"
    assert bound(cluster, "p") == "the pod has ended"
    pod["status"]["phase"], pod["spec"]["nodeName"] = "Running", "node2"
    assert bound(cluster, "p") == "the pod is bound to node2"


def test_the_reservation_is_removed_if_the_api_server_refuses_the_binding() -> None:
    cluster = cluster_with(4, p=4, q=4)
    running = Running(cluster, index_of(cluster), "p")
    running.until("binding")
    running.go_on(FORBIDDEN)
    assert "refuses the binding" in running.to_the_end()
    assert bound(cluster, "q") == ""


def test_the_reservation_stays_if_the_result_of_the_binding_is_unknown() -> None:
    cluster = cluster_with(4, p=4, q=4)
    running = Running(cluster, index_of(cluster), "p")
    late = running.until("binding")
    running.go_on(LOST)
    running.go_on(LOST)
    running.to_the_end()
    assert bound(cluster, "q") != ""
    cluster.answer(late)
    assert cluster.used("node1") == {0: 4}


def test_a_failed_bind_keeps_a_reservation_that_another_extender_uses() -> None:
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


def test_a_reservation_that_another_bind_of_the_same_pod_may_use_stays() -> None:
    cluster = cluster_with(4, 4, p=4, q=4, r=4)
    late_index = index_of(cluster)
    first = Running(cluster, index_of(cluster), "p", "a")
    first.until("binding")
    unhealthy_index = index_of(cluster)
    unhealthy_index.put_unhealthy({"metadata": {"name": "unhealthy-gpu-node1"}, "data": {"gpus": "0"}})
    second = Running(cluster, unhealthy_index, "p", "b")
    second.until("binding")
    assert first.to_the_end() == ""
    for name in "qr":
        Running(cluster, late_index, name, name).to_the_end()
    assert max(cluster.used("node1").values()) <= 4
    second.to_the_end()
    assert max(cluster.used("node1").values()) <= 4


def test_a_request_with_the_uid_of_another_running_pod_frees_no_units() -> None:
    cluster = cluster_with(4, p=4, q=4)
    bound(cluster, "p")
    index = index_of(cluster)
    assert driven(cluster, bind_request("missing", uid="uid-p"), index).kind == "pod_gone"
    assert Running(cluster, index, "q").to_the_end() != ""
    assert cluster.used("node1") == {0: 4}


def test_a_pod_that_a_bind_reads_during_a_list_of_pods_stays_in_the_index() -> None:
    cluster = cluster_with(4, q=4)
    index = index_of(cluster)
    store = pod_store(index)
    known = store.known()
    listed = [found["metadata"] for found in cluster.pods()]
    cluster.add_pod(pod_object("p", 4))
    assert Running(cluster, index, "p").to_the_end() == ""
    end_list(store, known, listed)
    assert Running(cluster, index, "q").to_the_end() != ""
    assert cluster.used("node1") == {0: 4}
    end_list(store, store.known())
    assert index.count() == 0


def test_a_reservation_in_the_ledger_ends_after_a_new_list_of_pods_without_its_pod() -> None:
    cluster = cluster_with(4, p=4)
    index = index_of(cluster_with(4))
    bound(cluster, "p")
    store = pod_store(index)
    known = store.known()
    end_list(store, known)
    index.put_ledger("node1", read_ledger(cluster.objects[LEDGER]))
    assert free_on_node1(index) == 0
    end_list(store, known)  # this list began before the index read the ledger
    assert free_on_node1(index) == 0
    end_list(store, store.known())
    assert free_on_node1(index) == 4


def free_on_node1(index: Index) -> int:
    free = index.free_capacity("node1")
    assert free is not None
    return free.most


def test_reservations_of_deleted_pods_and_of_pods_on_other_nodes_are_removed() -> None:
    cluster = cluster_with(4, p=4, q=4, r=4)
    Running(cluster, index_of(cluster), "p").until("binding")
    cluster.objects[POD]["spec"]["nodeName"] = "node2"
    running = Running(cluster, index_of(cluster), "q")
    running.until("binding")
    cluster.delete(POD.removesuffix("p") + "q")
    assert bound(cluster, "r") == ""
    assert set(json.loads(cluster.objects[LEDGER]["data"]["reservations"])) == {"uid-r"}


def test_a_bind_fails_if_other_writers_change_the_ledger_at_each_attempt() -> None:
    cluster = cluster_with(8, p=3)
    bound(cluster, "p")
    cluster.add_pod(pod_object("q", 1))
    running = Running(cluster, index_of(cluster), "q")
    for _ in range(MAX_ATTEMPTS):
        running.until("PUT")
        running.go_on(Reply(status=409, body={}))
    assert "conflict with other writers" in running.to_the_end()


@pytest.mark.parametrize("data", ["{", "[]", '{"uid-p": 3}', '{"uid-p": {"gpus": {"0": -4}}}'])
def test_with_an_invalid_ledger_the_annotations_of_pods_still_reserve_units(data: str) -> None:
    cluster = cluster_with(4, p=4, q=4)
    bound(cluster, "p")
    cluster.objects[LEDGER]["data"]["reservations"] = data
    assert "no GPU has more than 0 free" in bound(cluster, "q")


def test_a_ledger_entry_without_a_pod_name_reserves_nothing() -> None:
    cluster = cluster_with(4, p=4, q=4)
    running = Running(cluster, index_of(cluster), "p")
    running.until("binding")
    cluster.objects[LEDGER]["data"]["reservations"] = (
        '{"x": {"pod": "", "gpus": {"0": 4}, "containers": {"0": 0}}}'
    )
    assert bound(cluster, "q") == ""
    running.to_the_end()


def test_the_units_of_a_pod_with_an_invalid_gpu_index_are_reserved_on_every_gpu() -> None:
    cluster = cluster_with(4, 4, q=3)
    cluster.add_pod(pod_object("p", 2, node="node1", annotations={names.INDEX: "seven"}))
    assert "no GPU has more than 2 free" in bound(cluster, "q")


def test_a_terminating_pod_keeps_its_units_until_it_is_gone() -> None:
    cluster = cluster_with(4, p=4, q=4)
    bound(cluster, "p")
    cluster.objects[POD]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert bound(cluster, "q") != ""
    cluster.delete(POD)
    assert bound(cluster, "q") == ""


def test_an_old_ledger_is_dropped_from_the_index() -> None:
    cluster = cluster_with(4, p=4, q=1)
    now_s = [0.0]
    index = index_of(cluster, clock=lambda: now_s[0])
    Running(cluster, index_of(cluster), "p", "b").until("binding")
    index.put_ledger("node1", read_ledger(cluster.objects[LEDGER]))
    cluster.objects[LEDGER]["data"]["reservations"] = "{}"  # another writer removes the entry
    index.drop_old_ledgers()
    assert free_on_node1(index) == 0
    now_s[0] = 61.0
    index.drop_old_ledgers()
    assert free_on_node1(index) == 4


def test_the_index_keeps_no_annotations() -> None:
    index = Index(RESOURCES)
    annotations = {names.INDEX: "1", names.ALLOCATION: "x" * 60_000}
    index.put_pod(pod_object("p", 3, node="node1", annotations=annotations))
    pod = index.pod("uid-p")
    assert pod is not None
    assert pod.annotations == ()
    assert [reservation.on for _, reservation in index.pods_on("node1")] == [((1, 3),)]


def test_the_result_of_a_bind_has_the_gpus_of_the_pod() -> None:
    cluster = cluster_with(8, 4, p=3, q=9)
    for _ in range(2):  # in the second bind, the pod is bound already
        assert driven(cluster, bind_request("p")) == BindResult(on=((1, 3),))
    outcome = driven(cluster, bind_request("q"))
    assert (outcome.kind, outcome.on) == ("no_capacity", ())


def driven(cluster: Cluster, request: BindRequest, index: Index | None = None) -> BindResult:
    config = BindConfig(namespace="kube-system", token="t", now_ns=1)
    return drive(bind(request, index or index_of(cluster), config), cluster.answer)
