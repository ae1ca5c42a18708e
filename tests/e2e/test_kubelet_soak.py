"""On a node with eight GPUs, no two pods share a GPU, even during random restarts of programs.

CDIGEN_SOAK_KUBELET_S is the duration in seconds. CDIGEN_SOAK_QUEUE is the number of queued pods. 'make soak'
sets larger numbers.
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
from support.cluster.gpu_node import GPU, GPUS, GpuNode, running_gpu_node
from support.cluster.gpu_registered import registered_s
from support.cluster.gpu_users import GpuUserSamples, sampling_gpu_users
from support.cluster.pods import ended_before_start
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
# Prints the GPUs of a container, and its start and end by a clock that all containers share.
PRINT = "ls -d /dev/nvidia[0-9]*; cut -d' ' -f1 /proc/uptime; sleep {s}; cut -d' ' -f1 /proc/uptime"
# The number of pods that exist at a time in the soak test; some of them wait.
ALIVE = 10
# The end of a pod whose container started after the kubelet took the pod for ended: the kubelet stops it.
STOPPED = "Failed: Error 137"
# Errors that restarts cause without a defect of cdigen.
PERMITTED_ERRORS = (
    # From the kubelet, if device plugins do not run or are not registered again.
    *("requested number of devices unavailable", "code = Unavailable", "no healthy devices present"),
    "has been stopped",
    # From a container that was about to start when containerd ended.
    *("context canceled", "transport is closing"),
    # From a container that ended while containerd did not run (cri/server/helpers.go, unknownContainerStatus)
    "Unknown 255",
)


@pytest.fixture(scope="module")
def gpu_node(cache: Path, kubernetes_tree: Path, upgrade_tree: Path) -> Iterator[GpuNode]:
    assert kubernetes_tree.is_dir()
    with running_gpu_node(cache, upgrade_tree, RELEASES["forky"]) as gpu_node:
        yield gpu_node


def turns(log: str) -> list[tuple[str, float, float]]:
    """Return each GPU in LOG (the output of PRINT) with the start and the end of the container.

    Raise ValueError if a part of the output is lost. If the container has no GPU, LOG has the error of `ls`.
    """
    *gpus, from_s, to_s = log.split()
    if not gpus:
        raise ValueError(log)
    return [(gpu, float(from_s), float(to_s)) for gpu in gpus]


def failure(status: Mapping[str, Any]) -> str:
    """Return the kubelet's message about a failed pod, or else the final states of its containers."""
    if "message" in status:
        return str(status["message"])
    ends = [row["state"] for row in status.get("containerStatuses", ())]
    found = [end.get("terminated") or end.get("waiting") or {} for end in ends]
    return "; ".join(f"{one.get('reason')} {one.get('exitCode')}: {one.get('message')}" for one in found)


def overlaps(found: list[tuple[str, float, float]]) -> list[str]:
    """Return the GPUs that two containers had at the same time, with the periods of the two containers."""
    return [
        f"{one[0]}: {one[1:]} and {two[1:]}"
        for one, two in pairwise(sorted(found))
        if one[0] == two[0] and two[1] < one[2]
    ]


def nothing_is_left(gpu_node: GpuNode) -> None:
    """Check that no pod has a device, and that the kubelet and each resource have one socket."""
    folder = gpu_node.node.folder / "kubelet/device-plugins"
    eventually(
        lambda: all(row["allocated"] == 0 for row in gpu_node.status()["resources"]) or None,
        "no pod has a device",
        details=lambda: gpu_node.status()["resources"],
    )
    names = sorted(path.name for path in folder.iterdir() if path.is_socket())
    assert len(names) == 1 + len(gpu_node.status()["resources"]), names


def test_no_two_queued_pods_have_the_same_gpu_at_the_same_time(gpu_node: GpuNode) -> None:
    begun_s = time.monotonic()
    with sampling_gpu_users(gpu_node) as watch:
        pods = [gpu_node.pod(f"queue{row}", {GPU: 1}, script=PRINT.format(s=0.2)) for row in range(PODS)]
        eventually(
            lambda: (
                all(each["status"]["phase"] == "Succeeded" for each in gpu_node.node.pods().values()) or None
            ),
            "all pods have succeeded",
            timeout_s=240,
            details=gpu_node.logs,
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
    """Pods that start and end on a node, and their results."""

    def __init__(self, gpu_node: GpuNode, chance: random.Random) -> None:
        self.ended: Counter[str] = Counter()
        self.turns: list[tuple[str, float, float]] = []
        # The pods whose container had another number of GPUs than requested.
        self.wrong: list[str] = []
        self.refused: list[str] = []
        # The pods that the kubelet took for ended before their container started.
        self.mistaken: set[str] = set()
        # The result of each pod.
        self.ends: dict[str, str] = {}
        self._gpu_node = gpu_node
        self._chance = chance
        self._alive: dict[str, Pod] = {}
        self._requested: dict[str, int] = {}
        self._names = (f"soak{number}" for number in count())

    def step(self, *, more: bool = True) -> bool:
        """Collect the ended pods; if `more` is true, create new pods. Return whether a pod still exists."""
        try:
            found = self._gpu_node.node.pods()
        except (ApiError, OSError):
            return True
        for name in [name for name in self._alive if name in found]:
            status = found[name]["status"]
            self.ends[name] = f"{status['phase']}: {failure(status)}"
            if ended_before_start(status) or self.ends[name].startswith(STOPPED):
                self.mistaken.add(name)
            if status["phase"] == "Succeeded":
                self._succeeded(name)
            elif status["phase"] == "Failed":
                self._end(name, status.get("reason", "failed"))
                if name not in self.mistaken:
                    self.refused.append(failure(status))
        while more and len(self._alive) < ALIVE:
            name, seconds = next(self._names), self._chance.choice((0.2, 1, 3))
            self._requested[name] = self._chance.choice((1, 1, 1, 2))
            limits = {GPU: self._requested[name]}
            self._alive[name] = self._gpu_node.pod(name, limits, script=PRINT.format(s=seconds))
        return bool(self._alive)

    def _succeeded(self, name: str) -> None:
        try:
            found = turns(self._alive[name].log())
        except (ApiError, OSError):
            return  # the kubelet, which serves the log, does not run
        except ValueError:
            # The output of a container is lost while containerd does not run.
            self._end(name, "ran, and its log is lost")
            return
        if name not in self.mistaken:
            self.turns += found
        if len(found) != self._requested[name]:
            self.wrong.append(f"{name} requested {self._requested[name]} and had {found}")
        self._end(name, "ran")

    def _end(self, name: str, result: str) -> None:
        self._alive.pop(name).end()
        self.ended[result] += 1


def restart(gpu_node: GpuNode, chance: random.Random) -> str:
    """Restart one or two programs with random signals and a random delay; return their names."""
    names = chance.sample(PROGRAMS, chance.choice((1, 2)))
    for name in names:
        gpu_node.stop(name, chance.choice((signal.SIGTERM, signal.SIGKILL)))
    time.sleep(chance.choice((0, 0, 0.3, 2)))
    chance.shuffle(names)
    for name in names:
        gpu_node.start(name)
    return " ".join(names)


def test_no_gpu_is_lost_or_allocated_twice_after_random_restarts(gpu_node: GpuNode) -> None:
    chance = random.Random(SEED)
    soak, restarts, back_s = Soak(gpu_node, chance), 0, [0.0]
    until_s = time.monotonic() + SOAK_S
    with sampling_gpu_users(gpu_node) as watch:
        while time.monotonic() < until_s:
            begun_s, wall_s = time.monotonic(), time.time()
            what = restart(gpu_node, chance)
            restarts += 1
            for _ in range(chance.choice((1, 10, 50))):
                soak.step()
                time.sleep(0.1)
            if chance.random() < 0.5:
                # The API server may still have a report that the kubelet sent before its restart.
                registered_s(gpu_node, wall_s if "kubelet" in what else 0.0)
                gpu_node.node.is_ready()
                gpu_node.has(len(GPUS))
                back_s.append(watch.wrong_s(begun_s, len(GPUS)))
                print(f"{what}: allocatable was wrong until {back_s[-1]:.1f} s")
        eventually(
            lambda: not soak.step(more=False) or None, "pods have ended", timeout_s=240, details=gpu_node.logs
        )
        registered_s(gpu_node, 0.0)
        gpu_node.has(len(GPUS))
        report(soak, watch, restarts, back_s)
    assert watch.most > 1
    assert [each for each in watch.shared if not soak.mistaken.intersection(each.split())] == []
    assert overlaps(soak.turns) == []
    assert soak.wrong == []
    assert [each for each in soak.refused if not any(part in each for part in PERMITTED_ERRORS)] == []
    assert soak.ended["ran"] > 0
    nothing_is_left(gpu_node)


def report(soak: Soak, watch: GpuUserSamples, restarts: int, back_s: list[float]) -> None:
    for shared in (*watch.shared, *watch.same_pod):
        print(shared, [(name, end) for name, end in soak.ends.items() if f" {name} " in shared])
    print(
        f"{restarts} restarts; pods: {dict(soak.ended)}; {watch.count} samples, {watch.most} GPUs at once; "
        f"allocatable was wrong for {max(back_s):.1f} s at most; refused: {Counter(soak.refused)}"
    )
