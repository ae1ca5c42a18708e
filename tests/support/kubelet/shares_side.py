"""Our side of a node with an API server: `running_side`, `bound`, `wait`."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from support.kubelet.resources import listed
from support.kubelet.shares_world import NODE, POD, World
from support.kubernetes.api_server import ApiServer
from support.kubernetes.shared_pods import RESOURCES
from support.waiting import PATIENCE_S, until

from cdigen.kubeapi.credentials import from_kubeconfig
from cdigen.kubelet.answers import Answer, Refusal
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.resources.memory import MemoryGpu, MemoryOffer, unit_id
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.shares.agent import Agent, Limits
from cdigen.kubelet.shares.desk import SharesDesk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SIZES = (4, 6)
OFFER = MemoryOffer(
    resource=Resource(name=RESOURCES.memory, units=()),
    unit_mib=1024,
    gpus=tuple(
        MemoryGpu(index=index, id=f"GPU-{index}", uuid=f"GPU-{index}", units=units, is_healthy=True)
        for index, units in enumerate(SIZES)
    ),
)


# Longer than a busy machine takes.
PATIENT = Limits(settle_s=PATIENCE_S, request_s=PATIENCE_S, told_s=PATIENCE_S)


class Side:
    """Our side of a node in WORLD, with a real client of SERVER."""

    def __init__(
        self,
        world: World,
        server: ApiServer,
        folder: Path,
        namespace: str = "kube-system",
        limits: Limits = PATIENT,
    ) -> None:
        self.world, self.server = world, server
        self.said: list[str] = []
        api = from_kubeconfig(str(server.kubeconfig(folder / "kubeconfig")))
        self.agent = Agent(api, NODE, namespace, RESOURCES, self.said.append, limits=limits)
        self.agent.show(OFFER)
        self.agent.start()
        self.agent.told(listed(), time.monotonic())
        self.desk = SharesDesk(OFFER, self.agent, lambda ids: Answer(names=tuple(ids)))
        wait(lambda: not self.agent.problem)

    def allocate(self, gpu: int, units: int, first: int = 0) -> Answer | Refusal:
        ids = tuple(unit_id(f"GPU-{gpu}", first + number) for number in range(units))
        return asyncio.run(self.desk.allocate(ids))

    def told(self, pod: str, *ids: str) -> None:
        """Let the kubelet say that the first container of POD, and no other, has IDS."""
        has = PodDevices(namespace="default", pod=pod, container="c0", resource=RESOURCES.memory, ids=ids)
        self.agent.told(listed(has), time.monotonic() + 1.0)

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.world.cluster.objects[POD + name]["metadata"]["annotations"]
        return found


@contextmanager
def running_side(folder: Path, **options: Any) -> Iterator[Side]:
    """Run the plugin's side of a node with GPUs of SIZES, with files in FOLDER, until the body ends."""
    world = World(SIZES)
    with ApiServer(world.cluster) as server:
        made = Side(world, server, folder, **options)
        try:
            yield made
        finally:
            made.agent.stop()


def wait(what: Callable[[], object]) -> None:
    assert until(what)


def bound(side: Side, *units: int, early: int = 0) -> str:
    name = ""

    def create(_: object) -> None:
        nonlocal name
        name = side.world.create(*units, early=early)

    side.server.change(create)
    return name
