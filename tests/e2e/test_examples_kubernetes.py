"""A real containerd injects GPUs into pods of KAI, HAMi and gpu-operator with the example configuration."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.containers.containerd_host import Containerd
from support.containers.cri_client import CriError
from support.nri.containerd_plugins import (
    LIBRARY,
    NODES,
    containerd_with_specs,
    numbers,
    running_plugin,
)
from support.values.example_pods import CONFIGURATION, UUID, ExamplePod, read_pods

pytestmark = pytest.mark.e2e

MANAGEMENT = "management.nvidia.com/gpu"
# Kind -> its device and the nodes of the device.
OTHERS = {
    MANAGEMENT: ("all", ("/dev/nvidia0", "/dev/nvidia1")),
    "k8s.device-plugin.nvidia.com/gpu": (UUID, ("/dev/nvidia0",)),
}


def write_others(folder: Path) -> None:
    """Write the specs of the kinds OTHERS into FOLDER."""
    library = {
        "hostPath": str(folder.parent / "libfake.so.1"),
        "containerPath": LIBRARY,
        "options": ["ro", "bind"],
    }
    for kind, (name, nodes) in OTHERS.items():
        device_nodes = [{"path": node, "hostPath": NODES[node][0]} for node in nodes]
        edits = {"deviceNodes": device_nodes, "mounts": [library], "env": ["NVIDIA_VISIBLE_DEVICES=void"]}
        spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": [{"name": name, "containerEdits": edits}]}
        (folder / f"{kind.replace('/', '-')}.json").write_text(json.dumps(spec))


@pytest.fixture(scope="module", params=["forky", "trixie"])
def host(cache: Path, request: pytest.FixtureRequest) -> Iterator[Containerd]:
    """Run containerd: forky's injects CDI devices; for trixie's (1.7), `cdigen nri` adds nodes and mounts."""
    policy = yaml.safe_load(CONFIGURATION.read_text())["nri"]
    with containerd_with_specs(cache, request.param) as host:
        write_others(host.specs)
        with running_plugin(host, **policy, unsupported_cdi="raw"):
            yield host


def started(host: Containerd, pod: ExamplePod) -> dict[str, str]:
    """Start the container of POD and check its driver library; return its GPU nodes."""
    run = host.pod(
        namespace=pod.namespace, privileged=pod.privileged, labels=pod.labels, annotations=pod.annotations
    )
    container = run.container(*("=".join(pair) for pair in pod.env.items()), name=pod.container)
    assert container.sh(f"cat {LIBRARY}") == "the driver\n"
    return container.nodes()


@pytest.mark.parametrize(
    ("file", "name"), [("kai.yaml", "gpu-sharing"), ("kai.yaml", "gpu-sharing-nri"), ("hami.yaml", "gpu-pod")]
)
def test_a_pod_with_a_shared_gpu_needs_no_runtime_class(host: Containerd, file: str, name: str) -> None:
    assert started(host, read_pods(file)[name]) == numbers("/dev/nvidia0")


def test_pods_of_gpu_operator_get_the_management_kind(host: Containerd) -> None:
    (pod,) = read_pods("gpu-operator.yaml").values()
    assert started(host, pod).items() >= numbers("/dev/nvidia0", "/dev/nvidia1").items()


def test_the_management_kind_is_refused_in_other_namespaces(host: Containerd) -> None:
    pod = host.pod(namespace="team-a")
    with pytest.raises(CriError, match=r"no rule in nri\.management_namespaces permits"):
        pod.create(f"NVIDIA_VISIBLE_DEVICES={MANAGEMENT}=all")
