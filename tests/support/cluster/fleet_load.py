"""`loading` creates pods while a node's daemon and plugins change, and records the outcomes of the pods.

Each pod is created with a node name, because the scheduler would bind no pod that the kubelet would reject.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from support.cluster.api import ApiError
from support.cluster.gpu_node import GPU
from support.cluster.node import NODE
from support.cluster.pods import pod_manifest
from support.cluster.sampling import sampling
from support.containers.containerd_host import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.cluster.fleet_node import Fleet

NAMESPACE = "load"
EVERY_S = 0.2
# The highest number of unfinished pods. The kubelet rejects a pod if no GPU is free.
AT_ONCE = 3
ENDED = {"Succeeded", "Failed"}
# The exit code of a container without the requested device.
NO_DEVICE = 7
BY_PLUGIN = f"set -- /dev/nvidia[0-9]*; [ -e $1 ] && [ $# = 1 ] && [ -e /dev/nvidiactl ] || exit {NO_DEVICE}"
BY_NRI = f"set -- /dev/nvidia[0-9]*; [ $# = 1 ] && [ $1 = /dev/nvidia3 ] || exit {NO_DEVICE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOutcome:
    """The outcome of a pod: its creation (Unix time), its phase, and the kubelet's reason for a rejection."""

    name: str
    created_s: float
    phase: str
    reason: str
    exit_code: int | None


@dataclass(kw_only=True)
class Load:
    """The created pods. ``allocatable`` has time and value of each change of the GPU count in the API."""

    fleet: Fleet
    created: dict[str, float] = field(default_factory=dict)
    allocatable: list[tuple[float, int]] = field(default_factory=list)

    def outcomes(self) -> list[PodOutcome]:
        """Wait until all pods have ended; return their outcomes in the order of creation."""
        rows = eventually(self._ended, "the pods have ended", details=self.fleet.logs)
        return [_outcome(rows[name], created_s) for name, created_s in self.created.items()]

    def _ended(self) -> dict[str, Any] | None:
        rows = self.fleet.node.pods(NAMESPACE)
        phases = {rows[name]["status"]["phase"] for name in self.created}
        return rows if phases <= ENDED else None

    def unfinished(self) -> list[str]:
        """Return the pods that have not ended."""
        rows = self.fleet.node.pods(NAMESPACE)
        return [name for name, row in rows.items() if row["status"]["phase"] not in ENDED]

    def api_gap_s(self, expected: int) -> float:
        """Return the total time in which the number of GPUs in the API server differed from EXPECTED."""
        ends = [at_s for at_s, _ in self.allocatable[1:]] + [time.time()]
        rows = zip(self.allocatable, ends, strict=True)
        return sum(end_s - at_s for (at_s, number), end_s in rows if number != expected)


def rejected(outcomes: list[PodOutcome]) -> list[PodOutcome]:
    """Return the pods that the kubelet rejected."""
    return [outcome for outcome in outcomes if outcome.phase == "Failed" and outcome.exit_code is None]


def gap_s(outcomes: list[PodOutcome]) -> float:
    """Return the length of the gap, which is the time in which the kubelet has no devices.

    It lasts from the last pod before the first rejected pod to the first pod after the last rejected pod.
    """
    requesting = [outcome for outcome in outcomes if outcome.name.startswith("plugin")]
    rejected_at = [place for place, outcome in enumerate(requesting) if outcome in rejected(requesting)]
    if not rejected_at:
        return 0.0
    return requesting[rejected_at[-1] + 1].created_s - requesting[rejected_at[0] - 1].created_s


def is_one_gap(outcomes: list[PodOutcome]) -> bool:
    """Return whether the rejected pods, if any, are consecutive, and another pod follows them."""
    # Pods that the kubelet rejected because all GPUs were in use (OutOfnvidia.com/gpu) are left out.
    by_plugin = [outcome for outcome in outcomes if outcome.name.startswith("plugin")]
    requesting = [outcome for outcome in by_plugin if not outcome.reason.startswith("OutOf")]
    rejected_at = [place for place, outcome in enumerate(requesting) if outcome in rejected(requesting)]
    if not rejected_at:
        return True
    first, last = rejected_at[0], rejected_at[-1]
    return last - first + 1 == len(rejected_at) and last + 1 < len(requesting)


def reasons(outcomes: list[PodOutcome]) -> dict[str, int]:
    """Return the number of rejected pods by reason."""
    return dict(Counter(outcome.reason for outcome in rejected(outcomes)))


@contextmanager
def loading(fleet: Fleet) -> Iterator[Load]:
    """Create pods until the context ends, and sample the API server.

    Of three pods, two pods request a GPU from the plugin, and the third pod requests a GPU through NRI.
    """
    load, ended = Load(fleet=fleet), threading.Event()
    creator = threading.Thread(target=_create_pods, args=(load, ended))
    with sampling(lambda: _sample(load), fleet.node.api.close, every_s=0.02):
        creator.start()
        try:
            yield load
        finally:
            ended.set()
            creator.join()


def _create_pods(load: Load, ended: threading.Event) -> None:
    api = load.fleet.node.api
    for number in count():
        while len(load.unfinished()) >= AT_ONCE and not ended.wait(0.05):
            pass
        by_plugin = number % 3 < 2
        name = f"{'plugin' if by_plugin else 'nri'}-{time.time_ns()}"
        fields: dict[str, Any] = {"script": BY_PLUGIN if by_plugin else BY_NRI, "nodeName": NODE}
        if by_plugin:
            fields["container"] = {"resources": {"limits": {GPU: "1"}}}
        env = () if by_plugin else ("NVIDIA_VISIBLE_DEVICES=3",)
        load.created[name] = time.time()
        api.create(pod_manifest(name, *env, namespace=NAMESPACE, **fields))
        # The last pod uses the plugin, and is created after the end of the context. Therefore a gap always
        # ends before the last pod.
        if ended.is_set() and by_plugin:
            break
        ended.wait(EVERY_S)
    api.close()


def _sample(load: Load) -> None:
    with suppress(OSError, ApiError):
        number = load.fleet.allocatable()
        if not load.allocatable or load.allocatable[-1][1] != number:
            load.allocatable.append((time.time(), number))


def _outcome(row: dict[str, Any], created_s: float) -> PodOutcome:
    status = row["status"]
    states = [each["state"] for each in status.get("containerStatuses", ())]
    codes = [state["terminated"]["exitCode"] for state in states if "terminated" in state]
    return PodOutcome(
        name=row["metadata"]["name"],
        created_s=created_s,
        phase=status["phase"],
        reason=status.get("reason", ""),
        exit_code=codes[0] if codes else None,
    )
