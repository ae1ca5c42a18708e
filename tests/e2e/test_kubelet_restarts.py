"""Pods keep their GPUs if two of four real programs restart (kubelet, containerd, device plugin, daemon)."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from support.cluster.gpu_node import GPU, GPUS, GpuNode, running_gpu_node
from support.cluster.gpu_registered import registered_s
from support.cluster.gpu_users import GpuUsers, sampling_gpu_users
from support.containers.containerd_host import RELEASES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.cluster.pods import Pod

pytestmark = pytest.mark.e2e

TERM, KILL = signal.SIGTERM, signal.SIGKILL
PROGRAMS = ("kubelet", "containerd", "plugin", "daemon")


@pytest.fixture(scope="module")
def gpu_node(cache: Path, kubernetes_tree: Path, upgrade_tree: Path) -> Iterator[GpuNode]:
    assert kubernetes_tree.is_dir()
    with running_gpu_node(cache, upgrade_tree, RELEASES["forky"]) as gpu_node:
        yield gpu_node


@pytest.fixture(scope="module")
def residents(gpu_node: GpuNode) -> list[Pod]:
    """Return pods that have half of the GPUs and run during all tests."""
    pods = [gpu_node.pod(f"resident{number}", {GPU: 1}) for number in range(len(GPUS) // 2)]
    return [pod.become() for pod in pods]


def containers(pods: list[Pod]) -> list[tuple[str, int]]:
    """Return the ids and restart counts of the containers, which change if a container is restarted."""
    return [row for pod in pods for row in pod.containers()]


@pytest.mark.parametrize("numbers", [(TERM, KILL), (KILL, TERM)], ids=["TERM first", "KILL first"])
def test_pods_keep_their_gpus_and_a_new_pod_starts_after_two_restarts(
    gpu_node: GpuNode, residents: list[Pod], numbers: tuple[signal.Signals, signal.Signals]
) -> None:
    """Each parameter tests half of the ordered pairs of programs; the soak test uses random pairs."""
    before = containers(residents)
    with sampling_gpu_users(gpu_node) as watch, closing(GpuUsers(gpu_node=gpu_node)) as users:
        for first, second in list(permutations(PROGRAMS, 2))[numbers.index(KILL) :: 2]:
            begun_s, wall_s = time.monotonic(), time.time()
            gpu_node.stop(first, numbers[0])
            gpu_node.stop(second, numbers[1])
            gpu_node.start(first)
            gpu_node.start(second)
            started_s = time.monotonic()
            with_kubelet = "kubelet" in {first, second}
            after_s = registered_s(gpu_node, wall_s if with_kubelet else 0.0)
            gpu_node.node.is_ready()
            gpu_node.has(len(GPUS))
            pod = gpu_node.pod(f"after-{first}-{second}", {GPU: 1}).become()
            running_s = time.monotonic()
            assert containers(residents) == before
            found = [gpus for gpus in users.now().values() if gpus]
            # The pod of the previous restart may still be terminating.
            assert len(found) > len(residents)
            assert len(frozenset().union(*found)) == len(found)
            pod.end()
            print(
                f"{first} and {second}: down for {started_s - begun_s:.1f} s, "
                + (f"registered {after_s:.2f} s after kubelet.sock, " if with_kubelet else "")
                + f"allocatable wrong until {watch.wrong_s(begun_s, len(GPUS)):.1f} s, "
                f"a new pod runs after {running_s - begun_s:.1f} s"
            )
    assert watch.most > len(residents)
    assert watch.shared == []
