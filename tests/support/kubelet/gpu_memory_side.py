"""The plugin's agent and allocator for shared GPUs, with a double of kube-apiserver: `running_side`."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from support.kubelet.gpu_memory_world import NODE, POD, World
from support.kubelet.resources import card, listed, unit
from support.kubernetes.api_server import ApiServer
from support.kubernetes.gpu_memory_pods import RESOURCES
from support.waiting import PATIENCE_S, until

from cdigen.kubeapi.credentials import from_kubeconfig
from cdigen.kubelet.allocation.container_response import AllocationPolicy
from cdigen.kubelet.allocation.journal import AllocationJournal
from cdigen.kubelet.allocation.kubelet_view import KubeletView
from cdigen.kubelet.allocators import AllocatorContext, MemoryAllocator
from cdigen.kubelet.gpu_memory.agent import Agent, RequestLimits
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.resources.memory import AdvertisedMemory, MemoryGpu, unit_id
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.wire.server import AllocateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cdigen.kubelet.allocation.container_response import AllocationRefusal, ContainerResponse

SIZES = (4, 6)
IDS = [(index, unit_id(f"GPU-{index}", number)) for index in (0, 1) for number in range(SIZES[index])]
OFFER = AdvertisedMemory(
    resource=Resource(
        name=RESOURCES.memory,
        units=tuple(unit(card(index), replica=0, id=id_, cdi_names=(id_,)) for index, id_ in IDS),
        is_memory=True,
    ),
    unit_mib=1024,
    gpus=tuple(
        MemoryGpu(index=index, id=f"GPU-{index}", uuid=f"GPU-{index}", units=units, is_healthy=True)
        for index, units in enumerate(SIZES)
    ),
)


# Time limits that are longer than a busy machine needs.
PATIENT = RequestLimits(assign_s=PATIENCE_S, request_s=PATIENCE_S, pod_list_s=PATIENCE_S)


class Side:
    """The plugin's agent and allocator for the node in WORLD, with a real client of SERVER."""

    def __init__(
        self,
        world: World,
        server: ApiServer,
        folder: Path,
        namespace: str = "kube-system",
        limits: RequestLimits = PATIENT,
    ) -> None:
        self.world, self.server = world, server
        self.logged: list[str] = []
        api = from_kubeconfig(str(server.kubeconfig(folder / "kubeconfig")))
        self.agent = Agent(api, NODE, namespace, RESOURCES, self.logged.append, limits=limits)
        self.agent.advertise(OFFER)
        self.agent.start()
        self.agent.set_pods(listed(), time.monotonic())
        self._answers: list[ContainerResponse | AllocationRefusal] = []
        context = AllocatorContext(
            kubelet=KubeletView(AllocationJournal(), lambda _list, _at_s: None),
            is_in_spec=lambda _: True,
            record=lambda _resource, _ids, answer, _s: self._answers.append(answer),
        )
        self.allocator = MemoryAllocator(OFFER, lambda: self.agent, AllocationPolicy(), context)
        wait(lambda: not self.agent.problem)

    def allocate(self, gpu: int, units: int, first: int = 0) -> ContainerResponse | AllocationRefusal:
        ids = tuple(unit_id(f"GPU-{gpu}", first + number) for number in range(units))
        return self.request(*ids)

    def request(self, *ids: str) -> ContainerResponse | AllocationRefusal:
        with suppress(AllocateError):
            asyncio.run(self.allocator.allocate(ids))
        return self._answers.pop()

    def list_pod(self, pod: str, *ids: str) -> None:
        """Give the agent a kubelet's list in which only the first container of POD has IDS."""
        has = PodDevices(namespace="default", pod=pod, container="c0", resource=RESOURCES.memory, ids=ids)
        self.agent.set_pods(listed(has), time.monotonic() + 1.0)

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.world.cluster.objects[POD + name]["metadata"]["annotations"]
        return found


@contextmanager
def running_side(folder: Path, **options: Any) -> Iterator[Side]:
    """Run the agent of a node with GPUs of SIZES until the body ends; the agent's files are in FOLDER."""
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
