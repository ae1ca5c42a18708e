"""``AdvertisedResources``: the resources of the host, each with its allocator (``allocators``).

Three threads use the class. The main thread passes each new state of the host to ``resources`` and requests
the status. The HTTP thread requests metrics. The link's thread calls the allocators. The class has no lock.
So each thread replaces a shared value as a whole, or adds or removes single items.
"""

from __future__ import annotations

import time
from collections import deque

from cdigen.kubelet.allocation_modes import AllocationModes, key_of
from cdigen.kubelet.allocators import MemoryAllocator, ResourceAllocator
from cdigen.kubelet.container_response import AllocationRefusal
from cdigen.kubelet.counts import AllocationCounts
from cdigen.kubelet.gpu_memory.allocator import LatestReservationSource
from cdigen.kubelet.journal import Allocation
from cdigen.kubelet.labels.node_labels import NodeResources, node_labels
from cdigen.kubelet.mps import mps_problem
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.policies import memory_not_advertised, missing_families, policy_of, unknown_vendor
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.resources.resource_set import ResourceSet, advertise
from cdigen.kubelet.status import MAX_JOURNAL, KubeletPluginStatus, RegisteredResource, document
from cdigen.kubelet.wire.clients import KubeletError
from cdigen.model.errors import CdigenError, StoreError
from cdigen.model.findings import Finding, finding_of
from cdigen.service.host_state import running_drivers
from cdigen.store import unit_sizes
from cdigen.value import replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from typing import Any

    from cdigen.config import KubeletConfig, SharedMemory
    from cdigen.kubelet.allocation_modes import Key
    from cdigen.kubelet.container_response import AllocationPolicy, ContainerResponse
    from cdigen.kubelet.gpu_memory.agent import Agent
    from cdigen.kubelet.labels.label_file import LabelState
    from cdigen.kubelet.labels.label_values import Label
    from cdigen.kubelet.listing import ResourceStatus
    from cdigen.kubelet.plugin_config import KubeletPluginConfig
    from cdigen.kubelet.pods import PodList
    from cdigen.kubelet.resources.memory import AdvertisedMemory
    from cdigen.kubelet.wire.server import Allocator
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile
    from cdigen.service.host_state import HostState
    from cdigen.service.status import ServiceProcess

    # Returns the pods of the kubelet; the argument is the timeout in seconds.
    ListPods = Callable[[float], Awaitable[PodList]]

# ``new_allocations`` yields at most this number of allocations.
_MAX_NEW = 1_000
# The kubelet's list of pods may lack an allocation for this time after the response.
_RECENT_S = 1.0


class AdvertisedResources:
    """The resources of the host according to SETTINGS and PROFILES, and the record of allocations.

    ``pods`` are the devices of containers, or None if the kubelet returned no list. ``last_known_pods`` are
    the devices in the last list. MAKE_AGENT returns a started agent (``gpu_memory.agent``), or None.
    STATE_DIR is the folder that stores the sizes of memory units, or "" to store no sizes.
    """

    def __init__(
        self,
        settings: KubeletConfig,
        profiles: tuple[Profile, ...],
        kubelet_dir: str,
        *,
        make_agent: Callable[[SharedMemory], Agent | None] = lambda _: None,
        state_dir: str = "",
    ) -> None:
        self.pods: tuple[PodDevices, ...] | None = None
        self.counts = AllocationCounts()
        self._make_agent = make_agent
        self._agent = make_agent(settings.shared_memory)
        self._agent_problem = ""
        self._state_dir = state_dir
        self._saved_sizes = unit_sizes.read(state_dir) if state_dir else {}
        self._modes = AllocationModes(self._saved_sizes)
        # The resources of the host, before ``AllocationModes`` marks units as unhealthy.
        self._unrestricted = ResourceSet()
        self._key: Key = frozenset()
        self._keyed_pods: tuple[PodDevices, ...] | None = None
        self._settings = settings
        self._profiles = profiles
        self._kubelet_dir = kubelet_dir
        self._started_s = time.time()
        self._list_pods: ListPods = _no_kubelet_yet
        self._on_allocate: Callable[[], object] = lambda: None
        self._last_list: PodList | None = None
        # Whether the last list had no pod.
        self._is_empty = False
        # The Unix time and the monotonic time of the last list, and whether the agent has this list.
        self._listed_s = self._listed_monotonic_s = 0.0
        self._has_agent_list = False
        self._host: HostState | None = None
        self._advertised = ResourceSet()
        # The names of all resources since the last change of the configuration.
        self._names: dict[str, None] = {}
        self._problem = ""
        self._problems: tuple[Finding, ...] = ()
        self._stale: tuple[str, ...] = ()
        self._journal: deque[Allocation] = deque(maxlen=MAX_JOURNAL)
        self._new_allocations: deque[Allocation] = deque(maxlen=_MAX_NEW)
        self._registered: tuple[RegisteredResource, ...] = ()
        self._machine = ""
        # The inventories by vendor, or None if unknown.
        self._vendors: dict[str, Inventory] | None = None
        # The labels of the node, or None before the next call of ``labels``.
        self._labels: tuple[Label, ...] | None = None
        self._label_state: LabelState | None = None

    def connect(self, list_pods: ListPods, on_allocate: Callable[[], object]) -> None:
        """Set LIST_PODS, which runs in the link's loop, and ON_ALLOCATE, which runs after each request."""
        self._list_pods, self._on_allocate = list_pods, on_allocate

    def configure(self, config: KubeletPluginConfig, problems: tuple[Finding, ...]) -> None:
        """Use CONFIG from the next call of ``resources``; PROBLEMS are the findings on the configuration."""
        if (self._settings, self._profiles) != (config.settings, config.profiles):
            before, self._settings = self._settings, config.settings
            self._profiles, self._names = config.profiles, {}
            if _agent_settings(before) != _agent_settings(config.settings):
                self._replace_agent()
        self._problem, self._problems = config.problem, problems
        self._machine = config.machine

    def is_in_spec(self, name: str) -> bool:
        """Return whether a spec has the qualified CDI NAME."""
        host = self._host
        return host is not None and host.specs.file(name) is not None

    def resources(self, host: HostState) -> tuple[tuple[Resource, Allocator], ...] | None:
        """Return the resources of HOST with their allocators, or None to keep the present resources.

        If the inventory cannot be read, the result is None. A resource that has lost its devices, for example
        in a driver upgrade, is in the result without units. So the resource stays registered with 0 units.
        """
        self._host = host
        inventory = host.inventory
        stale = [inventory.problem] if inventory.problem else inventory.stale.values()
        self._stale = tuple(dict.fromkeys(stale))
        if self._problem:
            self._advertised, self._vendors = ResourceSet(), None
            return ()
        if inventory.problem:
            return None
        # The daemon may have a vendor package that this process lacks. Such a vendor gets a finding.
        vendors = {name: one for name, one in inventory.vendors.items() if name in registry.NAMES}
        found = advertise(vendors, self._profiles, self.is_in_spec, self._settings)
        self._unrestricted, self._keyed_pods = found, self.last_known_pods
        self._key = key_of(found, self._keyed_pods or ())
        found = self._save_sizes(self._with_memory(self._modes.apply(found, self._keyed_pods)))
        self._names |= dict.fromkeys(one.name for one in found.resources)
        now = {one.name for one in found.resources}
        empty = [Resource(name=name, units=()) for name in self._names if name not in now]
        self._advertised = replace(found, resources=(*found.resources, *empty))
        policies = {one.name: self._policy(one, vendors) for one in self._advertised.resources}
        allocators = tuple(
            (one, self._allocator(one, policies[one.name])) for one in self._advertised.resources
        )
        missing = missing_families(policies.values(), self.is_in_spec)
        unknown = tuple(unknown_vendor(name) for name in inventory.vendors if name not in vendors)
        self._advertised = replace(self._advertised, findings=(*found.findings, *missing, *unknown))
        self._vendors, self._labels = vendors, None
        return allocators

    def has_changed(self) -> bool:
        """Return whether a change of the pods changes the result of ``resources``."""
        last_known_pods = self.last_known_pods
        if last_known_pods is self._keyed_pods:
            return False
        before, self._keyed_pods = self._keyed_pods, last_known_pods
        is_first = before is None and self._unrestricted.memory is not None
        return is_first or key_of(self._unrestricted, last_known_pods or ()) != self._key

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings on the host's devices and specs, as of the last call of ``resources``."""
        return (*self._advertised.findings, *(self._host.specs.problems if self._host else ()))

    def stale(self) -> tuple[str, ...]:
        """Return the reasons why the last known state of the host is used, or () if the state is current."""
        return self._stale

    @property
    def last_known_pods(self) -> tuple[PodDevices, ...] | None:
        """The devices of containers in the kubelet's last list, or None before the first list."""
        return self._last_list.devices if self._last_list is not None else None

    @property
    def has_pod_list(self) -> bool:
        """Whether the kubelet has returned a list of pods, and the latest list is not empty."""
        return self._last_list is not None and not self._is_empty

    def set_pods(self, found: PodList | None) -> None:
        """Set the kubelet's list of pods, or None if the kubelet returned no list.

        A list without pods comes from a kubelet that has just started, or from a node without pods. So
        cdigen uses an empty list only if the previous list was also empty.
        """
        self.pods = found.devices if found is not None else None
        if found is None:
            return
        was_empty, self._is_empty = self._is_empty, not found.names
        if self._is_empty and not was_empty:
            return
        self._last_list, self._listed_s, self._listed_monotonic_s = found, time.time(), time.monotonic()
        if self._agent is not None:
            self._agent.set_pods(found, self._listed_monotonic_s)

    async def list_pods(self, timeout_s: float) -> tuple[PodDevices, ...]:
        """Return the devices of containers, or raise ``KubeletError`` if no list arrives in TIMEOUT_S."""
        found = await self._list_pods(timeout_s)
        self.set_pods(found)
        return found.devices

    def recent_allocations(self) -> Iterator[PodDevices]:
        """Yield the recent allocations that ``last_known_pods`` may lack, with empty names of pods."""
        for one in self._journal:
            if one.at_s >= self._listed_s - _RECENT_S and not one.cause:
                yield PodDevices(namespace="", pod="", container="", resource=one.resource, ids=one.ids)

    def record(
        self,
        resource: str,
        ids: tuple[str, ...],
        answer: ContainerResponse | AllocationRefusal,
        duration_s: float,
    ) -> None:
        """Add the result of a request to the journal and the metrics."""
        self.counts.add(resource, answer, duration_s)
        done = Allocation(at_s=time.time(), resource=resource, ids=ids[:MAX_JOURNAL], count=len(ids))
        if isinstance(answer, AllocationRefusal):
            done = replace(done, cause=answer.cause, reason=answer.reason)
        else:
            done = replace(done, names=answer.names)
        self._journal.append(done)
        self._new_allocations.append(done)
        self._on_allocate()

    def new_allocations(self) -> Iterator[Allocation]:
        """Yield the results of requests since the last call."""
        while self._new_allocations:
            yield self._new_allocations.popleft()

    def set_statuses(self, statuses: tuple[ResourceStatus, ...], problems: Mapping[str, str]) -> None:
        """Set the statuses of the resources; PROBLEMS maps a resource to its problem."""
        known = {one.name: one for one in self._advertised.resources}
        self._registered = tuple(
            RegisteredResource(
                resource=known.get(one.resource, Resource(name=one.resource, units=())),
                state=one.state,
                since_s=one.since_s,
                reason=problems.get(one.resource) or one.reason,
                is_confirmed=one.is_confirmed,
                registrations=one.registrations,
            )
            for one in statuses
        )

    def labels(self) -> tuple[Label, ...] | None:
        """Return the labels of the node, or None if the node's devices are unknown."""
        if self._host is None or self._vendors is None:
            return None
        if self._labels is None:
            memory = self._advertised.memory
            self._labels = node_labels(
                NodeResources(
                    resources=self._advertised.resources,
                    inventories=self._vendors,
                    by_mps=self._advertised.by_mps,
                    memory=memory.resource.name if memory is not None else "",
                    mig_strategy=self._settings.mig_strategy,
                    running=running_drivers(self._host.sources.host),
                    machine=self._machine,
                )
            )
        return self._labels

    def set_labels(self, state: LabelState | None) -> None:
        """Set the state of the file of node labels, or None if there is no file."""
        self._label_state = state

    def document(self, process: ServiceProcess) -> dict[str, Any]:
        """Return the content of status.json."""
        return document(self.view(), process)

    def view(self) -> KubeletPluginStatus:
        """Return the status of the process, for status.json and metrics."""
        return KubeletPluginStatus(
            started_s=self._started_s,
            kubelet_dir=self._kubelet_dir,
            served=self._registered,
            stale=self._stale,
            problems=(*self._problems, *self.findings()),
            journal=tuple(self._journal.copy()),
            pods=self.pods,
            idle_reason=self._idle_reason(),
            allocations=self.counts.allocations.copy(),
            refused=self.counts.refused.copy(),
            shared_memory=self._agent.state() if self._agent is not None else None,
            labels=self._label_state,
        )

    def reason_unready(self) -> str:
        """Return the reason why a resource is not registered, or why no resource is advertised, or ""."""
        return self.view().reason

    def _idle_reason(self) -> str:
        problem = self._problem or (self._host.inventory.problem if self._host else "")
        return f"no resource is advertised: {problem}" if problem else ""

    def metrics(self) -> Callable[[], bytes]:
        """Return a function that renders the metrics for Prometheus."""
        from cdigen.kubelet.metrics import render  # noqa: PLC0415 - takes 50 ms, so imported late

        return lambda: render(self.view(), self.counts)

    def _with_memory(self, found: ResourceSet) -> ResourceSet:
        """Return FOUND and pass its memory to the agent; without an agent, the result has no memory units."""
        memory = found.memory
        if memory is None:
            if self._agent is not None:
                self._agent.advertise(None)
            return found
        if self._agent is not None:
            self._advertise_memory(self._agent, memory)
            return found
        name = memory.resource.name
        resources = (replace(one, units=()) if one.name == name else one for one in found.resources)
        finding = memory_not_advertised(name, self._agent_problem)
        return replace(found, resources=tuple(resources), findings=(*found.findings, finding))

    def _save_sizes(self, found: ResourceSet) -> ResourceSet:
        """Store the sizes of memory units for later starts; return FOUND, plus a finding if that fails."""
        sizes = self._modes.sizes
        if not self._state_dir or sizes == self._saved_sizes:
            return found
        try:
            unit_sizes.save(self._state_dir, sizes)
        except StoreError as error:
            problem = finding_of(error, f"{self._state_dir}/{unit_sizes.FILE}")
            return replace(found, findings=(*found.findings, problem))
        self._saved_sizes = sizes.copy()
        return found

    def _replace_agent(self) -> None:
        """Start an agent for the new settings; requests use the former agent until then."""
        former, self._has_agent_list = self._agent, False
        try:
            made, self._agent_problem = self._make_agent(self._settings.shared_memory), ""
        except CdigenError as error:
            made, self._agent_problem = None, error.message
        if made is not None and self._advertised.memory is not None:
            self._advertise_memory(made, self._advertised.memory)
        self._agent = made
        if former is not None:
            former.stop()

    def _advertise_memory(self, agent: Agent, memory: AdvertisedMemory) -> None:
        agent.advertise(memory)
        if self._last_list is not None and not self._has_agent_list:
            agent.set_pods(self._last_list, self._listed_monotonic_s)
        self._has_agent_list = True

    def stop(self) -> None:
        """Stop the agent; do not wait for its threads."""
        if self._agent is not None:
            self._agent.stop()

    def _allocator(self, resource: Resource, policy: AllocationPolicy) -> ResourceAllocator | MemoryAllocator:
        """Return the allocator of RESOURCE."""
        memory = self._advertised.memory
        if memory is not None and self._agent is not None and resource.name == memory.resource.name:
            return MemoryAllocator(memory, LatestReservationSource(lambda: self._agent), policy, self)
        return ResourceAllocator(
            resource, policy, self, spread=self._settings.shared_allocation == "distributed"
        )

    def _policy(self, resource: Resource, vendors: Mapping[str, Inventory]) -> AllocationPolicy:
        return policy_of(resource, self._advertised, self._settings, vendors, mps_problem)


def _agent_settings(settings: KubeletConfig) -> tuple[bool, str, str, str]:
    """Return the values of SETTINGS whose change requires a new agent."""
    shared = settings.shared_memory
    return shared.unit == "none", shared.resource, shared.count, shared.namespace


async def _no_kubelet_yet(_: float) -> PodList:
    """Raise KubeletError, because the link has not started."""
    raise KubeletError("there is no kubelet yet", was_reached=False)
