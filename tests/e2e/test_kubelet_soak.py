"""Pods that come and go on a node with eight GPUs, and random restarts below them: no GPU is ever shared.

CDIGEN_SOAK_KUBELET_S says for how long, CDIGEN_SOAK_QUEUE how many pods queue; 'make soak' asks for more.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import pytest
from support.cluster.api import ApiError
from support.cluster.gpu_holders import Watch, watching
from support.cluster.gpu_node import GPU, GPUS, GpuNode, running_gpu_node
from support.cluster.gpu_registered import registered_s
from support.containers.containerd_host import RELEASES, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from support.cluster.pods import Pod

pytestmark = pytest.mark.e2e

SOAK_S = float(os.environ.get("CDIGEN_SOAK_KUBELET_S", "20"))
SEED = int(os.environ.get("CDIGEN_SOAK_SEED", "18"))
PODS = int(os.environ.get("CDIGEN_SOAK_QUEUE", "24"))
PROGRAMS = ("kubelet", "containerd", "plugin", "daemon")
# Says which GPUs it has and from when to when, by a clock that all containers share.
SAY = "ls -d /dev/nvidia[0-9]*; cut -d' ' -f1 /proc/uptime; sleep {s}; cut -d' ' -f1 /proc/uptime"
# So many pods are alive in the soak test, of which some wait.
ALIVE = 10
# What the kubelet answers by itself, before its device plugins have registered again, or as they are away;
# what becomes of a container that containerd was about to start when it ended; and of one that has ended as
# containerd was away (unknownContainerStatus in its cri/server/helpers.go).
OTHERS = (
    *("requested number of devices unavailable", "code = Unavailable", "no healthy devices present"),
    "has been stopped",
    *("context canceled", "transport is closing"),
    "Unknown 255",
)


@pytest.fixture(scope="module")
def gpu_node(cache: Path, kubernetes_tree: Path, upgrade_tree: Path) -> Iterator[GpuNode]:
    assert kubernetes_tree.is_dir()
    with running_gpu_node(cache, upgrade_tree, RELEASES["forky"]) as gpu_node:
        yield gpu_node


def turns(log: str) -> list[tuple[str, float, float]]:
    """Return what a container has said by SAY: each GPU, and from when to when it was the container's.

    ValueError: a part of it is lost. One without a GPU says that 'ls' has found none.
    """
    *gpus, from_s, to_s = log.split()
    if not gpus:
        raise ValueError(log)
    return [(gpu, float(from_s), float(to_s)) for gpu in gpus]


def why(status: Mapping[str, Any]) -> str:
    """Return why a pod has failed: what the kubelet says, or else how its containers have ended."""
    if "message" in status:
        return str(status["message"])
    ends = [row["state"] for row in status.get("containerStatuses", ())]
    found = [end.get("terminated") or end.get("waiting") or {} for end in ends]
    return "; ".join(f"{one.get('reason')} {one.get('exitCode')}: {one.get('message')}" for one in found)


def overlaps(found: list[tuple[str, float, float]]) -> list[str]:
    """Return which GPUs were two containers' at a time."""
    return [
        f"{one[0]}: {one[1:]} and {two[1:]}"
        for one, two in pairwise(sorted(found))
        if one[0] == two[0] and two[1] < one[2]
    ]


def nothing_is_left(gpu_node: GpuNode) -> None:
    """Make sure that no pod has anything any more, and nothing lies about."""
    folder = gpu_node.node.folder / "kubelet/device-plugins"
    eventually(
        lambda: all(row["allocated"] == 0 for row in gpu_node.status()["resources"]) or None,
        "no pod has anything",
        told=lambda: gpu_node.status()["resources"],
    )
    names = sorted(path.name for path in folder.iterdir() if path.is_socket())
    assert len(names) == 1 + len(gpu_node.status()["resources"]), names


def test_many_pods_queue_for_eight_gpus(gpu_node: GpuNode) -> None:
    begun_s = time.monotonic()
    with watching(gpu_node) as watch:
        pods = [gpu_node.pod(f"queue{row}", {GPU: 1}, script=SAY.format(s=0.2)) for row in range(PODS)]
        eventually(
            lambda: (
                all(each["status"]["phase"] == "Succeeded" for each in gpu_node.node.pods().values()) or None
            ),
            "all have run",
            timeout_s=240,
            told=gpu_node.told,
        )
    found = [turn for pod in pods for turn in turns(pod.log())]
    per_gpu = Counter(turn[0] for turn in found)
    print(f"{PODS} pods in {time.monotonic() - begun_s:.0f} s; {watch.most} GPUs at once; {dict(per_gpu)}")
    assert len(found) == PODS
    assert len(per_gpu) == len(GPUS)
    assert overlaps(found) == []
    assert watch.most > 1
    assert watch.shared == []
    for pod in pods:
        pod.end()
    nothing_is_left(gpu_node)
    assert gpu_node.allocatable() == len(GPUS)


class Soak:
    """Pods that come and go on a node, and what became of them."""

    def __init__(self, gpu_node: GpuNode, chance: random.Random) -> None:
        self.ended: Counter[str] = Counter()
        self.turns: list[tuple[str, float, float]] = []
        # Those whose container had another number of GPUs than it asked for.
        self.wrong: list[str] = []
        self.refused: list[str] = []
        # What became of each pod.
        self.ends: dict[str, str] = {}
        self._gpu_node = gpu_node
        self._chance = chance
        self._alive: dict[str, Pod] = {}
        self._asked: dict[str, int] = {}
        self._names = (f"soak{number}" for number in count())

    def step(self, *, more: bool = True) -> bool:
        """Look after the pods that have ended, make others; returns whether any is left."""
        self._gpu_node.revive()
        try:
            found = self._gpu_node.node.pods()
        except (ApiError, OSError):
            return True
        for name in [name for name in self._alive if name in found]:
            status = found[name]["status"]
            self.ends[name] = f"{status['phase']}: {why(status)}"
            if status["phase"] == "Succeeded":
                self._succeeded(name)
            elif status["phase"] == "Failed":
                self._end(name, status.get("reason", "failed"))
                self.refused.append(why(status))
        while more and len(self._alive) < ALIVE:
            name, seconds = next(self._names), self._chance.choice((0.2, 1, 3))
            self._asked[name] = self._chance.choice((1, 1, 1, 2))
            limits = {GPU: self._asked[name]}
            self._alive[name] = self._gpu_node.pod(name, limits, script=SAY.format(s=seconds))
        return bool(self._alive)

    def _succeeded(self, name: str) -> None:
        try:
            found = turns(self._alive[name].log())
        except (ApiError, OSError):
            return  # the kubelet, who has the log, is away
        except ValueError:
            # What a container says while containerd is away nobody keeps.
            self._end(name, "ran, and its log is lost")
            return
        self.turns += found
        if len(found) != self._asked[name]:
            self.wrong.append(f"{name} asked for {self._asked[name]} and had {found}")
        self._end(name, "ran")

    def _end(self, name: str, how: str) -> None:
        self._alive.pop(name).end()
        self.ended[how] += 1


def restart(gpu_node: GpuNode, chance: random.Random) -> str:
    """Restart one or two programs, by one signal or the other, sooner or later; returns which."""
    names = chance.sample(PROGRAMS, chance.choice((1, 2)))
    for name in names:
        gpu_node.stop(name, chance.choice((signal.SIGTERM, signal.SIGKILL)))
    time.sleep(chance.choice((0, 0, 0.3, 2)))
    chance.shuffle(names)
    for name in names:
        gpu_node.start(name)
    return " ".join(names)


def test_random_restarts_cost_no_gpu_and_give_none_twice(gpu_node: GpuNode) -> None:
    chance = random.Random(SEED)
    soak, restarts, back_s = Soak(gpu_node, chance), 0, [0.0]
    until_s = time.monotonic() + SOAK_S
    with watching(gpu_node) as watch:
        while time.monotonic() < until_s:
            begun_s, wall_s = time.monotonic(), time.time()
            what = restart(gpu_node, chance)
            restarts += 1
            for _ in range(chance.choice((1, 10, 50))):
                soak.step()
                time.sleep(0.1)
            if chance.random() < 0.5:
                # What the API server has may be of the kubelet before.
                registered_s(gpu_node, wall_s if "kubelet" in what else 0.0)
                gpu_node.node.is_ready()
                gpu_node.has(len(GPUS))
                back_s.append(watch.wrong_s(begun_s, len(GPUS)))
                print(f"{what}: allocatable was wrong until {back_s[-1]:.1f} s")
        eventually(
            lambda: not soak.step(more=False) or None, "pods have ended", timeout_s=240, told=gpu_node.told
        )
        registered_s(gpu_node, 0.0)
        gpu_node.has(len(GPUS))
        report(soak, watch, restarts, back_s)
    assert watch.most > 1
    assert watch.shared == []
    assert overlaps(soak.turns) == []
    assert soak.wrong == []
    assert [each for each in soak.refused if not any(part in each for part in OTHERS)] == []
    assert soak.ended["ran"] > 0
    nothing_is_left(gpu_node)


def report(soak: Soak, watch: Watch, restarts: int, back_s: list[float]) -> None:
    for shared in (*watch.shared, *watch.again):
        print(shared, [(name, end) for name, end in soak.ends.items() if f" {name} " in shared])
    print(
        f"{restarts} restarts; pods: {dict(soak.ended)}; {watch.looks} looks, {watch.most} GPUs at once; "
        f"allocatable was wrong for {max(back_s):.1f} s at most; refused: {Counter(soak.refused)}"
    )
