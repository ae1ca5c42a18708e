"""Restarts on a node with GPUs, two by two: real kubelet and containerd, `cdigen kubelet` and the daemon."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from itertools import permutations
from typing import TYPE_CHECKING

import pytest
from support.cluster.gpu_holders import Holders, watching
from support.cluster.gpu_node import GPU, GPUS, GpuNode, running_gpu_node
from support.cluster.gpu_registered import registered_s
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
    """Return pods that run all the time; half of the GPUs is left."""
    pods = [gpu_node.pod(f"resident{number}", {GPU: 1}) for number in range(len(GPUS) // 2)]
    return [pod.become() for pod in pods]


def containers(pods: list[Pod]) -> list[tuple[str, int]]:
    """Return what is another one where a container was started again."""
    return [row for pod in pods for row in pod.containers()]


@pytest.mark.parametrize("numbers", [(TERM, KILL), (KILL, TERM)], ids=["TERM first", "KILL first"])
def test_restarts_cost_no_pod_its_gpu_and_no_gpu_its_next_pod(
    gpu_node: GpuNode, residents: list[Pod], numbers: tuple[signal.Signals, signal.Signals]
) -> None:
    """Every order of two, one half of them with either signal first; the soak test takes any."""
    before = containers(residents)
    with watching(gpu_node) as watch, closing(Holders(gpu_node=gpu_node)) as holders:
        for first, second in list(permutations(PROGRAMS, 2))[numbers.index(KILL) :: 2]:
            begun_s, wall_s = time.monotonic(), time.time()
            gpu_node.stop(first, numbers[0])
            gpu_node.stop(second, numbers[1])
            gpu_node.start(first)
            gpu_node.start(second)
            started_s = time.monotonic()
            is_other = "kubelet" in {first, second}
            after_s = registered_s(gpu_node, wall_s if is_other else 0.0)
            gpu_node.node.is_ready()
            gpu_node.has(len(GPUS))
            pod = gpu_node.pod(f"after-{first}-{second}", {GPU: 1}).become()
            running_s = time.monotonic()
            assert containers(residents) == before
            found = [gpus for gpus in holders.now().values() if gpus]
            # The pod before this one may be on its way out.
            assert len(found) > len(residents)
            assert len(frozenset().union(*found)) == len(found)
            pod.end()
            print(
                f"{first} and {second}: down for {started_s - begun_s:.1f} s, "
                + (f"registered {after_s:.2f} s after kubelet.sock, " if is_other else "")
                + f"allocatable wrong until {watch.wrong_s(begun_s, len(GPUS)):.1f} s, "
                f"a new pod runs after {running_s - begun_s:.1f} s"
            )
    assert watch.most > len(residents)
    assert watch.shared == []
