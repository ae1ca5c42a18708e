"""``MemorySharing``: the agent for the advertised memory units, and the stored sizes of the units."""

from __future__ import annotations

from cdigen.kubelet.allocation.policies import memory_not_advertised
from cdigen.model.errors import CdigenError, StoreError
from cdigen.model.findings import finding_of
from cdigen.store.records import unit_sizes
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.config import SharedMemory
    from cdigen.kubelet.gpu_memory.agent import Agent
    from cdigen.kubelet.pods import PodList
    from cdigen.kubelet.resources.memory import AdvertisedMemory
    from cdigen.kubelet.resources.resource_set import ResourceSet


class MemorySharing:
    """Passes the advertised memory units and the kubelet's lists of pods to ``agent``.

    MAKE_AGENT returns a started agent (``gpu_memory.agent``) for the settings SHARED, or None. STATE_DIR is
    the folder that stores the sizes of memory units, or "" to store no sizes.
    """

    def __init__(
        self, make_agent: Callable[[SharedMemory], Agent | None], shared: SharedMemory, state_dir: str
    ) -> None:
        self.agent = make_agent(shared)
        self.stored_sizes = unit_sizes.read(state_dir) if state_dir else {}
        self._make_agent = make_agent
        self._state_dir = state_dir
        self._problem = ""
        self._memory: AdvertisedMemory | None = None
        # The last list of pods with its monotonic time, and whether the agent has this list.
        self._last_list: tuple[PodList, float] | None = None
        self._has_agent_list = False

    def set_pods(self, found: PodList, listed_s: float) -> None:
        """Pass the list FOUND of the monotonic time LISTED_S to the agent."""
        self._last_list = found, listed_s
        if self.agent is not None:
            self.agent.set_pods(found, listed_s)

    def replace_agent(self, shared: SharedMemory) -> None:
        """Start an agent for the settings SHARED; requests use the former agent until then."""
        former, self._has_agent_list = self.agent, False
        try:
            made, self._problem = self._make_agent(shared), ""
        except CdigenError as error:
            made, self._problem = None, error.message
        if made is not None and self._memory is not None:
            self._advertise(made, self._memory)
        self.agent = made
        if former is not None:
            former.stop()

    def advertise(self, found: ResourceSet) -> ResourceSet:
        """Return FOUND and pass its memory to the agent; without an agent, the result has no memory units."""
        memory = self._memory = found.memory
        if memory is None:
            if self.agent is not None:
                self.agent.advertise(None)
            return found
        if self.agent is not None:
            self._advertise(self.agent, memory)
            return found
        resources = (replace(one, units=()) if one.is_memory else one for one in found.resources)
        finding = memory_not_advertised(memory.resource.name, self._problem)
        return replace(found, resources=tuple(resources), findings=(*found.findings, finding))

    def _advertise(self, agent: Agent, memory: AdvertisedMemory) -> None:
        agent.advertise(memory)
        if self._last_list is not None and not self._has_agent_list:
            agent.set_pods(*self._last_list)
        self._has_agent_list = True

    def store_sizes(self, found: ResourceSet, sizes: Mapping[str, int]) -> ResourceSet:
        """Store SIZES for later starts; return FOUND, plus a finding if that fails."""
        if not self._state_dir or sizes == self.stored_sizes:
            return found
        try:
            unit_sizes.save(self._state_dir, sizes)
        except StoreError as error:
            problem = finding_of(error, f"{self._state_dir}/{unit_sizes.FILE}")
            return replace(found, findings=(*found.findings, problem))
        self.stored_sizes = dict(sizes)
        return found

    def stop(self) -> None:
        """Stop the agent; do not wait for its threads."""
        if self.agent is not None:
            self.agent.stop()
