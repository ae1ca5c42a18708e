"""Pods of a real kubelet, 1.20.2, with devices that `cdigen kubelet` offers: theirs, once, and no others."""

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
    gpu_nodes,
    look,
    running_gpu_node,
)
from support.cluster.pods import WAIT
from support.containers.containerd_host import RELEASES
from support.hosts.mig import CAPS_MAJOR, cap_node, minor_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.cluster.gpu_node import Seen
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
def plain(gpu_node: GpuNode) -> Seen:
    """Return what a container finds that has asked for nothing."""
    return look(gpu_node.pod("plain", {}).become())


def given(pod: Pod, plain: Seen) -> tuple[set[str], set[str]]:
    """Return nodes and mounts that POD has and PLAIN does not; each must be there once."""
    seen = look(pod.become())
    for found in (seen.nodes, seen.mounts):
        assert len(set(found)) == len(found)
    return set(seen.nodes) - set(plain.nodes), set(seen.mounts) - set(plain.mounts)


def drm(card: int, render: int) -> set[str]:
    return {f"/dev/dri/card{card} e2:{card:x}", f"/dev/dri/renderD{render} e2:{render:x}"}


def test_pods_have_the_gpus_that_they_ask_for_and_the_drivers_files(gpu_node: GpuNode, plain: Seen) -> None:
    pods = {count: gpu_node.pod(f"gpus{count}", {GPU: count}) for count in (1, 2, 4)}
    taken: set[str] = set()
    for count, pod in pods.items():
        nodes, mounts = given(pod, plain)
        assert nodes >= CONTROL
        own = nodes - CONTROL
        assert len(own) == count
        assert own < gpu_nodes(*range(len(GPUS)))
        assert not own & taken
        taken |= own
        assert mounts == gpu_node.driver_files()
    assert pods[1].sh(LIBRARIES).split() == [gpu_node.version]
    for pod in pods.values():
        pod.delete()


def test_pods_have_the_devices_of_other_vendors(gpu_node: GpuNode, plain: Seen) -> None:
    assert (gpu_node.allocatable(AMD), gpu_node.allocatable(INTEL)) == (AMDS[0].split, 1)
    one, two, flex = (
        gpu_node.pod(name, {resource: 1})
        for name, resource in (("amd1", AMD), ("amd2", AMD), ("intel", INTEL))
    )
    parts = [{KFD, *drm(1, 128)}, {KFD, *drm(2, 129)}]
    assert sorted(map(sorted, (given(one, plain)[0], given(two, plain)[0]))) == sorted(map(sorted, parts))
    assert FLEX.card is not None
    assert FLEX.render is not None
    assert given(flex, plain)[0] == drm(FLEX.card, FLEX.render)
    for pod in (one, two, flex):
        pod.delete()


def test_init_containers_have_a_gpu_as_well_which_the_others_have_after_them(
    gpu_node: GpuNode, plain: Seen
) -> None:
    manifest = gpu_node.manifest("initialised", {GPU: 1})
    (main,) = manifest["spec"]["containers"]
    init = {**main, "name": "first", "command": ["sh", "-c", NODES]}
    manifest["spec"]["initContainers"] = [init]
    manifest["spec"]["containers"].append({**main, "name": "second", "command": ["sh", "-c", WAIT]})
    pod = gpu_node.create(manifest)
    nodes, mounts = given(pod, plain)
    (own,) = nodes - CONTROL
    assert mounts == gpu_node.driver_files()
    (second,) = pod.sh(NODES, "second").split()
    # The kubelet gives what an init container had to the first that asks for as many.
    assert pod.log("first").split() in ([own.split()[0]], [second])
    assert own.split()[0] != second
    pod.delete()


def test_pods_have_the_mig_instances_that_they_ask_for(gpu_node: GpuNode, plain: Seen) -> None:
    gpu_node.split(7, {7: "1g.10gb", 8: "1g.10gb", 9: "2g.20gb"})
    gpu_node.has(2, MIG)
    gpu_node.has(1, "nvidia.com/mig-2g.20gb")
    gpu_node.has(7)
    small = [gpu_node.pod(f"small{number}", {MIG: 1}) for number in range(2)]
    large = gpu_node.pod("large", {"nvidia.com/mig-2g.20gb": 1})
    whole = gpu_node.pod("whole", {GPU: 1})
    found = [given(pod, plain)[0] - CONTROL for pod in (*small, large)]
    assert sorted(map(sorted, found)) == sorted(sorted(instance(gi)) for gi in (7, 8, 9))
    assert found[2] == instance(9)
    (node,) = given(whole, plain)[0] - CONTROL
    assert node not in gpu_nodes(7)
    for pod in (*small, large, whole):
        pod.delete()
    gpu_node.split(7, {})
    gpu_node.has(0, MIG)
    gpu_node.has(8)


def instance(gi: int) -> set[str]:
    """Return the nodes of an instance of GPU 7, without those that all GPUs share."""
    caps = (cap_node(minor_of(7, gi)), cap_node(minor_of(7, gi, 0)))
    return (gpu_nodes(7) - CONTROL) | {f"{node.path} {CAPS_MAJOR:x}:{node.minor:x}" for node in caps}


def test_a_pod_waits_in_the_queue_for_more_gpus_than_there_are(gpu_node: GpuNode) -> None:
    many, one = gpu_node.pod("many", {GPU: 9}), gpu_node.pod("one", {GPU: 1})
    one.become()
    assert many.status()["phase"] == "Pending"
    assert any(f"Insufficient {GPU}" in event for event in many.events())
