"""Pods of a real kubelet with `cdigen nri` get the GPU that a device plugin allocates.

The device plugin responds like NVIDIA's, with three of its strategies. Kubernetes 1.20.2 does not support the
strategy cdi-cri. test_nri_device_plugin.py tests all four strategies.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.cluster.device_plugin import KIND, VISIBLE, running_device_plugin
from support.cluster.node import Node, running_node
from support.containers.containerd_host import RELEASES, eventually
from support.nri.containerd_plugins import LIBRARY, numbers, running_plugin, write_inventory, write_specs
from support.nri.host import LISTS, UUID

pytestmark = pytest.mark.e2e

STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations")
GPU0 = numbers("/dev/nvidia0")
# In the namespace shared, only mounted device lists select devices. NVIDIA's runtime has the same option.
ALLOW = ({"namespaces": ["ml"]}, {"namespaces": ["shared"], "sources": ["mounts"]})


def resource(strategy: str) -> str:
    return f"nvidia.com/gpu-{strategy}"


@pytest.fixture(scope="module")
def node(cache: Path, kubernetes_tree: Path) -> Iterator[Node]:
    assert kubernetes_tree.is_dir()
    with running_node(cache, RELEASES["forky"]) as node, ExitStack() as stack:
        write_specs(node.specs)
        own = json.loads((node.specs / "nvidia.com-gpu.json").read_text())
        (node.specs / "k8s.json").write_text(json.dumps({**own, "kind": KIND}))
        write_inventory(node)
        node.namespace("shared")
        stack.enter_context(running_plugin(node, allow=ALLOW))
        folder = node.folder / "kubelet/device-plugins"
        for strategy in STRATEGIES:
            stack.enter_context(running_device_plugin(folder, resource(strategy), strategy, UUID))
        eventually(
            lambda: all(node.allocatable(resource(each)) == 1 for each in STRATEGIES) or None,
            "the node has the devices",
            details=lambda: node.kubelet.log,
        )
        yield node
        node.remove_pods()


def requesting(strategy: str) -> dict[str, object]:
    """Return the fields of a pod that requests a device of the plugin with STRATEGY."""
    return {"container": {"resources": {"limits": {resource(strategy): "1"}}}}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_pod_has_the_gpu_that_the_device_plugin_allocated(node: Node, strategy: str) -> None:
    pod = node.pod(strategy, **requesting(strategy)).become()
    assert pod.gpus() == GPU0
    assert pod.sh(f"cat {LIBRARY}") == "the driver\n"
    assert (pod.sh(f"ls {LISTS} 2>/dev/null || true") == f"{UUID}\n") is (strategy == "volume-mounts")
    pod.delete()


def test_only_a_device_list_selects_a_gpu_if_the_environment_is_ignored(node: Node) -> None:
    """A pod's variable overrides the plugin's. If variables were permitted, a pod could request all GPUs."""
    pods = [
        node.pod("listed", f"{VISIBLE}=all", namespace="shared", **requesting("volume-mounts")),
        node.pod("unlisted", f"{VISIBLE}=all", namespace="shared"),
    ]
    assert [pod.become().gpus() for pod in pods] == [GPU0, {}]
