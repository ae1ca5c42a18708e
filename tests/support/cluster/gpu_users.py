"""Samples of the containers that have each GPU, and of the allocatable GPUs: `sampling_gpu_users`."""

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
class GpuUsers:
    """The GPUs of each running container, read from the runtime; not thread-safe."""

    gpu_node: GpuNode
    _cri: Cri | None = None
    _known: dict[str, tuple[str, frozenset[str]]] = field(default_factory=dict)

    def now(self) -> dict[str, frozenset[str]]:
        """Return the GPU nodes of each running container, by "POD CONTAINER-ID"; raises CriError."""
        # During an outage of the runtime, a connection waits longer after each failed attempt. Therefore an
        # error closes the connection, and the next call opens a new connection.
        self._cri = self._cri or Cri(self.gpu_node.node.folder / "c.sock")
        try:
            return dict(self._gpus(self._cri, each) for each in running_ids(self._cri))
        except CriError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
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
class GpuUserSamples:
    """The samples. ``allocatable`` has the number of allocatable GPUs at each time.

    ``shared`` has the GPUs that two pods used at one time. ``same_pod`` has the GPUs that two containers of
    one pod used at one time. This may happen if containerd ended before it responded to the start of a
    container: the kubelet has no state of the container, and creates another container
    (kuberuntime_manager.go, computePodActions).
    """

    shared: list[str] = field(default_factory=list)
    same_pod: list[str] = field(default_factory=list)
    allocatable: list[tuple[float, int]] = field(default_factory=list)
    count: int = 0
    most: int = 0

    def wrong_s(self, since_s: float, expected: int) -> float:
        """Return the seconds from SINCE_S (monotonic) to the last sample that differs from EXPECTED."""
        wrong = [at_s for at_s, count in self.allocatable if at_s >= since_s and count != expected]
        return wrong[-1] - since_s if wrong else 0.0

    def add(self, found: dict[str, frozenset[str]]) -> None:
        """Add a sample: the GPUs of each container."""
        users: dict[str, str] = {}
        for container, gpus in found.items():
            for gpu in gpus:
                if gpu in users:
                    is_same = users[gpu].split()[0] == container.split()[0]
                    found_on = self.same_pod if is_same else self.shared
                    found_on.append(f"{gpu}: {users[gpu]} and {container}")
                users[gpu] = container
        self.count += 1
        self.most = max(self.most, len(users))


@contextmanager
def sampling_gpu_users(gpu_node: GpuNode) -> Iterator[GpuUserSamples]:
    """Take samples in a thread until the context ends; unreachable sources are skipped."""
    samples, users = GpuUserSamples(), GpuUsers(gpu_node=gpu_node)

    def sample() -> None:
        with suppress(OSError, KeyError):
            samples.allocatable.append((time.monotonic(), gpu_node.allocatable()))
        with suppress(CriError):
            samples.add(users.now())

    def end() -> None:
        users.close()
        gpu_node.node.api.close()

    with sampling(sample, end):
        yield samples
