"""Pods of a real kubelet (1.20.2) have exactly the devices that `cdigen kubelet` allocates, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.cluster.gpu_node import (
    AMD,
    AMDS,
    FLEX,
    GPU,
    GPUS,
    INTEL,
    LIBRARIES,
    GpuNode,
    container_devices,
    gpu_nodes,
    running_gpu_node,
)
from support.cluster.pods import WAIT
from support.containers.containerd_host import RELEASES
from support.hosts.mig import CAPS_MAJOR, cap_node, minor_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.cluster.gpu_node import ContainerDevices
    from support.cluster.pods import Pod

pytestmark = pytest.mark.e2e

MIG = "nvidia.com/mig-1g.10gb"
KFD = "/dev/kfd eb:0"
CONTROL = gpu_nodes()
NODES = "ls -d /dev/nvidia[0-9]*"


@pytest.fixture(scope="module", params=RELEASES)
def gpu_node(
    cache: Path, kubernetes_tree: Path, upgrade_tree: Path, request: pytest.FixtureRequest
) -> Iterator[GpuNode]:
    assert kubernetes_tree.is_dir()
    with running_gpu_node(cache, upgrade_tree, RELEASES[request.param]) as gpu_node:
        yield gpu_node


@pytest.fixture(scope="module")
def plain(gpu_node: GpuNode) -> ContainerDevices:
    """Return the nodes and mounts of a container without devices."""
    return container_devices(gpu_node.pod("plain", {}).become())


def added(pod: Pod, plain: ContainerDevices) -> tuple[set[str], set[str]]:
    """Return the nodes and mounts that POD has and PLAIN lacks; fail if POD has a node or a mount twice."""
    devices = container_devices(pod.become())
    for found in (devices.nodes, devices.mounts):
        assert len(set(found)) == len(found)
    return set(devices.nodes) - set(plain.nodes), set(devices.mounts) - set(plain.mounts)


def drm(card: int, render: int) -> set[str]:
    return {f"/dev/dri/card{card} e2:{card:x}", f"/dev/dri/renderD{render} e2:{render:x}"}


def test_pods_have_the_requested_gpus_and_the_drivers_files(
    gpu_node: GpuNode, plain: ContainerDevices
) -> None:
    pods = {count: gpu_node.pod(f"gpus{count}", {GPU: count}) for count in (1, 2, 4)}
    used: set[str] = set()
    for count, pod in pods.items():
        nodes, mounts = added(pod, plain)
        assert nodes >= CONTROL
        own = nodes - CONTROL
        assert len(own) == count
        assert own < gpu_nodes(*range(len(GPUS)))
        assert not own & used
        used |= own
        assert mounts == gpu_node.driver_files()
    assert pods[1].sh(LIBRARIES).split() == [gpu_node.version]
    for pod in pods.values():
        pod.delete()


def test_pods_have_the_devices_of_other_vendors(gpu_node: GpuNode, plain: ContainerDevices) -> None:
    assert (gpu_node.allocatable(AMD), gpu_node.allocatable(INTEL)) == (AMDS[0].split, 1)
    one, two, flex = (
        gpu_node.pod(name, {resource: 1})
        for name, resource in (("amd1", AMD), ("amd2", AMD), ("intel", INTEL))
    )
    parts = [{KFD, *drm(1, 128)}, {KFD, *drm(2, 129)}]
    assert sorted(map(sorted, (added(one, plain)[0], added(two, plain)[0]))) == sorted(map(sorted, parts))
    assert FLEX.card is not None
    assert FLEX.render is not None
    assert added(flex, plain)[0] == drm(FLEX.card, FLEX.render)
    for pod in (one, two, flex):
        pod.delete()


def test_an_init_container_has_a_gpu_that_a_later_container_reuses(
    gpu_node: GpuNode, plain: ContainerDevices
) -> None:
    manifest = gpu_node.manifest("initialised", {GPU: 1})
    (main,) = manifest["spec"]["containers"]
    init = {**main, "name": "first", "command": ["sh", "-c", NODES]}
    manifest["spec"]["initContainers"] = [init]
    manifest["spec"]["containers"].append({**main, "name": "second", "command": ["sh", "-c", WAIT]})
    pod = gpu_node.create(manifest)
    nodes, mounts = added(pod, plain)
    (own,) = nodes - CONTROL
    assert mounts == gpu_node.driver_files()
    (second,) = pod.sh(NODES, "second").split()
    # The kubelet reuses the GPUs of an init container for the first container that requests the same number.
    assert pod.log("first").split() in ([own.split()[0]], [second])
    assert own.split()[0] != second
    pod.delete()


def test_pods_have_the_requested_mig_instances(gpu_node: GpuNode, plain: ContainerDevices) -> None:
    gpu_node.split(7, {7: "1g.10gb", 8: "1g.10gb", 9: "2g.20gb"})
    gpu_node.has(2, MIG)
    gpu_node.has(1, "nvidia.com/mig-2g.20gb")
    gpu_node.has(7)
    small = [gpu_node.pod(f"small{number}", {MIG: 1}) for number in range(2)]
    large = gpu_node.pod("large", {"nvidia.com/mig-2g.20gb": 1})
    whole = gpu_node.pod("whole", {GPU: 1})
    found = [added(pod, plain)[0] - CONTROL for pod in (*small, large)]
    assert sorted(map(sorted, found)) == sorted(sorted(instance(gi)) for gi in (7, 8, 9))
    assert found[2] == instance(9)
    (node,) = added(whole, plain)[0] - CONTROL
    assert node not in gpu_nodes(7)
    for pod in (*small, large, whole):
        pod.delete()
    gpu_node.split(7, {})
    gpu_node.has(0, MIG)
    gpu_node.has(8)


def instance(gi: int) -> set[str]:
    """Return the nodes of the MIG instance with the number GI of GPU 7, without the control nodes."""
    caps = (cap_node(minor_of(7, gi)), cap_node(minor_of(7, gi, 0)))
    return (gpu_nodes(7) - CONTROL) | {f"{node.path} {CAPS_MAJOR:x}:{node.minor:x}" for node in caps}


def test_a_pod_that_requests_more_gpus_than_the_node_has_stays_pending(gpu_node: GpuNode) -> None:
    many, one = gpu_node.pod("many", {GPU: 9}), gpu_node.pod("one", {GPU: 1})
    one.become()
    assert many.status()["phase"] == "Pending"
    assert any(f"Insufficient {GPU}" in event for event in many.events())
