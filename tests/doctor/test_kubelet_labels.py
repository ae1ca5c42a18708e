"""What the doctor says of the node's labels: how their file stands, and who else sets them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from support.doctor.kubernetes_host import registered
from support.kubelet.nfd_worker import FOLDER

from cdigen.kubelet.labels.feature_file import content
from cdigen.kubelet.labels.keeper import LabelState

if TYPE_CHECKING:
    from support.doctor.kubernetes_host import KubeNode

LABELS = (("nvidia.com/gpu.count", "2"), ("nvidia.com/gpu.product", "T4"))
FILE = f"/{FOLDER}/cdigen"
GOOD = LabelState(file=FILE, state="written", labels=LABELS, expires_s=2.0**31)


def labelled(node: KubeNode, state: LabelState | None = GOOD) -> KubeNode:
    node.put("etc/cdigen/config.yaml", f"kubelet: {{labels: {FILE}}}\n")
    node.put(f"{FOLDER}/cdigen", content(LABELS, 2**31).decode())
    node.say(registered("GPU-a", "GPU-b"), labels=state)
    return node


def rows(node: KubeNode) -> dict[str, dict[str, Any]]:
    return {row["check"]: row for row in node.ask("--for kubelet") if "label" in row["check"]}


def test_where_no_labels_are_wanted_nothing_is_said(node: KubeNode) -> None:
    assert set(rows(node)) <= {"kubelet-labels"}


def test_labels_that_are_written_are_good(node: KubeNode) -> None:
    found = rows(labelled(node))
    assert found["kubelet-node-labels"]["ok"]
    assert found["kubelet-node-labels"]["detail"] == f"{FILE} has 2 labels for NFD"
    assert found["kubelet-label-files"]["ok"]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            LabelState(file=FILE, state="waiting", reason="NFD's folder is not there"),
            "NFD's folder is not there",
        ),
        (LabelState(file=FILE, state="failed", reason="no space", hint="make room"), "no space; make room"),
        (None, "it runs by an older configuration, or version"),
    ],
)
def test_labels_that_are_not_written_are_a_warning_with_the_reason(
    node: KubeNode, state: LabelState | None, text: str
) -> None:
    row = labelled(node, state).wrong()["kubelet-node-labels"]
    assert text in row["detail"]
    assert "kubernetes-questions.md, 22" in row["detail"]
    assert row["severity"] == "warning"


def test_another_programs_labels_of_the_same_names_are_told(node: KubeNode) -> None:
    labelled(node)
    node.put(f"{FOLDER}/gfd", "# by another\nnvidia.com/gpu.count=1\nnvidia.com/gfd.timestamp=1\n")
    node.put(f"{FOLDER}/mine", "example.com/rack=7\n")
    node.put(f"{FOLDER}/.gfd", "nvidia.com/gpu.product=A10\n")
    detail = node.wrong()["kubelet-label-files"]["detail"]
    assert "gfd (nvidia.com/gpu.count)" in detail
    assert "mine" not in detail
    assert ".gfd" not in detail


def test_a_file_whose_time_is_over_sets_no_labels(node: KubeNode) -> None:
    labelled(node)
    node.put(f"{FOLDER}/gpus", content(LABELS, 1).decode())
    assert rows(node)["kubelet-label-files"]["ok"]
    node.put(f"{FOLDER}/gpus", content(LABELS, 2**31).decode())
    assert "gpus (nvidia.com/gpu.count)" in node.wrong()["kubelet-label-files"]["detail"]


def test_what_is_no_file_keeps_nobody_waiting(node: KubeNode) -> None:
    labelled(node)
    os.mkfifo(node.root / FOLDER / "gfd")
    (node.root / FOLDER / "folder").mkdir()
    assert rows(node)["kubelet-label-files"]["ok"]


def test_among_many_files_each_is_looked_at(node: KubeNode) -> None:
    labelled(node)
    for number in range(150):
        node.put(f"{FOLDER}/a{number}", "example.com/rack=7\n")
    node.put(f"{FOLDER}/gfd", "nvidia.com/gpu.count=1\n")
    assert "gfd (nvidia.com/gpu.count)" in node.wrong()["kubelet-label-files"]["detail"]
