"""What the doctor says where GPUs are shared by memory: kubeconfig, API server, rights, annotation."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from support.doctor.kubernetes_host import registered
from support.kubernetes.api_server import ApiServer
from support.kubernetes.cluster_model import Cluster
from support.kubernetes.shared_pods import node_object

from cdigen.config import SharedMemory
from cdigen.doctor.kubelet_shares import RIGHTS, probe
from cdigen.gpushare.names import GPUS
from cdigen.kubeapi.calls import Reply
from cdigen.kubeapi.credentials import from_kubeconfig
from cdigen.kubelet.shares.state import SharesState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.doctor.kubernetes_host import KubeNode

    from cdigen.kubeapi.calls import Call

SETTINGS = SharedMemory(unit="GiB")
CONFIG = "etc/cdigen/config.yaml"
UNIT = "usr/lib/systemd/system/cdigen-kubelet.service"


def shared(node: KubeNode, options: str = "") -> KubeNode:
    node.put(CONFIG, "kubelet:\n  shared_memory: {unit: GiB}\n")
    node.put(UNIT, f"[Service]\nExecStart=/usr/bin/cdigen kubelet {options}\n")
    return node


def test_where_nothing_is_shared_nothing_is_said(node: KubeNode) -> None:
    assert not [row for row in node.ask("--for kubelet") if row["check"].startswith("kubelet-shares")]


def test_without_a_kubeconfig_nothing_is_offered(node: KubeNode) -> None:
    row = shared(node).wrong()["kubelet-shares"]
    assert "aliyun.com/gpu-mem is to be offered, and cdigen kubelet has no --kubeconfig" in row["detail"]


@pytest.mark.parametrize("content", [None, "torn: [", "{}"])
def test_a_kubeconfig_that_cannot_be_used_is_named(node: KubeNode, content: str | None) -> None:
    if content is not None:
        node.put("etc/cdigen/kubeconfig", content)
    row = shared(node, "--kubeconfig /etc/cdigen/kubeconfig").wrong()["kubelet-shares"]
    assert "/etc/cdigen/kubeconfig is no kubeconfig that can be used" in row["detail"]


def kubeconfig(node: KubeNode, **user: str) -> None:
    """Write a kubeconfig whose USER has a token file, and let the plugin's unit name it."""
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"tokenFile": "kubelet.token", **user}}],
    }
    for name, content in (("kubelet.conf", json.dumps(document)), ("kubelet.token", "secret")):
        node.put(f"etc/cdigen/{name}", content).chmod(0o600)
    shared(node, "--kubeconfig /etc/cdigen/kubelet.conf")


def test_credentials_that_root_alone_may_read_are_good(node: KubeNode) -> None:
    kubeconfig(node)
    detail = node.result("kubelet-shares-secret", "--for kubelet")["detail"]
    assert detail == "only root may read and change the credentials of cdigen kubelet"


@pytest.mark.parametrize("name", ["kubelet.conf", "kubelet.token"])
@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        (0o604, "every user may read it"),
        (0o602, "is writable by everyone"),
        (0o606, "is writable by everyone"),
    ],
)
def test_credentials_that_others_may_read_or_change_are_closed_by_the_remedy(
    node: KubeNode, name: str, mode: int, problem: str
) -> None:
    kubeconfig(node)
    (node.root / "etc/cdigen" / name).chmod(mode)
    row = node.wrong()["kubelet-shares-secret"]
    assert row["severity"] == "warning"
    assert f"/etc/cdigen/{name} has the credentials of cdigen kubelet, and " in row["detail"]
    assert problem in row["detail"]
    node.shell(row["remedy"])
    assert "kubelet-shares-secret" not in node.wrong()


def test_a_group_that_may_read_credentials_is_named(node: KubeNode, other_users: None) -> None:
    del other_users
    kubeconfig(node)
    file = node.root / "etc/cdigen/kubelet.token"
    os.chown(file, 0, 4201)
    file.chmod(0o640)
    row = node.wrong()["kubelet-shares-secret"]
    assert "the group 4201 may read it" in row["detail"]
    node.shell(row["remedy"])
    assert "kubelet-shares-secret" not in node.wrong()


def test_in_a_folder_that_others_cannot_enter_credentials_are_safe(node: KubeNode) -> None:
    kubeconfig(node)
    (node.root / "etc/cdigen/kubelet.conf").chmod(0o644)
    (node.root / "etc/cdigen").chmod(0o700)
    assert node.result("kubelet-shares-secret", "--for kubelet")["ok"]


def test_what_the_plugin_says_of_itself_is_said(node: KubeNode) -> None:
    state = SharesState(
        node="n1", problem="the API server: forbidden", node_problem="it does not let us write"
    )
    shared(node).say(registered("GPU-a", "GPU-b"), shares=state)
    details = [row["detail"] for row in node.ask("--for kubelet") if row["check"] == "kubelet-shares"]
    assert [text.partition(" (docs")[0] for text in details] == [
        "cdigen kubelet says: the API server: forbidden",
        "cdigen kubelet says: it does not let us write",
    ]


class Asked(Cluster):
    """A cluster whose API server forbids RIGHTS."""

    def __init__(self, forbidden: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__()
        self.forbidden = forbidden
        self.add_node(node_object("node1", (4, 6)))

    def answer(self, call: Call) -> Reply:
        if not call.path.endswith("selfsubjectaccessreviews"):
            return super().answer(call)
        body: Any = call.body
        given = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (given["resource"], given.get("subresource"))))
        is_namespaced = given.get("namespace") == ("cdigen" if resource == "configmaps" else None)
        allowed = is_namespaced and (given["verb"], resource) not in self.forbidden
        return Reply(status=201, body={"status": {"allowed": allowed}})


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(Asked()) as found:
        yield found


def probed(server: ApiServer, folder: Path, node: str = "node1") -> tuple[str, object]:
    return probe(from_kubeconfig(str(server.kubeconfig(folder / "k"))), node, SETTINGS)


def test_a_server_that_lets_us_shows_the_nodes_annotation(server: ApiServer, tmp_path: Path) -> None:
    problem, offered = probed(server, tmp_path)
    assert problem == ""
    assert [gpu["units"] for gpu in json.loads(str(offered))["gpus"]] == [4, 6]
    assert GPUS == "cdigen.dev/gpu-mem"


@pytest.mark.parametrize("right", RIGHTS)
def test_each_right_that_is_missing_is_named(
    server: ApiServer, tmp_path: Path, right: tuple[str, str]
) -> None:
    server.cluster = Asked((right,))
    assert f"forbids what cdigen kubelet needs: {right[0]} {right[1]} (" in probed(server, tmp_path)[0]


def test_a_node_of_another_name_is_said(server: ApiServer, tmp_path: Path) -> None:
    assert (
        "knows no node other: give cdigen kubelet its name by --node-name"
        in probed(server, tmp_path, "other")[0]
    )


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "does not know who"),
        (403, "forbids what cdigen kubelet needs: get nodes"),
        (500, "cannot be used"),
    ],
)
def test_what_the_server_answers_is_said(server: ApiServer, tmp_path: Path, status: int, told: str) -> None:
    server.faults = lambda _, path: status if "nodes" in path else None
    assert told in probed(server, tmp_path)[0]


def test_a_server_that_is_away_is_said(tmp_path: Path) -> None:
    with ApiServer(Asked()) as gone:
        file = gone.kubeconfig(tmp_path / "k")
    assert "cannot be used: " in probe(from_kubeconfig(str(file)), "node1", SETTINGS)[0]
