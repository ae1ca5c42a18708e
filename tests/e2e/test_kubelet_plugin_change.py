"""Pods of a real kubelet (1.20.2) keep their GPUs after a change of the device plugin, in both directions.

docs/how-to/kubernetes/replace-device-plugins.md describes the change.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.cluster.device_plugin import KIND, running_device_plugin
from support.cluster.gpu_node import GPU, GPUS, GpuNode, running_gpu_node
from support.containers.containerd_host import RELEASES, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.cluster.pods import Pod

pytestmark = pytest.mark.e2e

# Two replicas of each GPU, with the names that NVIDIA's plugin uses in its spec.
IDS = [f"{gpu.uuid}::{number}" for gpu in GPUS for number in range(2)]
FILE = """
version: v1
flags: {failOnInitError: true}
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}
"""


@pytest.fixture(scope="module")
def gpu_node(cache: Path, kubernetes_tree: Path, upgrade_tree: Path) -> Iterator[GpuNode]:
    assert kubernetes_tree.is_dir()
    with running_gpu_node(cache, upgrade_tree, RELEASES["forky"]) as gpu_node:
        gpu_node.plugin.stop()
        gpu_node.has(0)
        spec = json.loads((gpu_node.root / "run/cdi/nvidia.com-gpu.json").read_text())
        replicas = [
            {**device, "name": f"{device['name']}::{number}"}
            for device in spec["devices"]
            if device["name"].startswith("GPU-")
            for number in range(2)
        ]
        (gpu_node.root / "run/cdi/other-plugin.json").write_text(
            json.dumps({**spec, "kind": KIND, "devices": replicas})
        )
        (gpu_node.root / "etc/nvidia.yaml").write_text(FILE)
        gpu_node.configure("kubelet: {nvidia_config: /etc/nvidia.yaml}\n")
        yield gpu_node


def own(pod: Pod) -> set[str]:
    return set(pod.sh("ls -d /dev/nvidia[0-9]*").split())


def held(gpu_node: GpuNode, pod: str) -> set[str]:
    """Wait until the kubelet has listed the devices of POD; return their ids from the journal of cdigen."""

    def listed() -> set[str] | None:
        rows = [row for row in gpu_node.status()["journal"] if row["pod"] == pod and row["state"] == "held"]
        return {id_ for row in rows for id_ in row["devices"]} or None

    return eventually(listed, f"the journal has {pod}", details=gpu_node.logs)


def test_pods_keep_their_replicas_after_a_change_of_the_plugin_and_back(gpu_node: GpuNode) -> None:
    folder = gpu_node.node.folder / "kubelet/device-plugins"
    with running_device_plugin(folder, GPU, "cdi-annotations", *IDS):
        gpu_node.has(len(IDS))
        old = gpu_node.pod("old", {GPU: 3}, restartPolicy="Always").become()
        before = own(old)
    gpu_node.has(0)
    gpu_node.plugin.start()
    gpu_node.has(len(IDS))
    kept = held(gpu_node, "old")
    assert len(kept) == 3

    new = gpu_node.pod("new", {GPU: len(IDS) - 3}).become()
    assert held(gpu_node, "new") == set(IDS) - kept
    # The signal is delayed, because the end of the container also ends this command.
    later = "(sleep 0.5; kill -TERM 1) >/dev/null 2>&1 &"
    gpu_node.node.kubectl("exec", "--namespace=ml", "old", "--", "sh", "-c", later)
    eventually(
        lambda: old.status()["containerStatuses"][0]["restartCount"] == 1 or None,
        "the container has restarted",
        details=gpu_node.logs,
    )
    assert own(old.become()) == before
    new.delete()

    gpu_node.plugin.stop()
    gpu_node.has(0)
    with running_device_plugin(folder, GPU, "cdi-annotations", *IDS):
        gpu_node.has(len(IDS))
        rest = gpu_node.pod("rest", {GPU: len(IDS) - 3}).become()
        # The kubelet may have allocated both replicas of a GPU to the pod `old`.
        assert len(own(rest)) == len({id_.partition("::")[0] for id_ in set(IDS) - kept})
        assert own(old) == before
