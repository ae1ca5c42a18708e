"""``SharedMemoryAllocator`` answers requests for GPU memory; each container gets units of one GPU."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Protocol

from cdigen.kubelet.container_response import AllocationRefusal
from cdigen.kubelet.gpu_memory.assign import AllocationRefusedError, StaleAgentError
from cdigen.kubelet.gpu_memory.environment import mps_limit, variables
from cdigen.kubelet.resources.memory import MARK
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cdigen.kubelet.container_response import ContainerResponse
    from cdigen.kubelet.gpu_memory.assign import Assignment
    from cdigen.kubelet.resources.memory import AdvertisedMemory, MemoryGpu


class ReservationSource(Protocol):
    """The reservations of pods (``Agent``)."""

    @property
    def problem(self) -> str:
        """The reason why the pod of a request cannot be identified now, or ""."""

    def preferred_gpu(self, free: Mapping[int, int], must: Sequence[int], count: int) -> Future[int | None]:
        """Return a future with the GPU for a container with COUNT units, or with None."""

    def assign(self, gpu: int, ids: frozenset[str]) -> Future[Assignment]:
        """Return a future with the container for the units IDS of GPU, or with ``AllocationRefusedError``."""


class LatestReservationSource:
    """Uses the source that CURRENT returns at the time of each call; None means that there is no source."""

    def __init__(self, current: Callable[[], ReservationSource | None]) -> None:
        self._current = current

    @property
    def problem(self) -> str:
        """The reason why the pod of a request cannot be identified now, or ""."""
        reservations = self._current()
        return reservations.problem if reservations is not None else ""

    def preferred_gpu(self, free: Mapping[int, int], must: Sequence[int], count: int) -> Future[int | None]:
        """Return a future with the GPU for a container with COUNT units, or with None."""
        if reservations := self._current():
            return reservations.preferred_gpu(free, must, count)
        none: Future[int | None] = Future()
        none.set_result(None)
        return none

    def assign(self, gpu: int, ids: frozenset[str]) -> Future[Assignment]:
        """Return a future with the container for the units IDS of GPU, or with ``AllocationRefusedError``."""
        while reservations := self._current():
            try:
                return reservations.assign(gpu, ids)
            except StaleAgentError:
                if reservations is self._current():
                    raise
        raise AllocationRefusedError("GPUs are no longer shared by memory")


class SharedMemoryAllocator:
    """Chooses and allocates units of OFFER according to the RESERVATIONS of pods.

    ALLOCATE returns the response for a container with ids, or the refusal. This response has no variables for
    memory units yet.
    """

    def __init__(
        self,
        offer: AdvertisedMemory,
        reservations: ReservationSource,
        allocate: Callable[[tuple[str, ...]], ContainerResponse | AllocationRefusal],
    ) -> None:
        self._offer = offer
        self._gpus = {gpu.id: gpu for gpu in offer.gpus}
        self._reservations = reservations
        self._allocate = allocate

    async def preferred_allocation(
        self, available: tuple[str, ...], must_include: tuple[str, ...], count: int
    ) -> tuple[str, ...]:
        """Return COUNT ids of AVAILABLE, including MUST_INCLUDE, all of one GPU if possible."""
        owners = self._by_gpu(dict.fromkeys((*must_include, *available)))
        must = self._by_gpu(must_include)
        free = {gpu.index: len(ids) for gpu, ids in owners.items()}
        preferred = self._reservations.preferred_gpu(free, [gpu.index for gpu in must], count)
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
            assignment = await asyncio.wrap_future(self._reservations.assign(gpu.index, frozenset(ids)))
        except AllocationRefusedError as refusal:
            problem = self._reservations.problem
            reason = f"{self._offer.resource.name}: {refusal}" + (f" ({problem})" if problem else "")
            return AllocationRefusal(cause="no_reservation", reason=reason)
        added = variables(gpu, len(ids), assignment)
        limit = (mps_limit(len(ids), self._offer.unit_mib),) if answer.folders else ()
        return replace(answer, variables=(*answer.variables, *added, *limit))

    def _by_gpu(self, ids: Sequence[str] | Mapping[str, None]) -> dict[MemoryGpu, list[str]]:
        owners: dict[MemoryGpu, list[str]] = {}
        for id_ in ids:
            if gpu := self._gpus.get(id_.rpartition(MARK)[0]):
                owners.setdefault(gpu, []).append(id_)
        return owners
