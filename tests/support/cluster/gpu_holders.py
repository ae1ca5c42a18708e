"""Who has which GPU on a node, as its runtime and its API server say again and again: `watching`."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.cluster.gpu_node import GPUS, GpuNode
from support.cluster.sampling import container_info, running_ids, sampling
from support.containers.cri_client import Cri, CriError

if TYPE_CHECKING:
    from collections.abc import Iterator

POD = "io.kubernetes.pod.name"  # the kubelet's label on each container
PATHS = frozenset(node.path for gpu in GPUS for node in gpu.nodes)


@dataclass(kw_only=True)
class Holders:
    """Which GPUs each running container has, asked of the runtime itself; not for two threads."""

    gpu_node: GpuNode
    _cri: Cri | None = None
    _known: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)

    def now(self) -> dict[str, frozenset[str]]:
        """Return the GPUs of each running container, by its pod's name and its id; CriError."""
        # A connection waits ever longer for a runtime that was away: this is a new one then.
        self._cri = self._cri or Cri(self.gpu_node.node.folder / "c.sock")
        try:
            return dict(self._gpus(self._cri, each) for each in running_ids(self._cri))
        except CriError:
            self.close()
            raise

    def close(self) -> None:
        """Give up the connection."""
        if self._cri:
            self._cri.close()
        self._cri = None

    def _gpus(self, cri: Cri, container: str) -> tuple[str, frozenset[str]]:
        if container not in self._known:
            info = container_info(cri, container)
            nodes = info["runtimeSpec"]["linux"].get("devices", ())
            name = f"{info['config']['labels'][POD]} {container}"
            self._known[container] = name, PATHS & {node["path"] for node in nodes}
        return self._known[container]


@dataclass(kw_only=True)
class Watch:
    """What was seen: GPUs that two pods had at a time, and how many were allocatable at each time.

    ``again``: GPUs that two containers of one pod had. Of a container whose start containerd did not live to
    answer, the kubelet does not know whether it runs, and makes another in its place (kuberuntime_manager.go,
    computePodActions).
    """

    shared: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    allocatable: list[tuple[float, int]] = field(default_factory=list)
    looks: int = 0
    most: int = 0

    def wrong_s(self, since_s: float, right: int) -> float:
        """Return for how long after SINCE_S (monotonic) another number than RIGHT was allocatable."""
        wrong = [at_s for at_s, count in self.allocatable if at_s >= since_s and count != right]
        return wrong[-1] - since_s if wrong else 0.0

    def see(self, found: dict[str, frozenset[str]]) -> None:
        """Take what the containers have at one time."""
        owners: dict[str, str] = {}
        for container, gpus in found.items():
            for gpu in gpus:
                if gpu in owners:
                    is_same = owners[gpu].split()[0] == container.split()[0]
                    which = self.again if is_same else self.shared
                    which.append(f"{gpu}: {owners[gpu]} and {container}")
                owners[gpu] = container
        self.looks += 1
        self.most = max(self.most, len(owners))


@contextmanager
def watching(gpu_node: GpuNode) -> Iterator[Watch]:
    """Look all the time until the context ends, in a thread; who is away is not asked."""
    watch, holders = Watch(), Holders(gpu_node=gpu_node)

    def look() -> None:
        with suppress(OSError, KeyError):
            watch.allocatable.append((time.monotonic(), gpu_node.allocatable()))
        with suppress(CriError):
            watch.see(holders.now())

    def end() -> None:
        holders.close()
        gpu_node.node.api.close()

    with sampling(look, end):
        yield watch
