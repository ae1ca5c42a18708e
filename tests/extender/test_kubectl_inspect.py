"""`kubectl inspect gpushare` as a process, which asks an API server's double, and kubectl where it must."""

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
from support.kubernetes.shared_pods import COUNT, MEMORY, container, node_object, pod_object

from cdigen.cli.kubectl_gpushare import KUBECTL_PAGE as PAGE
from cdigen.gpushare.names import ALLOCATION, INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process
PROGRAM = "import cdigen.cli.main as main; main.run_kubectl_inspect_gpushare()"
Done = subprocess.CompletedProcess[str]


class Asking:
    """The program of a user whose home is FOLDER."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        (folder / ".kube").mkdir()
        self.config = server.kubeconfig(folder / ".kube/config")

    def __call__(self, *arguments: str, **environment: str) -> Done:
        given = {"HOME": str(self.folder), "PATH": f"{self.folder}:{os.environ['PATH']}"}
        command = [sys.executable, "-c", PROGRAM, *arguments]
        return subprocess.run(
            command, check=False, env=given | environment, capture_output=True, text=True, timeout=60
        )

    def add(self, *found: dict[str, Any]) -> None:
        for each in found:
            self.server.cluster.add(each)

    def put_kubectl(self) -> None:
        """Put a kubectl into PATH that asks the server, and notes how it was called."""
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
def ask(tmp_path: Path) -> Iterator[Asking]:
    with ApiServer(Cluster()) as server:
        yield Asking(server, tmp_path)


def on(node: str, name: str, *units: int, gpu: str = "0", **more: Any) -> dict[str, Any]:
    return pod_object(name, *units, node=node, annotations={INDEX: gpu}, phase="Running", **more)


def cordoned(found: dict[str, Any]) -> dict[str, Any]:
    found["spec"]["unschedulable"] = True
    return found


def test_the_summary_is_that_of_gpushares_user_guide(ask: Asking) -> None:
    ask.add(
        node_object("node1", [15], with_annotation=False), node_object("node2", [15], with_annotation=False)
    )
    ask.add(*(on("node1", f"binpack-{number}", 3) for number in range(2)), on("node2", "binpack-2", 3))
    assert ask().stdout == (
        "NAME   IPADDRESS  GPU0(Allocated/Total)  GPU Memory(GiB)\n"
        "node1  10.0.0.1   6/15                   6/15\n"
        "node2  10.0.0.1   3/15                   3/15\n"
        "--------------------------------------------------------\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "9/30 (30%)\n"
    )


def test_sizes_are_each_gpus_own_and_pods_without_a_gpu_are_pending(ask: Asking) -> None:
    ask.add(node_object("node1", [24, 4]), node_object("node2", [8], with_annotation=False))
    ask.add(on("node1", "a", 20), pod_object("torn", 2, node="node1", annotations={INDEX: "7"}))
    two = json.dumps({"0": {"0": 1}, "1": {"1": 3}})
    ask.add(pod_object("two", 1, 3, node="node1", annotations={ALLOCATION: two}))
    ask.add(pod_object("unbound", 5), pod_object("other", None, node="node2"))
    assert ask().stdout.splitlines()[:3] == [
        "NAME   IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  PENDING(Allocated)  GPU Memory(GiB)",
        "node1  10.0.0.1   21/24                  3/4                    2                   26/28",
        "node2  10.0.0.1   0/8                    0/0                                        0/8",
    ]


def test_details_have_a_row_for_each_pod_and_what_it_has_of_each_gpu(ask: Asking) -> None:
    ask.add(node_object("node1", [24, 4]), node_object("plain", []))
    two = json.dumps({"0": {"0": 1}, "1": {"1": 3}})
    ask.add(pod_object("two", 1, 3, node="node1", annotations={ALLOCATION: two}), on("node1", "a", 12))
    assert ask("-d").stdout == (
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
    ask.add(pod_object("floats", 2, node="node1"))
    assert "floats       default    0                0                2\n" in ask("-d", "node1").stdout


def test_what_has_ended_does_not_count_and_what_is_being_deleted_does(ask: Asking) -> None:
    ask.add(node_object("node1", [8]))
    dying = on("node1", "dying", 1)
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ask.add(dying, *(pod_object(phase, 2, node="node1", phase=phase) for phase in ("Succeeded", "Failed")))
    assert ask().stdout.endswith("1/8 (12%)\n")


def test_an_init_container_counts_as_the_scheduler_counts_it(ask: Asking) -> None:
    ask.add(node_object("node1", [8]), on("node1", "early", 2, inits=[container(5, "init")]))
    assert ask().stdout.endswith("5/8 (62%)\n")


def test_a_gpu_of_more_than_100_units_has_mib(ask: Asking) -> None:
    ask.add(node_object("node1", [16276]))
    assert "GPU Memory(MiB)" in ask().stdout


def test_a_cordoned_node_is_shown_and_not_in_the_total(ask: Asking) -> None:
    ask.add(node_object("node1", [8]), cordoned(node_object("node2", [16])), on("node2", "left", 3))
    text = ask().stdout
    assert "node2  10.0.0.1   3/16" in text
    assert text.endswith("In Cluster:\n0/8 (0%)\nCordoned, not in the total: node2 3/16\n")
    assert ask("-d").stdout.endswith("In Cluster:  0/8 (0%)\nCordoned, not in the total: node2 3/16\n")


def test_one_node_is_asked_for_by_its_name_and_one_that_is_not_there_is_said_to_be(ask: Asking) -> None:
    ask.add(node_object("node1"), node_object("node2"))
    assert [row.split()[0] for row in ask("node2").stdout.splitlines()[1:2]] == ["node2"]
    assert not any(path.startswith("GET /api/v1/nodes?") for path in ask.server.asked)
    unknown = ask("node3")
    assert (unknown.returncode, unknown.stdout, unknown.stderr) == (1, "", "cdigen: no, 404\n")


def test_other_resources_are_read_where_they_are_named(ask: Asking) -> None:
    node = node_object("node1", [8], with_annotation=False)
    node["status"]["capacity"] = {"example.com/mem": "8", "example.com/gpus": "2"}
    ask.add(node)
    options = ("--resource", "example.com/mem", "--count-resource", "example.com/gpus")
    assert "0/4                    0/4                    0/8" in ask(*options).stdout
    assert ask().stdout.endswith("0/0 (0%)\n")
    assert {MEMORY, COUNT} == {"aliyun.com/gpu-mem", "aliyun.com/gpu-count"}


def test_lists_are_read_to_their_end(ask: Asking) -> None:
    ask.add(node_object("node1", [1000]), *(on("node1", f"p{number}", 1) for number in range(PAGE + 20)))
    assert f"{PAGE + 20}/1000 (" in ask().stdout


def test_names_that_a_terminal_would_obey_are_escaped(ask: Asking) -> None:
    ask.add(node_object("node1", [8]), on("node1", "a\x1b[2J", 1))
    assert "\x1b" not in ask("-d").stdout


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refusal_is_one_line_with_the_rights_that_are_needed(ask: Asking, status: int) -> None:
    ask.server.faults = lambda _method, path: status if "pods" in path else None
    done = ask()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"cdigen: a fault, {status}")
    assert ("list pods of all namespaces" in done.stderr) == (status != 500)


def test_a_server_that_is_away_is_one_line(ask: Asking) -> None:
    ask.server.__exit__()
    done = ask()
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(r"cdigen: no answer from 127\.0\.0\.1:\d+: \[Errno 111\]", done.stderr)


def test_without_a_kubeconfig_it_says_what_to_do(ask: Asking, tmp_path: Path) -> None:
    done = ask(KUBECONFIG=str(tmp_path / "none"))
    assert done.returncode == 2
    assert "is no kubeconfig that can be used" in done.stderr
    assert done.stderr.endswith("; name a file that kubectl works with in KUBECONFIG\n")


def test_a_user_whom_a_program_vouches_for_is_asked_for_through_kubectl(ask: Asking) -> None:
    ask.add(node_object("node1", [8]), on("node1", "a", 3))
    document = json.loads(ask.config.read_text())
    document["users"] = [{"name": "u", "user": {"exec": {"command": "vouch"}}}]
    ask.config.write_text(json.dumps(document))
    alone = ask(PATH="/nowhere/bin")
    assert (alone.returncode, "'exec' is not supported" in alone.stderr) == (2, True)
    ask.put_kubectl()
    assert ask().stdout.endswith("3/8 (37%)\n")
    called = (ask.folder / "called").read_text().splitlines()
    assert f" --kubeconfig={ask.config} get --raw /api/v1/nodes?limit=500" in called


def test_several_kubeconfigs_are_put_together_by_kubectl(ask: Asking) -> None:
    ask.add(node_object("node1", [8]))
    both = f"{ask.config}:/tmp/other"
    alone = ask(KUBECONFIG=both, PATH="/nowhere/bin")
    assert (alone.returncode, "names several files" in alone.stderr) == (2, True)
    ask.put_kubectl()
    assert ask(KUBECONFIG=both).stdout.endswith("0/8 (0%)\n")
    assert (ask.folder / "called").read_text().startswith(f"{both} get --raw ")


def test_what_kubectl_says_is_passed_on(ask: Asking) -> None:
    ask.put_kubectl()
    (ask.folder / "kubectl").write_text("#!/bin/sh\necho Forbidden: no >&2; exit 1\n")
    done = ask(KUBECONFIG="a:b")
    assert (done.returncode, done.stderr) == (1, "cdigen: kubectl: Forbidden: no\n")
