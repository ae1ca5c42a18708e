"""`cdigen extender` as a process, with a fake API server and requests of a scheduler."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from support.json_output import validator
from support.kubernetes.api_server import ApiServer
from support.kubernetes.certificates import made
from support.kubernetes.cluster_model import cluster_of
from support.kubernetes.extender_process import PREFIX, Extender, ready, run_once, running, started
from support.kubernetes.gpu_memory_pods import node_object, pod_object
from support.waiting import PATIENCE_S, pause, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(cluster_of(node_object(sizes=(8, 4)), node_object("node2", sizes=(2,)))) as found:
        yield found


@pytest.fixture
def extender(server: ApiServer, tmp_path: Path) -> Iterator[Extender]:
    with ready(server, tmp_path) as found:
        yield found


def add(server: ApiServer, name: str, units: int) -> None:
    server.change(lambda cluster: cluster.add_pod(pod_object(name, units)))


def test_a_pod_is_filtered_bound_and_inspected(server: ApiServer, extender: Extender) -> None:
    pod = pod_object("p", 3)
    server.change(lambda cluster: cluster.add_pod(pod))
    answer = extender.filter(pod, "node1", "node2", "node3")
    assert answer["NodeNames"] == ["node1"]
    assert "the largest GPU has 2" in answer["FailedAndUnresolvableNodes"]["node2"]
    assert "the largest GPU has 2" in answer["FailedNodes"]["node2"]
    assert "not in the node list" in answer["FailedNodes"]["node3"]
    assert extender.bind("p") == ""
    (node,) = extender.request("GET", f"{PREFIX}/inspect/node1")[1]["nodes"]
    assert node["devs"][1]["pods"] == [{"name": "p", "namespace": "default", "usedGPU": 3}]
    assert (node["totalGPU"], node["usedGPU"]) == (12, 3)
    scores = extender.request("POST", f"{PREFIX}/prioritize", {"Pod": pod, "NodeNames": ["node1", "node2"]})[
        1
    ]
    assert [row["Host"] for row in scores] == ["node1", "node2"]
    assert extender.request("GET", f"{PREFIX}/inspect/missing") == (
        200,
        {"nodes": [], "error": "node missing: not found"},
    )


def test_the_units_of_a_deleted_pod_are_free_again(server: ApiServer, extender: Extender) -> None:
    add(server, "p", 8)
    add(server, "q", 8)
    assert extender.bind("p") == ""
    assert "no GPU has more than 4 free" in extender.bind("q")
    server.change(lambda cluster: cluster.delete("/api/v1/namespaces/default/pods/p"))
    assert until(lambda: extender.filter(pod_object("q", 8), "node1")["NodeNames"] == ["node1"])
    assert extender.bind("q") == ""


def test_two_concurrent_extenders_reserve_no_gpu_twice(server: ApiServer, tmp_path: Path) -> None:
    with ready(server, tmp_path / "a") as first, ready(server, tmp_path / "b") as second:
        names = [f"p{number}" for number in range(24)]
        for number, name in enumerate(names):
            add(server, name, 1 + number % 3)
        extenders = (first, second) * 12
        with ThreadPoolExecutor(4) as threads:
            failures = [each for each in threads.map(Extender.bind, extenders, names) if each]
        used = server.cluster.used("node1")
        assert set(used) == {0, 1}
        assert used[0] <= 8
        assert used[1] <= 4
        assert sum(used.values()) >= 10
        assert all("free" in each or "conflict" in each for each in failures), failures


def test_old_schedulers_get_the_older_member_names(extender: Extender) -> None:
    args = {"pod": pod_object("p", 3), "nodenames": ["node1", "node2"]}
    answer = extender.request("POST", f"{PREFIX}/filter", args)[1]
    assert answer["nodenames"] == ["node1"]
    assert set(answer) == {"nodes", "nodenames", "failedNodes", "error"}
    whole = {"Pod": pod_object("p", 3), "Nodes": {"items": [node_object(), node_object("node2")]}}
    answer = extender.request("POST", f"{PREFIX}/filter", whole)[1]
    assert [row["metadata"]["name"] for row in answer["Nodes"]["items"]] == ["node1"]


def test_changes_of_nodes_and_unhealthy_gpus_update_the_index(server: ApiServer, extender: Extender) -> None:
    pod = pod_object("p", 8)
    assert extender.filter(pod, "node1")["NodeNames"] == ["node1"]
    unhealthy = {"kind": "ConfigMap", "metadata": {"name": "unhealthy-gpu-node1", "namespace": "kube-system",
            "uid": "u"}, "data": {"gpus": "0"}}  # fmt: skip
    path = "/api/v1/namespaces/kube-system/configmaps/unhealthy-gpu-node1"
    server.change(lambda cluster: cluster.put(path, unhealthy, "ADDED"))
    assert until(lambda: extender.filter(pod, "node1")["NodeNames"] == [])
    server.change(lambda cluster: cluster.delete(path))
    assert until(lambda: extender.filter(pod, "node1")["NodeNames"] == ["node1"])
    server.change(lambda cluster: cluster.put("/api/v1/nodes/node1", node_object(sizes=(4, 4))))
    assert until(lambda: extender.filter(pod, "node1")["NodeNames"] == [])


def test_after_410_gone_the_objects_are_listed_again(server: ApiServer, extender: Extender) -> None:
    server.faults = lambda _, path: 500 if "watch=1" in path else None
    server.end_watches()
    server.change(lambda cluster: cluster.add_pod(pod_object("p", 8, node="node1")))
    server.change(lambda cluster: cluster.put("/api/v1/nodes/node1", node_object(sizes=(1, 1))))
    server.end_watches(forget=True)
    server.faults = lambda _, _path: None
    assert until(lambda: extender.filter(pod_object("q", 2), "node1")["NodeNames"] == [])


def test_the_extender_waits_for_an_unreachable_api_server(server: ApiServer, tmp_path: Path) -> None:
    server.faults = lambda _, _path: 503
    with running(server, tmp_path) as extender:
        assert extender.request("GET", "/readyz")[0] == 503
        assert "is not ready" in extender.filter(pod_object("p", 3), "node1")["Error"]
        assert "is not ready" in extender.bind("p")
        server.faults = lambda _, _path: None
        assert until(lambda: extender.request("GET", "/readyz")[0] == 200)
        add(server, "p", 3)
        server.faults = lambda _, path: 503 if path.endswith("/binding") else None
        assert extender.bind("p") != ""
        server.faults = lambda _, _path: None
        assert extender.bind("p") == ""


def test_metrics_and_version_are_served(server: ApiServer, extender: Extender) -> None:
    add(server, "p", 3)
    extender.filter(pod_object("p", 3), "node1")
    assert extender.bind("p") == ""
    assert extender.bind("missing") == "the pod is gone"
    assert extender.request("GET", "/version")[1].startswith("0.1.0")
    metrics = extender.request("GET", "/metrics")[1]
    for line in (
        "cdigen_extender_nodes 2.0",
        "cdigen_extender_ready 1.0",
        'cdigen_extender_units{state="total"} 14.0',
        'cdigen_extender_units{state="used"} 3.0',
        'cdigen_extender_requests_total{status="200",verb="filter"} 1.0',
        'cdigen_extender_binds_total{result="bound"} 1.0',
        'cdigen_extender_binds_total{result="pod_gone"} 1.0',
        'cdigen_extender_binds_total{result="api_error"} 0.0',
        'cdigen_extender_watch_connected{list="unhealthy"} 1.0',
        'cdigen_extender_watch_idle_seconds{list="pods"}',
        "process_resident_memory_bytes",
    ):
        assert line in metrics


def test_the_status_conforms_to_its_schema(server: ApiServer, tmp_path: Path) -> None:
    def status() -> Any:
        return json.loads((tmp_path / "run/status.json").read_text())

    server.faults = lambda _, _path: 503
    with running(server, tmp_path):
        validator("extender-status").validate(status())
        assert status()["state"] == "waiting"
        server.faults = lambda _, _path: None
        assert until(lambda: status()["state"] == "ready")
        validator("extender-status").validate(status())
        assert (status()["nodes"], status()["units"], status()["reason"]) == (2, {"total": 14, "used": 0}, "")
    assert not (tmp_path / "run/status.json").exists()


def test_each_bind_is_logged(server: ApiServer, tmp_path: Path) -> None:
    with ready(server, tmp_path) as extender:
        add(server, "p", 3)
        assert extender.bind("p") == ""
        assert extender.bind("q") != ""
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    done, refused = (line for line in lines if line["event"] == "bind")
    fields = {"pod": "default/p", "uid": "uid-p", "node": "node1", "result": "bound", "gpus": {"1": 3}}
    assert fields.items() <= done.items()
    assert (refused["result"], refused["message"]) == ("pod_gone", "the pod is gone")


def test_a_bind_fails_if_the_api_server_exceeds_the_time_limit(server: ApiServer, extender: Extender) -> None:
    add(server, "p", 3)
    responds = threading.Event()

    def hang(method: str, _path: str) -> None:
        if method == "GET":
            responds.wait(2 * PATIENCE_S)

    server.faults = hang
    assert extender.bind("p") != ""
    server.faults = lambda _, _path: None
    assert extender.bind("p") == ""
    responds.set()


def test_the_result_of_a_bind_has_the_member_names_of_the_request(extender: Extender) -> None:
    args = {"podName": "q", "podNamespace": "default", "podUID": "u", "node": "node1"}
    assert extender.request("POST", f"{PREFIX}/bind", args) == (200, {"error": "the pod is gone"})


def test_nodes_and_gpus_have_separate_strategies(server: ApiServer, tmp_path: Path) -> None:
    options = ("--strategy", "spread", "--node-strategy", "binpack")
    with ready(server, tmp_path, *options) as extender:
        add(server, "p", 3)
        assert extender.bind("p") == ""
        assert server.cluster.used("node1") == {0: 3}
        args = {"Pod": pod_object("q", 1), "NodeNames": ["node1", "node2"]}
        scores = extender.request("POST", f"{PREFIX}/prioritize", args)[1]
        assert scores[0]["Score"] > scores[1]["Score"]


def test_the_extender_works_without_the_right_to_list_configmaps(server: ApiServer, tmp_path: Path) -> None:
    server.faults = lambda _, path: 403 if "configmaps?" in path else None
    with ready(server, tmp_path) as extender:
        assert extender.filter(pod_object("p", 3), "node1")["NodeNames"] == ["node1"]
        assert (
            'cdigen_extender_watch_connected{list="unhealthy"} 0.0' in extender.request("GET", "/metrics")[1]
        )


def test_the_extender_is_ready_only_after_a_list_of_unhealthy_gpus(server: ApiServer, tmp_path: Path) -> None:
    server.faults = lambda _, path: 500 if "configmaps?" in path else None
    with running(server, tmp_path) as extender:
        assert until(lambda: "unhealthy" in extender.request("GET", "/readyz")[1])
        server.faults = lambda _, _path: None
        assert until(lambda: extender.request("GET", "/readyz")[0] == 200)


def test_inspect_marks_cordoned_nodes(server: ApiServer, tmp_path: Path) -> None:
    cordoned = node_object("node3", (4,))
    cordoned["spec"] = {"unschedulable": True}
    server.change(lambda cluster: cluster.add_node(cordoned))
    with ready(server, tmp_path) as extender:
        rows = extender.request("GET", f"{PREFIX}/inspect")[1]["nodes"]
        assert {row["name"]: row["unschedulable"] for row in rows} == {
            "node1": False, "node2": False, "node3": True,
        }  # fmt: skip


def test_inspect_shows_a_node_without_gpus_only_if_it_is_requested(server: ApiServer, tmp_path: Path) -> None:
    server.change(lambda cluster: cluster.add_node(node_object("bare", ())))
    with ready(server, tmp_path) as extender:
        rows = extender.request("GET", f"{PREFIX}/inspect")[1]["nodes"]
        assert [row["name"] for row in rows] == ["node1", "node2"]
        (row,) = extender.request("GET", f"{PREFIX}/inspect/bare")[1]["nodes"]
        assert (row["name"], row["totalGPU"]) == ("bare", 0)


def test_the_extender_works_without_a_run_directory(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    service = run_once(server, tmp_path, "--run-dir", str(tmp_path / "file/run"))
    assert "status_unavailable" in service
    assert "stopped" in service


def test_a_client_certificate_and_the_token_are_both_required(server: ApiServer, tmp_path: Path) -> None:
    own, client = made(tmp_path, "own"), made(tmp_path, "client")
    (tmp_path / "secret").write_text("word\n")
    options = ["--tls-cert", own[0], "--tls-key", own[1], "--client-ca", client[0]]
    context = ssl.create_default_context(cafile=own[0])

    def status_of(extender: Extender, path: str, **headers: str) -> int:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", extender.port, timeout=PATIENCE_S, context=context
        )
        connection.request("GET", path, headers=headers)
        status = connection.getresponse().status
        connection.close()
        return status

    with started(server, tmp_path, *options, "--token-file", str(tmp_path / "secret")) as extender:
        assert until(lambda: status_of(extender, "/readyz") == 200)
        assert status_of(extender, f"{PREFIX}/inspect", Authorization="Bearer word") == 403
        context.load_cert_chain(*client)
        assert status_of(extender, f"{PREFIX}/inspect") == 401
        assert status_of(extender, f"{PREFIX}/inspect", Authorization="Bearer word") == 200


def test_the_process_completes_a_bind_in_progress_before_it_ends(server: ApiServer, tmp_path: Path) -> None:
    answers: list[str] = []
    with ready(server, tmp_path) as extender:
        add(server, "p", 3)
        server.faults = lambda _, path: pause(1) if path.endswith("/binding") else None
        binding = threading.Thread(target=lambda: answers.append(extender.bind("p")))
        binding.start()
        assert until(lambda: "/binding" in server.requests[-1])
        extender.process.terminate()
        binding.join()
    assert answers == [""]
    assert server.cluster.used("node1") == {1: 3}
