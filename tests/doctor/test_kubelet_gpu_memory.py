"""The doctor's results for GPUs that are shared by memory: kubeconfig, API server, rights, annotation."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from support.doctor.kubernetes_host import registered
from support.kubernetes.api_server import ApiServer
from support.kubernetes.cluster_model import Cluster
from support.kubernetes.gpu_memory_pods import node_object

from cdigen.config import SharedMemory
from cdigen.doctor.kubernetes.gpu_memory import RIGHTS, probe
from cdigen.gpushare.names import GPUS
from cdigen.kubeapi.calls import Reply
from cdigen.kubeapi.credentials import from_kubeconfig
from cdigen.kubelet.gpu_memory.node_writer import GpuMemoryState

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


def test_without_the_key_shared_memory_there_is_no_result(node: KubeNode) -> None:
    assert not [row for row in node.results("--for kubelet") if row["check"].startswith("kubelet-gpu-memory")]


def test_without_a_kubeconfig_the_resource_is_not_advertised(node: KubeNode) -> None:
    row = shared(node).wrong()["kubelet-gpu-memory"]
    text = "aliyun.com/gpu-mem is not advertised: cdigen kubelet has no --kubeconfig"
    assert text in row["detail"]


@pytest.mark.parametrize("content", [None, "torn: [", "{}"])
def test_an_unusable_kubeconfig_is_reported(node: KubeNode, content: str | None) -> None:
    if content is not None:
        node.put("etc/cdigen/kubeconfig", content)
    row = shared(node, "--kubeconfig /etc/cdigen/kubeconfig").wrong()["kubelet-gpu-memory"]
    assert "/etc/cdigen/kubeconfig is not a usable kubeconfig" in row["detail"]


def kubeconfig(node: KubeNode, **user: str) -> None:
    """Write a kubeconfig with a token file and the keys USER, and set the kubeconfig in the plugin's unit."""
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"tokenFile": "kubelet.token", **user}}],
    }
    for name, content in (("kubelet.conf", json.dumps(document)), ("kubelet.token", "secret")):
        node.put(f"etc/cdigen/{name}", content).chmod(0o600)
    shared(node, "--kubeconfig /etc/cdigen/kubelet.conf")


def test_credentials_that_only_root_may_read_pass(node: KubeNode) -> None:
    kubeconfig(node)
    detail = node.result("kubelet-gpu-memory-secret", "--for kubelet")["detail"]
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
def test_the_remedy_protects_credentials_that_other_users_may_read_or_change(
    node: KubeNode, name: str, mode: int, problem: str
) -> None:
    kubeconfig(node)
    (node.root / "etc/cdigen" / name).chmod(mode)
    row = node.wrong()["kubelet-gpu-memory-secret"]
    assert row["severity"] == "warning"
    assert f"/etc/cdigen/{name} has the credentials of cdigen kubelet, and " in row["detail"]
    assert problem in row["detail"]
    node.shell(row["remedy"])
    assert "kubelet-gpu-memory-secret" not in node.wrong()


def test_a_group_that_may_read_credentials_is_reported(node: KubeNode, other_users: None) -> None:
    del other_users
    kubeconfig(node)
    file = node.root / "etc/cdigen/kubelet.token"
    os.chown(file, 0, 4201)
    file.chmod(0o640)
    row = node.wrong()["kubelet-gpu-memory-secret"]
    assert "the group 4201 may read it" in row["detail"]
    node.shell(row["remedy"])
    assert "kubelet-gpu-memory-secret" not in node.wrong()


def test_credentials_in_a_folder_that_only_root_may_enter_pass(node: KubeNode) -> None:
    kubeconfig(node)
    (node.root / "etc/cdigen/kubelet.conf").chmod(0o644)
    (node.root / "etc/cdigen").chmod(0o700)
    assert node.result("kubelet-gpu-memory-secret", "--for kubelet")["ok"]


def test_problems_in_the_plugins_status_are_reported(node: KubeNode) -> None:
    state = GpuMemoryState(
        node="n1", problem="the API server: forbidden", node_problem="it refused a request"
    )
    shared(node).write_status(registered("GPU-a", "GPU-b"), shared_memory=state)
    details = [row["detail"] for row in node.results("--for kubelet") if row["check"] == "kubelet-gpu-memory"]
    assert [text.partition(" (https")[0] for text in details] == [
        "cdigen kubelet reports: the API server: forbidden",
        "cdigen kubelet reports: it refused a request",
    ]


class RestrictedCluster(Cluster):
    """A cluster whose API server denies the rights FORBIDDEN."""

    def __init__(self, forbidden: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__()
        self.forbidden = forbidden
        self.add_node(node_object("node1", (4, 6)))

    def answer(self, call: Call) -> Reply:
        if not call.path.endswith("selfsubjectaccessreviews"):
            return super().answer(call)
        body: Any = call.body
        fields = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (fields["resource"], fields.get("subresource"))))
        is_namespaced = fields.get("namespace") == ("cdigen" if resource == "configmaps" else None)
        allowed = is_namespaced and (fields["verb"], resource) not in self.forbidden
        return Reply(status=201, body={"status": {"allowed": allowed}})


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(RestrictedCluster()) as found:
        yield found


def probed(server: ApiServer, folder: Path, node: str = "node1") -> tuple[str, object]:
    return probe(from_kubeconfig(str(server.kubeconfig(folder / "k"))), node, SETTINGS)


def test_probe_returns_the_annotation_of_the_node(server: ApiServer, tmp_path: Path) -> None:
    problem, annotation = probed(server, tmp_path)
    assert problem == ""
    assert [gpu["units"] for gpu in json.loads(str(annotation))["gpus"]] == [4, 6]
    assert GPUS == "cdigen.dev/gpu-mem"


@pytest.mark.parametrize("right", RIGHTS)
def test_each_missing_right_is_reported(server: ApiServer, tmp_path: Path, right: tuple[str, str]) -> None:
    server.cluster = RestrictedCluster((right,))
    text = f"denies rights that cdigen kubelet needs: {right[0]} {right[1]}"
    assert probed(server, tmp_path)[0].endswith(text)


def test_a_wrong_node_name_is_reported(server: ApiServer, tmp_path: Path) -> None:
    assert (
        "has no node other: set its name with --node-name of cdigen kubelet"
        in probed(server, tmp_path, "other")[0]
    )


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (401, "rejects the credentials"),
        (403, "denies rights that cdigen kubelet needs: get nodes"),
        (500, "cannot be used"),
    ],
)
def test_an_error_of_the_server_is_reported(
    server: ApiServer, tmp_path: Path, status: int, text: str
) -> None:
    server.faults = lambda _, path: status if "nodes" in path else None
    assert text in probed(server, tmp_path)[0]


def test_an_unreachable_server_is_reported(tmp_path: Path) -> None:
    with ApiServer(RestrictedCluster()) as gone:
        file = gone.kubeconfig(tmp_path / "k")
    assert "cannot be used: " in probe(from_kubeconfig(str(file)), "node1", SETTINGS)[0]
