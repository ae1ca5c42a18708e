"""The allocators of resources: ``ResourceAllocator``, and ``MemoryAllocator`` for GPU memory.

The asyncio loop of ``link`` calls both allocators.
"""

from __future__ import annotations

import asyncio
import time

from cdigen.gpushare import names
from cdigen.kubelet.allocation.container_response import AllocationRefusal, build_response
from cdigen.kubelet.allocation.mps import mps_problem
from cdigen.kubelet.allocation.preferred import Preferences
from cdigen.kubelet.allocation.units_in_use import UnitsInUse
from cdigen.kubelet.gpu_memory.assign import AllocationRefusedError, StaleAgentError
from cdigen.kubelet.resources.model import MEMORY
from cdigen.kubelet.wire.server import AllocateError
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from cdigen.kubelet.allocation.container_response import AllocationPolicy, ContainerResponse, IsInSpec
    from cdigen.kubelet.allocation.kubelet_view import KubeletView
    from cdigen.kubelet.gpu_memory.agent import Agent
    from cdigen.kubelet.gpu_memory.assign import Assignment
    from cdigen.kubelet.resources.memory import AdvertisedMemory, MemoryGpu
    from cdigen.kubelet.resources.model import Resource

# The value is "<device ordinal>=<size>", for the only device that the process can use
# (docs.nvidia.com/deploy/mps, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"). The limit is for each process, not for the
# container.
_MPS_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


@frozen
class AllocatorContext:
    """The host of an allocator.

    ``kubelet`` has the devices of containers. ``is_in_spec`` returns whether a spec has a qualified CDI name.
    ``record`` stores the result of a request, with the resource, the ids and the duration in seconds.
    """

    kubelet: KubeletView
    is_in_spec: IsInSpec
    record: Callable[[str, tuple[str, ...], ContainerResponse | AllocationRefusal, float], object]


class _Allocator:
    """Answers the kubelet's requests for RESOURCE according to POLICY."""

    def __init__(self, resource: Resource, policy: AllocationPolicy, context: AllocatorContext) -> None:
        self.resource = resource
        self.policy = policy
        self._context = context
        self._units_in_use = UnitsInUse(resource, context.kubelet)

    async def allocate(self, ids: tuple[str, ...]) -> ContainerResponse:
        """Return the response for a container with IDS, or raise ``AllocateError`` for a refusal."""
        begun_s = time.perf_counter()
        self._context.kubelet.requested_s = time.monotonic()
        in_use = await self._units_in_use.in_use(ids)
        answer = await self._answer(ids, in_use)
        self._context.record(self.resource.name, ids, answer, time.perf_counter() - begun_s)
        if isinstance(answer, AllocationRefusal):
            raise AllocateError(answer.reason)
        return answer

    async def _answer(
        self, ids: tuple[str, ...], in_use: Mapping[str, str]
    ) -> ContainerResponse | AllocationRefusal:
        policy, mps = self.policy, self.policy.mps
        if mps is not None:
            # The control daemon may start or end between two requests.
            policy = replace(policy, mps=replace(mps, problem=mps_problem(mps.pipe_directory)))
        return build_response(self.resource, ids, policy, is_in_spec=self._context.is_in_spec, in_use=in_use)


class ResourceAllocator(_Allocator):
    """The allocator of a resource whose units are devices or replicas (``Preferences`` explains SPREAD)."""

    def __init__(
        self, resource: Resource, policy: AllocationPolicy, context: AllocatorContext, *, spread: bool
    ) -> None:
        super().__init__(resource, policy, context)
        self._preferences = Preferences(resource, spread=spread)

    async def preferred_allocation(
        self, available: tuple[str, ...], must_include: tuple[str, ...], count: int
    ) -> tuple[str, ...]:
        """Return the COUNT best ids of AVAILABLE, including MUST_INCLUDE.

        Units that seem to be in use are chosen only if the other units are too few.
        """
        self._context.kubelet.requested_s = time.monotonic()
        available = self._units_in_use.unused(available, must_include, count)
        chosen = self._preferences.choose(available, must_include, count)
        self._units_in_use.note_preferred(chosen)
        return chosen


class MemoryAllocator(_Allocator):
    """Chooses and allocates the memory units of OFFER according to the reservations of pods.

    Each container gets units of one GPU. AGENT returns the present agent, or None.
    """

    def __init__(
        self,
        offer: AdvertisedMemory,
        agent: Callable[[], Agent | None],
        policy: AllocationPolicy,
        context: AllocatorContext,
    ) -> None:
        super().__init__(offer.resource, policy, context)
        self._unit_mib = offer.unit_mib
        self._gpus = {gpu.id: gpu for gpu in offer.gpus}
        self._agent = agent

    async def preferred_allocation(
        self, available: tuple[str, ...], must_include: tuple[str, ...], count: int
    ) -> tuple[str, ...]:
        """Return COUNT ids of AVAILABLE, including MUST_INCLUDE, all of one GPU if possible.

        Units that seem to be in use are chosen only if the other units of the GPU are too few.
        """
        self._context.kubelet.requested_s = time.monotonic()
        chosen = None
        if agent := self._agent():
            owners = self._by_gpu((*must_include, *available))
            must = self._by_gpu(must_include)
            free = {gpu.index: len(ids) for gpu, ids in owners.items()}
            preferred = agent.preferred_gpu(free, [gpu.index for gpu in must], count)
            chosen = await asyncio.wrap_future(preferred)
        unused = self._units_in_use.unused(available, must_include, count)
        best = (
            id_
            for ids in (unused, available)
            for gpu, own in self._by_gpu(ids).items()
            if gpu.index == chosen
            for id_ in own
        )
        first = tuple(dict.fromkeys((*must_include, *best, *unused, *available)))[: max(count, 0)]
        self._units_in_use.note_preferred(first)
        return first

    async def _answer(
        self, ids: tuple[str, ...], in_use: Mapping[str, str]
    ) -> ContainerResponse | AllocationRefusal:
        answer = await super()._answer(ids, in_use)
        if isinstance(answer, AllocationRefusal):
            return answer
        gpus = self._by_gpu(ids)
        if len(gpus) != 1:
            text = ", ".join(f"{len(units)} units of GPU {gpu.index}" for gpu, units in gpus.items())
            rule = "the units of a container must be of one GPU"
            reason = f"{self.resource.name}: {rule}, and the kubelet chose {text}"
            return AllocationRefusal(cause="multiple_gpus", reason=reason)
        (gpu,) = gpus
        try:
            assignment = await asyncio.wrap_future(assign(self._agent, gpu.index, frozenset(ids)))
        except AllocationRefusedError as refusal:
            agent = self._agent()
            problem = agent.problem if agent is not None else ""
            reason = f"{self.resource.name}: {refusal}" + (f" ({problem})" if problem else "")
            return AllocationRefusal(cause="no_reservation", reason=reason)
        added = _memory_variables(gpu, len(ids), assignment)
        # cdigen enforces no limit. MPS enforces this limit if a control daemon runs.
        limit = ((_MPS_LIMIT, f"0={len(ids) * self._unit_mib}M"),) if answer.folders else ()
        return replace(answer, variables=(*answer.variables, *added, *limit))

    def _by_gpu(self, ids: Iterable[str]) -> dict[MemoryGpu, list[str]]:
        """Return the different IDS by GPU."""
        owners: dict[MemoryGpu, list[str]] = {}
        for id_ in dict.fromkeys(ids):
            if gpu := self._gpus.get(id_.rpartition(MEMORY)[0]):
                owners.setdefault(gpu, []).append(id_)
        return owners


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


def _memory_variables(
    gpu: MemoryGpu, units: int, assignment: Assignment | None
) -> tuple[tuple[str, str], ...]:
    """Return gpushare's variables for a container with UNITS of GPU; ASSIGNMENT has the pod, or is None.

    A program that reads the variables can limit itself.
    """
    total = assignment.bound.pod.request.total if assignment else units
    return (
        (names.INDEX, str(gpu.index)),
        (names.OF_POD, str(total)),
        (names.OF_CONTAINER, str(units)),
        (names.OF_GPU, str(gpu.units)),
    )
