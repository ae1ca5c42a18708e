"""``SharesDesk`` answers the kubelet for GPUs' memory: units of one GPU, for a pod that asks for them."""

from __future__ import annotations

import asyncio
from typing import Protocol

from cdigen.kubelet.answers import Refusal
from cdigen.kubelet.resources.memory import MARK
from cdigen.kubelet.shares.answer import mps_limit, variables
from cdigen.kubelet.shares.settling import ReplacedError, ShareRefused
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from cdigen.kubelet.answers import Answer
    from cdigen.kubelet.resources.memory import MemoryGpu, MemoryOffer
    from cdigen.kubelet.shares.settling import Settled


class Promises(Protocol):
    """Who knows what pods were promised (``Agent``)."""

    @property
    def problem(self) -> str:
        """Why pods cannot be told apart now, "" if they can."""

    def prefer(self, free: Mapping[int, int], must: Sequence[int], count: int) -> int | None:
        """Return the GPU of which a container should get COUNT units."""

    def settle(self, gpu: int, ids: frozenset[str]) -> Future[Settled]:
        """Return for whom the units IDS of GPU are, one after another; ``ShareRefused``: for nobody."""


class LatestPromises:
    """The promises of CURRENT, who knows them now, None: nobody does any more."""

    def __init__(self, current: Callable[[], Promises | None]) -> None:
        self._current = current

    @property
    def problem(self) -> str:
        """Why pods cannot be told apart now, "" if they can."""
        promises = self._current()
        return promises.problem if promises is not None else ""

    def prefer(self, free: Mapping[int, int], must: Sequence[int], count: int) -> int | None:
        """Return the GPU of which a container should get COUNT units."""
        promises = self._current()
        return promises.prefer(free, must, count) if promises is not None else None

    def settle(self, gpu: int, ids: frozenset[str]) -> Future[Settled]:
        """Return for whom the units IDS of GPU are, whoever knows it by now. ``ShareRefused``: nobody."""
        while promises := self._current():
            try:
                return promises.settle(gpu, ids)
            except ReplacedError:
                if promises is self._current():
                    raise
        raise ShareRefused("nobody tells any more which pods ask for it")


class SharesDesk:
    """Prefers and allocates units of OFFER, for pods that PROMISES knows.

    ALLOCATE returns what a container with ids gets of the GPU itself, or why it gets nothing.
    """

    def __init__(
        self, offer: MemoryOffer, promises: Promises, allocate: Callable[[tuple[str, ...]], Answer | Refusal]
    ) -> None:
        self._offer = offer
        self._gpus = {gpu.id: gpu for gpu in offer.gpus}
        self._promises = promises
        self._allocate = allocate

    def prefer(
        self, available: tuple[str, ...], must_include: tuple[str, ...], count: int
    ) -> tuple[str, ...]:
        """Return COUNT ids of AVAILABLE, of one GPU if one has so many, MUST_INCLUDE among them."""
        owners = self._by_gpu(dict.fromkeys((*must_include, *available)))
        must = self._by_gpu(must_include)
        free = {gpu.index: len(ids) for gpu, ids in owners.items()}
        chosen = self._promises.prefer(free, [gpu.index for gpu in must], count)
        ids = next((ids for gpu, ids in owners.items() if gpu.index == chosen), [])
        return tuple(dict.fromkeys((*must_include, *ids, *available)))[: max(count, 0)]

    async def allocate(self, ids: tuple[str, ...]) -> Answer | Refusal:
        """Return what the container with IDS gets; it is of no other GPU than theirs."""
        answer = self._allocate(ids)
        if isinstance(answer, Refusal):
            return answer
        gpus = self._by_gpu(ids)
        if len(gpus) != 1:
            text = ", ".join(f"{len(of)} units of GPU {gpu.index}" for gpu, of in gpus.items())
            reason = f"{self._offer.resource.name}: a container has one GPU, and the kubelet chose {text}"
            return Refusal(cause="several_gpus", reason=reason)
        (gpu,) = gpus
        try:
            settled = await asyncio.wrap_future(self._promises.settle(gpu.index, frozenset(ids)))
        except ShareRefused as refusal:
            problem = self._promises.problem
            reason = f"{self._offer.resource.name}: {refusal}" + (f" ({problem})" if problem else "")
            return Refusal(cause="no_claim", reason=reason)
        given = variables(gpu, len(ids), settled)
        limit = (mps_limit(len(ids), self._offer.unit_mib),) if answer.folders else ()
        return replace(answer, variables=(*answer.variables, *given, *limit))

    def _by_gpu(self, ids: Sequence[str] | Mapping[str, None]) -> dict[MemoryGpu, list[str]]:
        owners: dict[MemoryGpu, list[str]] = {}
        for id_ in ids:
            if gpu := self._gpus.get(id_.rpartition(MARK)[0]):
                owners.setdefault(gpu, []).append(id_)
        return owners
