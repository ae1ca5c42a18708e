"""Pods made all the while that a node's daemon and plugins change: `loading`, and what became of them.

They are bound to the node as they are made: a scheduler would hide from the kubelet what this refuses.
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
# So many are on their way at most: more than there are GPUs would be refused for want of them.
AT_ONCE = 3
ENDED = {"Succeeded", "Failed"}
# A container that has not what it asked for ends with this.
WITHOUT = 7
BY_PLUGIN = f"set -- /dev/nvidia[0-9]*; [ -e $1 ] && [ $# = 1 ] && [ -e /dev/nvidiactl ] || exit {WITHOUT}"
BY_NRI = f"set -- /dev/nvidia[0-9]*; [ $# = 1 ] && [ $1 = /dev/nvidia3 ] || exit {WITHOUT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of a pod: when it was made (Unix time), its phase, and why it was refused."""

    name: str
    made_s: float
    phase: str
    reason: str
    exit_code: int | None


@dataclass(kw_only=True)
class Load:
    """What was made and seen. ``allocatable``: each other number that the API server knew, and since when."""

    fleet: Fleet
    made: dict[str, float] = field(default_factory=dict)
    allocatable: list[tuple[float, int]] = field(default_factory=list)

    def fates(self) -> list[Fate]:
        """Wait until all pods have ended, and return what became of them, in their order."""
        rows = eventually(self._ended, "the pods have ended", told=self.fleet.told)
        return [_fate(rows[name], made_s) for name, made_s in self.made.items()]

    def _ended(self) -> dict[str, Any] | None:
        rows = self.fleet.node.pods(NAMESPACE)
        phases = {rows[name]["status"]["phase"] for name in self.made}
        return rows if phases <= ENDED else None

    def on_their_way(self) -> list[str]:
        """Return which pods have not ended."""
        rows = self.fleet.node.pods(NAMESPACE)
        return [name for name, row in rows.items() if row["status"]["phase"] not in ENDED]

    def api_gap_s(self, right: int) -> float:
        """Return for how long the API server knew another number than RIGHT, in all."""
        ends = [at_s for at_s, _ in self.allocatable[1:]] + [time.time()]
        rows = zip(self.allocatable, ends, strict=True)
        return sum(end_s - at_s for (at_s, number), end_s in rows if number != right)


def refused(fates: list[Fate]) -> list[Fate]:
    """Return those that the kubelet refused."""
    return [fate for fate in fates if fate.phase == "Failed" and fate.exit_code is None]


def gap_s(fates: list[Fate]) -> float:
    """Return the most for which the kubelet had no devices: from the last pod before to the first after."""
    asked = [fate for fate in fates if fate.name.startswith("plugin")]
    gone = [place for place, fate in enumerate(asked) if fate in refused(asked)]
    return asked[gone[-1] + 1].made_s - asked[gone[0] - 1].made_s if gone else 0.0


def is_one_gap(fates: list[Fate]) -> bool:
    """Return whether all for whom there were no devices came one after the other, and others after them."""
    asked = [fate for fate in fates if fate.name.startswith("plugin") and not fate.reason.startswith("OutOf")]
    gone = [place for place, fate in enumerate(asked) if fate in refused(asked)]
    return not gone or (gone[-1] - gone[0] + 1 == len(gone) and gone[-1] + 1 < len(asked))


def reasons(fates: list[Fate]) -> dict[str, int]:
    """Return how many the kubelet refused, by its reasons."""
    return dict(Counter(fate.reason for fate in refused(fates)))


@contextmanager
def loading(fleet: Fleet) -> Iterator[Load]:
    """Make pods until the context ends, each other one by the plugin and by NRI, and ask the API server."""
    load, ended = Load(fleet=fleet), threading.Event()
    maker = threading.Thread(target=_make, args=(load, ended))
    with sampling(lambda: _look(load), fleet.node.api.close, every_s=0.02):
        maker.start()
        try:
            yield load
        finally:
            ended.set()
            maker.join()


def _make(load: Load, ended: threading.Event) -> None:
    api = load.fleet.node.api
    for number in count():
        while len(load.on_their_way()) >= AT_ONCE and not ended.wait(0.05):
            pass
        by_plugin = number % 3 < 2
        name = f"{'plugin' if by_plugin else 'nri'}-{time.time_ns()}"
        fields: dict[str, Any] = {"script": BY_PLUGIN if by_plugin else BY_NRI, "nodeName": NODE}
        if by_plugin:
            fields["container"] = {"resources": {"limits": {GPU: "1"}}}
        env = () if by_plugin else ("NVIDIA_VISIBLE_DEVICES=3",)
        load.made[name] = time.time()
        api.create(pod_manifest(name, *env, namespace=NAMESPACE, **fields))
        # The last pod is made by the plugin, after the context has ended: it shows the end of a gap.
        if ended.is_set() and by_plugin:
            break
        ended.wait(EVERY_S)
    api.close()


def _look(load: Load) -> None:
    with suppress(OSError, ApiError):
        number = load.fleet.allocatable()
        if not load.allocatable or load.allocatable[-1][1] != number:
            load.allocatable.append((time.time(), number))


def _fate(row: dict[str, Any], made_s: float) -> Fate:
    status = row["status"]
    states = [each["state"] for each in status.get("containerStatuses", ())]
    codes = [state["terminated"]["exitCode"] for state in states if "terminated" in state]
    return Fate(
        name=row["metadata"]["name"],
        made_s=made_s,
        phase=status["phase"],
        reason=status.get("reason", ""),
        exit_code=codes[0] if codes else None,
    )
