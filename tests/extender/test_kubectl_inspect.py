"""`kubectl inspect gpushare` as a process, with a fake API server, and with kubectl if necessary."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.kubernetes.api_server import ApiServer
from support.kubernetes.cluster_model import Cluster
from support.kubernetes.gpu_memory_pods import COUNT, MEMORY, container, node_object, pod_object

from cdigen.cli.services.kubectl_gpushare import KUBECTL_PAGE as PAGE
from cdigen.gpushare.names import ALLOCATION, INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process
PROGRAM = "import cdigen.cli.main as main; main.run_kubectl_inspect_gpushare()"
Done = subprocess.CompletedProcess[str]


class Inspect:
    """The program, run by a user with the home directory FOLDER."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        (folder / ".kube").mkdir()
        self.config = server.kubeconfig(folder / ".kube/config")

    def __call__(self, *arguments: str, **environment: str) -> Done:
        defaults = {"HOME": str(self.folder), "PATH": f"{self.folder}:{os.environ['PATH']}"}
        command = [sys.executable, "-c", PROGRAM, *arguments]
        return subprocess.run(
            command, check=False, env=defaults | environment, capture_output=True, text=True, timeout=60
        )

    def add(self, *found: dict[str, Any]) -> None:
        for each in found:
            self.server.cluster.add(each)

    def put_kubectl(self) -> None:
        """Put a kubectl into PATH that reads from the server and records its calls."""
        kubectl = self.folder / "kubectl"
        port = self.server.server_address[1]
        kubectl.write_text(
            f"""#!{sys.executable}
import os, sys, urllib.request
with open({str(self.folder / "called")!r}, "a") as file:
    file.write(" ".join([os.environ.get("KUBECONFIG", ""), *sys.argv[1:]]) + "\\n")
headers = {{"Authorization": "Bearer secret"}}
request = urllib.request.Request("http://127.0.0.1:{port}" + sys.argv[-1], headers=headers)
sys.stdout.buffer.write(urllib.request.urlopen(request).read())
"""
        )
        kubectl.chmod(0o755)


@pytest.fixture
def inspect(tmp_path: Path) -> Iterator[Inspect]:
    with ApiServer(Cluster()) as server:
        yield Inspect(server, tmp_path)


def on(node: str, name: str, *units: int, gpu: str = "0", **more: Any) -> dict[str, Any]:
    return pod_object(name, *units, node=node, annotations={INDEX: gpu}, phase="Running", **more)


def cordoned(found: dict[str, Any]) -> dict[str, Any]:
    found["spec"]["unschedulable"] = True
    return found


def test_the_summary_matches_gpushares_user_guide(inspect: Inspect) -> None:
    inspect.add(
        node_object("node1", [15], with_annotation=False), node_object("node2", [15], with_annotation=False)
    )
    inspect.add(*(on("node1", f"binpack-{number}", 3) for number in range(2)), on("node2", "binpack-2", 3))
    assert inspect().stdout == (
        "NAME   IPADDRESS  GPU0(Allocated/Total)  GPU Memory(GiB)\n"
        "node1  10.0.0.1   6/15                   6/15\n"
        "node2  10.0.0.1   3/15                   3/15\n"
        "--------------------------------------------------------\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "9/30 (30%)\n"
    )


def test_each_gpu_has_its_own_size_and_pods_without_a_gpu_are_pending(inspect: Inspect) -> None:
    inspect.add(node_object("node1", [24, 4]), node_object("node2", [8], with_annotation=False))
    inspect.add(on("node1", "a", 20), pod_object("invalid", 2, node="node1", annotations={INDEX: "7"}))
    two = json.dumps({"0": {"0": 1}, "1": {"1": 3}})
    inspect.add(pod_object("two", 1, 3, node="node1", annotations={ALLOCATION: two}))
    inspect.add(pod_object("unbound", 5), pod_object("other", None, node="node2"))
    assert inspect().stdout.splitlines()[:3] == [
        "NAME   IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  PENDING(Allocated)  GPU Memory(GiB)",
        "node1  10.0.0.1   21/24                  3/4                    2                   26/28",
        "node2  10.0.0.1   0/8                    0/0                                        0/8",
    ]


def test_details_have_a_row_for_each_pod_with_its_units_by_gpu(inspect: Inspect) -> None:
    inspect.add(node_object("node1", [24, 4]), node_object("plain", []))
    two = json.dumps({"0": {"0": 1}, "1": {"1": 3}})
    inspect.add(pod_object("two", 1, 3, node="node1", annotations={ALLOCATION: two}), on("node1", "a", 12))
    assert inspect("-d").stdout == (
        "\n"
        "NAME:       node1\n"
        "IPADDRESS:  10.0.0.1\n"
        "\n"
        "NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)\n"
        "a            default    12               0\n"
        "two          default    1                3\n"
        "Allocated :  16 (57%)\n"
        "Total :      28\n"
        "--------------------------------------------------------\n"
        "\n"
        "\n"
        "Allocated/Total GPU Memory In Cluster:  16/28 (57%)\n"
    )
    inspect.add(pod_object("lost", 2, node="node1"))
    assert "lost         default    0                0                2\n" in inspect("-d", "node1").stdout


def test_ended_pods_reserve_nothing_and_terminating_pods_keep_their_units(inspect: Inspect) -> None:
    inspect.add(node_object("node1", [8]))
    dying = on("node1", "dying", 1)
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    inspect.add(
        dying, *(pod_object(phase, 2, node="node1", phase=phase) for phase in ("Succeeded", "Failed"))
    )
    assert inspect().stdout.endswith("1/8 (12%)\n")


def test_the_units_of_init_containers_are_added_by_the_rule_of_the_scheduler(inspect: Inspect) -> None:
    inspect.add(node_object("node1", [8]), on("node1", "early", 2, inits=[container(5, "init")]))
    assert inspect().stdout.endswith("5/8 (62%)\n")


def test_a_gpu_with_more_than_100_units_is_shown_in_mib(inspect: Inspect) -> None:
    inspect.add(node_object("node1", [16276]))
    assert "GPU Memory(MiB)" in inspect().stdout


def test_a_cordoned_node_is_shown_but_is_not_in_the_total(inspect: Inspect) -> None:
    inspect.add(node_object("node1", [8]), cordoned(node_object("node2", [16])), on("node2", "left", 3))
    text = inspect().stdout
    assert "node2  10.0.0.1   3/16" in text
    assert text.endswith("In Cluster:\n0/8 (0%)\nCordoned, not in the total: node2 3/16\n")
    assert inspect("-d").stdout.endswith("In Cluster:  0/8 (0%)\nCordoned, not in the total: node2 3/16\n")


def test_one_node_is_read_by_its_name_and_a_missing_node_is_an_error(inspect: Inspect) -> None:
    inspect.add(node_object("node1"), node_object("node2"))
    assert [row.split()[0] for row in inspect("node2").stdout.splitlines()[1:2]] == ["node2"]
    assert not any(path.startswith("GET /api/v1/nodes?") for path in inspect.server.requests)
    unknown = inspect("node3")
    assert (unknown.returncode, unknown.stdout, unknown.stderr) == (1, "", "cdigen: no, 404\n")


def test_options_name_other_resources(inspect: Inspect) -> None:
    node = node_object("node1", [8], with_annotation=False)
    node["status"]["capacity"] = {"example.com/mem": "8", "example.com/gpus": "2"}
    inspect.add(node)
    options = ("--resource", "example.com/mem", "--count-resource", "example.com/gpus")
    assert "0/4                    0/4                    0/8" in inspect(*options).stdout
    assert inspect().stdout.endswith("0/0 (0%)\n")
    assert {MEMORY, COUNT} == {"aliyun.com/gpu-mem", "aliyun.com/gpu-count"}


def test_all_pages_of_a_list_are_read(inspect: Inspect) -> None:
    inspect.add(node_object("node1", [1000]), *(on("node1", f"p{number}", 1) for number in range(PAGE + 20)))
    assert f"{PAGE + 20}/1000 (" in inspect().stdout


def test_control_characters_in_names_are_escaped(inspect: Inspect) -> None:
    inspect.add(node_object("node1", [8]), on("node1", "a\x1b[2J", 1))
    assert "\x1b" not in inspect("-d").stdout


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refusal_of_the_api_server_is_reported_in_one_line(inspect: Inspect, status: int) -> None:
    inspect.server.faults = lambda _method, path: status if "pods" in path else None
    done = inspect()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"cdigen: a fault, {status}")
    assert ("list for pods in all namespaces" in done.stderr) == (status != 500)


def test_an_unreachable_server_is_reported_in_one_line(inspect: Inspect) -> None:
    inspect.server.__exit__()
    done = inspect()
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(r"cdigen: no valid response from 127\.0\.0\.1:\d+: \[Errno 111\]", done.stderr)


def test_without_a_kubeconfig_the_hint_names_the_variable(inspect: Inspect, tmp_path: Path) -> None:
    done = inspect(KUBECONFIG=str(tmp_path / "none"))
    assert done.returncode == 2
    assert "is not a usable kubeconfig" in done.stderr
    assert done.stderr.endswith("; set KUBECONFIG to a file that kubectl works with\n")


def test_with_a_credential_plugin_the_api_server_is_read_through_kubectl(inspect: Inspect) -> None:
    inspect.add(node_object("node1", [8]), on("node1", "a", 3))
    document = json.loads(inspect.config.read_text())
    document["users"] = [{"name": "u", "user": {"exec": {"command": "login"}}}]
    inspect.config.write_text(json.dumps(document))
    alone = inspect(PATH="/nowhere/bin")
    assert (alone.returncode, "'exec' is not supported" in alone.stderr) == (2, True)
    inspect.put_kubectl()
    assert inspect().stdout.endswith("3/8 (37%)\n")
    called = (inspect.folder / "called").read_text().splitlines()
    assert f" --kubeconfig={inspect.config} get --raw /api/v1/nodes?limit=500" in called


def test_kubectl_merges_several_kubeconfigs(inspect: Inspect) -> None:
    inspect.add(node_object("node1", [8]))
    both = f"{inspect.config}:/tmp/other"
    alone = inspect(KUBECONFIG=both, PATH="/nowhere/bin")
    assert (alone.returncode, "names several files" in alone.stderr) == (2, True)
    inspect.put_kubectl()
    assert inspect(KUBECONFIG=both).stdout.endswith("0/8 (0%)\n")
    assert (inspect.folder / "called").read_text().startswith(f"{both} get --raw ")


def test_the_error_of_kubectl_is_reported(inspect: Inspect) -> None:
    inspect.put_kubectl()
    (inspect.folder / "kubectl").write_text("#!/bin/sh\necho Forbidden: no >&2; exit 1\n")
    done = inspect(KUBECONFIG="a:b")
    assert (done.returncode, done.stderr) == (1, "cdigen: kubectl: Forbidden: no\n")
