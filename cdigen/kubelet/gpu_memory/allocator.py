"""``SharedMemoryAllocator`` answers requests for GPU memory; each container gets units of one GPU."""

from __future__ import annotations

import asyncio

from cdigen.kubelet.allocation.container_response import AllocationRefusal
from cdigen.kubelet.gpu_memory.assign import AllocationRefusedError, StaleAgentError
from cdigen.kubelet.gpu_memory.environment import mps_limit, variables
from cdigen.kubelet.resources.model import MEMORY
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from cdigen.kubelet.allocation.container_response import ContainerResponse
    from cdigen.kubelet.gpu_memory.agent import Agent
    from cdigen.kubelet.gpu_memory.assign import Assignment
    from cdigen.kubelet.resources.memory import AdvertisedMemory, MemoryGpu


def assign(current: Callable[[], Agent | None], gpu: int, ids: frozenset[str]) -> Future[Assignment]:
    """Return a future with the container for the units IDS of GPU, or with ``AllocationRefusedError``.

    CURRENT returns the agent at the time of its call; None means that no GPU is shared by memory.
    """
    while agent := current():
        try:
            return agent.assign(gpu, ids)
        except StaleAgentError:
            if agent is current():
                raise
    raise AllocationRefusedError("GPUs are no longer shared by memory")


class SharedMemoryAllocator:
    """Chooses and allocates units of OFFER according to the reservations of pods.

    AGENT returns the present agent, or None. ALLOCATE returns the response for a container with ids, or the
    refusal. This response has no variables for memory units yet.
    """

    def __init__(
        self,
        offer: AdvertisedMemory,
        agent: Callable[[], Agent | None],
        allocate: Callable[[tuple[str, ...]], ContainerResponse | AllocationRefusal],
    ) -> None:
        self._offer = offer
        self._gpus = {gpu.id: gpu for gpu in offer.gpus}
        self._agent = agent
        self._allocate = allocate

    async def preferred_allocation(
        self, available: tuple[str, ...], must_include: tuple[str, ...], count: int
    ) -> tuple[str, ...]:
        """Return COUNT ids of AVAILABLE, including MUST_INCLUDE, all of one GPU if possible."""
        owners = self._by_gpu(dict.fromkeys((*must_include, *available)))
        must = self._by_gpu(must_include)
        free = {gpu.index: len(ids) for gpu, ids in owners.items()}
        chosen = None
        if agent := self._agent():
            preferred = agent.preferred_gpu(free, [gpu.index for gpu in must], count)
            chosen = await asyncio.wrap_future(preferred)
        ids = next((ids for gpu, ids in owners.items() if gpu.index == chosen), [])
        return tuple(dict.fromkeys((*must_include, *ids, *available)))[: max(count, 0)]

    async def allocate(self, ids: tuple[str, ...]) -> ContainerResponse | AllocationRefusal:
        """Return the response for a container with IDS, which must be of one GPU, or the refusal."""
        answer = self._allocate(ids)
        if isinstance(answer, AllocationRefusal):
            return answer
        gpus = self._by_gpu(ids)
        if len(gpus) != 1:
            text = ", ".join(f"{len(units)} units of GPU {gpu.index}" for gpu, units in gpus.items())
            rule = "the units of a container must be of one GPU"
            reason = f"{self._offer.resource.name}: {rule}, and the kubelet chose {text}"
            return AllocationRefusal(cause="multiple_gpus", reason=reason)
        (gpu,) = gpus
        try:
            assignment = await asyncio.wrap_future(assign(self._agent, gpu.index, frozenset(ids)))
        except AllocationRefusedError as refusal:
            agent = self._agent()
            problem = agent.problem if agent is not None else ""
            reason = f"{self._offer.resource.name}: {refusal}" + (f" ({problem})" if problem else "")
            return AllocationRefusal(cause="no_reservation", reason=reason)
        added = variables(gpu, len(ids), assignment)
        limit = (mps_limit(len(ids), self._offer.unit_mib),) if answer.folders else ()
        return replace(answer, variables=(*answer.variables, *added, *limit))

    def _by_gpu(self, ids: Sequence[str] | Mapping[str, None]) -> dict[MemoryGpu, list[str]]:
        owners: dict[MemoryGpu, list[str]] = {}
        for id_ in ids:
            if gpu := self._gpus.get(id_.rpartition(MEMORY)[0]):
                owners.setdefault(gpu, []).append(id_)
        return owners
