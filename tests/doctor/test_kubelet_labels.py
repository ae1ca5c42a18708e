"""The doctor's results for the node's labels: cdigen's label file, and other files with the same labels."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from support.doctor.kubernetes_host import registered
from support.kubelet.nfd_worker import FOLDER

from cdigen import page_url
from cdigen.kubelet.labels.label_file import LabelState, content

if TYPE_CHECKING:
    from support.doctor.kubernetes_host import KubeNode

LABELS = (("nvidia.com/gpu.count", "2"), ("nvidia.com/gpu.product", "T4"))
FILE = f"/{FOLDER}/cdigen"
GOOD = LabelState(file=FILE, state="written", labels=LABELS, expires_s=2.0**31)


def labelled(node: KubeNode, state: LabelState | None = GOOD) -> KubeNode:
    node.put("etc/cdigen/config.yaml", f"kubelet: {{labels: {FILE}}}\n")
    node.put(f"{FOLDER}/cdigen", content(LABELS, 2**31).decode())
    node.write_status(registered("GPU-a", "GPU-b"), labels=state)
    return node


def rows(node: KubeNode) -> dict[str, dict[str, Any]]:
    return {row["check"]: row for row in node.results("--for kubelet") if "label" in row["check"]}


def test_without_configured_labels_there_is_no_result(node: KubeNode) -> None:
    assert set(rows(node)) <= {"kubelet-labels"}


def test_written_labels_pass(node: KubeNode) -> None:
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
        (None, "its configuration or version differs from this command's"),
    ],
)
def test_labels_that_are_not_written_are_a_warning_with_the_reason(
    node: KubeNode, state: LabelState | None, text: str
) -> None:
    row = labelled(node, state).wrong()["kubelet-node-labels"]
    assert text in row["detail"]
    assert page_url("how-to/kubernetes/troubleshoot") in row["detail"]
    assert row["severity"] == "warning"


def test_labels_of_another_program_with_the_same_names_are_reported(node: KubeNode) -> None:
    labelled(node)
    node.put(f"{FOLDER}/gfd", "# by another\nnvidia.com/gpu.count=1\nnvidia.com/gfd.timestamp=1\n")
    node.put(f"{FOLDER}/mine", "example.com/rack=7\n")
    node.put(f"{FOLDER}/.gfd", "nvidia.com/gpu.product=A10\n")
    detail = node.wrong()["kubelet-label-files"]["detail"]
    assert "gfd (nvidia.com/gpu.count)" in detail
    assert "mine" not in detail
    assert ".gfd" not in detail


def test_an_expired_file_of_another_program_is_no_conflict(node: KubeNode) -> None:
    labelled(node)
    node.put(f"{FOLDER}/gpus", content(LABELS, 1).decode())
    assert rows(node)["kubelet-label-files"]["ok"]
    node.put(f"{FOLDER}/gpus", content(LABELS, 2**31).decode())
    assert "gpus (nvidia.com/gpu.count)" in node.wrong()["kubelet-label-files"]["detail"]


def test_an_entry_that_is_not_a_file_does_not_block(node: KubeNode) -> None:
    labelled(node)
    os.mkfifo(node.root / FOLDER / "gfd")
    (node.root / FOLDER / "folder").mkdir()
    assert rows(node)["kubelet-label-files"]["ok"]


def test_a_conflict_is_found_after_150_other_files(node: KubeNode) -> None:
    labelled(node)
    for number in range(150):
        node.put(f"{FOLDER}/a{number}", "example.com/rack=7\n")
    node.put(f"{FOLDER}/gfd", "nvidia.com/gpu.count=1\n")
    assert "gfd (nvidia.com/gpu.count)" in node.wrong()["kubelet-label-files"]["detail"]
