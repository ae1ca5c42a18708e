"""The allocators of resources: ``ResourceAllocator``, and ``MemoryAllocator`` for GPU memory.

The asyncio loop of ``link`` calls both allocators.
"""

from __future__ import annotations

import time

from cdigen.kubelet.allocation.container_response import AllocationRefusal, build_response
from cdigen.kubelet.allocation.mps import mps_problem
from cdigen.kubelet.allocation.preferred import Preferences
from cdigen.kubelet.allocation.used_elsewhere import UsedElsewhere
from cdigen.kubelet.gpu_memory.allocator import SharedMemoryAllocator
from cdigen.kubelet.wire.server import AllocateError
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.kubelet.allocation.container_response import AllocationPolicy, ContainerResponse, IsInSpec
    from cdigen.kubelet.allocation.kubelet_view import KubeletView
    from cdigen.kubelet.gpu_memory.agent import Agent
    from cdigen.kubelet.resources.memory import AdvertisedMemory
    from cdigen.kubelet.resources.model import Resource


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
        self._used_elsewhere = UsedElsewhere(resource, context.kubelet)

    async def allocate(self, ids: tuple[str, ...]) -> ContainerResponse:
        """Return the response for a container with IDS, or raise ``AllocateError`` for a refusal."""
        begun_s = time.perf_counter()
        in_use = await self._used_elsewhere.in_use(ids)
        answer = await self._answer(ids, in_use)
        self._context.record(self.resource.name, ids, answer, time.perf_counter() - begun_s)
        if isinstance(answer, AllocationRefusal):
            raise AllocateError(answer.reason)
        return answer

    async def _answer(
        self, ids: tuple[str, ...], in_use: Mapping[str, str]
    ) -> ContainerResponse | AllocationRefusal:
        return self._response(ids, in_use)

    def _response(
        self, ids: tuple[str, ...], in_use: Mapping[str, str] | None = None
    ) -> ContainerResponse | AllocationRefusal:
        policy, mps = self.policy, self.policy.mps
        if mps is not None:
            # The control daemon may have started or ended since the policy was made.
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

        Devices that seem to be in use under another resource name are chosen only if the other devices are
        too few. The kubelet does not track such use.
        """
        if used := self._used_elsewhere.suspected(available):
            free = tuple(one for one in available if one not in used or one in must_include)
            available = free if len(free) >= count else available
        return self._preferences.choose(available, must_include, count)


class MemoryAllocator(_Allocator):
    """The allocator of the memory units of ADVERTISED, according to the present AGENT."""

    def __init__(
        self,
        advertised: AdvertisedMemory,
        agent: Callable[[], Agent | None],
        policy: AllocationPolicy,
        context: AllocatorContext,
    ) -> None:
        super().__init__(advertised.resource, policy, context)
        self._memory = SharedMemoryAllocator(advertised, agent, self._response)
        self.preferred_allocation = self._memory.preferred_allocation

    async def _answer(
        self, ids: tuple[str, ...], in_use: Mapping[str, str]
    ) -> ContainerResponse | AllocationRefusal:
        return self._response(ids, in_use) if in_use else await self._memory.allocate(ids)
