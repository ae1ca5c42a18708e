"""Who answers the kubelet for a resource: ``Desk``, and ``MemoryDesk`` where GPUs are shared by memory.

Called in the link's loop.
"""

from __future__ import annotations

import time

from cdigen.kubelet.answers import Refusal, allocate
from cdigen.kubelet.mps import mps_problem
from cdigen.kubelet.preferred import Preferences
from cdigen.kubelet.shares.desk import SharesDesk
from cdigen.kubelet.taken import Taken
from cdigen.kubelet.wire.server import Refused
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from cdigen.kubelet.answers import Answer, Policy
    from cdigen.kubelet.resources.memory import MemoryOffer
    from cdigen.kubelet.resources.model import Resource
    from cdigen.kubelet.shares.desk import Promises
    from cdigen.kubelet.taken import Host

    class Offering(Host, Protocol):
        """What is offered of the host."""

        def is_offered(self, name: str) -> bool:
            """Return whether a spec has the qualified CDI NAME."""

        def note(
            self, resource: str, ids: tuple[str, ...], answer: Answer | Refusal, duration_s: float
        ) -> None:
            """Note what became of a request."""


class Desk:
    """Answers the kubelet for RESOURCE by POLICY."""

    def __init__(self, resource: Resource, policy: Policy, offering: Offering, *, spread: bool) -> None:
        self.resource = resource
        self.policy = policy
        self._offering = offering
        self._preferences = Preferences(resource, spread=spread)
        self._taken = Taken(resource, offering)

    def prefer(
        self, available: tuple[str, ...], must_include: tuple[str, ...], count: int
    ) -> tuple[str, ...]:
        """Return the COUNT best ids of AVAILABLE, MUST_INCLUDE among them.

        What seems to be in use under another name is taken last, as the kubelet does not know of that.
        """
        if used := self._taken.suspected(available):
            free = tuple(one for one in available if one not in used or one in must_include)
            available = free if len(free) >= count else available
        return self._preferences.prefer(available, must_include, count)

    async def allocate(self, ids: tuple[str, ...]) -> Answer:
        """Return what a container with IDS gets; raises ``Refused``."""
        begun_s = time.perf_counter()
        held = await self._taken.held(ids)
        answer = allocate(
            self.resource, ids, as_of_now(self.policy), is_offered=self._offering.is_offered, held=held
        )
        self._offering.note(self.resource.name, ids, answer, time.perf_counter() - begun_s)
        if isinstance(answer, Refusal):
            raise Refused(answer.reason)
        return answer


class MemoryDesk:
    """Answers for the units of SHARES by POLICY, for pods that PROMISES knows; OFFERING notes it."""

    def __init__(self, shares: MemoryOffer, promises: Promises, policy: Policy, offering: Offering) -> None:
        self.resource = shares.resource
        self.policy = policy
        self._offering = offering
        self._taken = Taken(self.resource, offering)
        self._desk = SharesDesk(shares, promises, self._allocated)
        self.prefer = self._desk.prefer

    async def allocate(self, ids: tuple[str, ...]) -> Answer:
        """Return what a container with IDS gets; raises ``Refused``."""
        begun_s = time.perf_counter()
        held = await self._taken.held(ids)
        answer = self._allocated(ids, held) if held else await self._desk.allocate(ids)
        self._offering.note(self.resource.name, ids, answer, time.perf_counter() - begun_s)
        if isinstance(answer, Refusal):
            raise Refused(answer.reason)
        return answer

    def _allocated(self, ids: tuple[str, ...], held: Mapping[str, str] | None = None) -> Answer | Refusal:
        policy = as_of_now(self.policy)
        return allocate(self.resource, ids, policy, is_offered=self._offering.is_offered, held=held)


def as_of_now(policy: Policy) -> Policy:
    """Return POLICY with what MPS's control daemon is now."""
    mps = policy.mps
    return (
        policy if mps is None else replace(policy, mps=replace(mps, problem=mps_problem(mps.pipe_directory)))
    )
