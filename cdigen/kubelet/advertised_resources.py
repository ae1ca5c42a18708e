"""``AdvertisedResources``: the resources of the host, each with its allocator (``allocators``).

Three threads use the class. The main thread passes each new state of the host to ``resources`` and requests
the status. The HTTP thread requests metrics. The link's thread calls the allocators. The class has no lock.
So each thread replaces a shared value as a whole, or adds or removes single items.
"""

from __future__ import annotations

import time

from cdigen.kubelet.allocation.journal import AllocationJournal
from cdigen.kubelet.allocation.kubelet_view import KubeletView
from cdigen.kubelet.allocation.modes import AllocationModes
from cdigen.kubelet.allocation.policies import missing_families, policy_of, unusable_vendor
from cdigen.kubelet.allocators import AllocatorContext, MemoryAllocator, ResourceAllocator
from cdigen.kubelet.labels.node_labels import node_labels
from cdigen.kubelet.memory_sharing import MemorySharing
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.resources.resource_set import ResourceSet, advertise
from cdigen.kubelet.status import KubeletPluginStatus, RegisteredResource, document
from cdigen.service.host_state import running_drivers
from cdigen.value import replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.config import KubeletConfig, SharedMemory
    from cdigen.kubelet.allocation.container_response import AllocationPolicy
    from cdigen.kubelet.allocation.kubelet_view import ListPods
    from cdigen.kubelet.gpu_memory.agent import Agent
    from cdigen.kubelet.labels.label_file import LabelState
    from cdigen.kubelet.plugin_config import KubeletPluginConfig
    from cdigen.kubelet.registration.listing import ResourceStatus
    from cdigen.kubelet.wire.server import Allocator
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.service.host_state import HostState
    from cdigen.service.status import ServiceProcess
    from cdigen.vendors.labels import Label


class AdvertisedResources:
    """The resources of the host according to CONFIG.

    MAKE_AGENT returns a started agent for memory units (``memory_sharing``), or None. ``kubelet`` has the
    kubelet's lists of pods, and ``journal`` has the allocations.
    """

    def __init__(
        self, config: KubeletPluginConfig, make_agent: Callable[[SharedMemory], Agent | None]
    ) -> None:
        self.journal = AllocationJournal()
        self._sharing = MemorySharing(make_agent, config.settings.shared_memory, config.state_dir)
        self.kubelet = KubeletView(self.journal, self._sharing.set_pods)
        self._modes = AllocationModes(self._sharing.stored_sizes)
        self._started_s = time.time()
        self._kubelet_dir = config.kubelet_dir
        self._config = config
        self._config_problems: tuple[Finding, ...] = ()
        self._host: HostState | None = None
        self._advertised = ResourceSet()
        # The names of all resources since the last change of the configuration.
        self._names: dict[str, None] = {}
        self._registered: tuple[RegisteredResource, ...] = ()
        # The inventories by vendor, or None if unknown.
        self._vendors: dict[str, Inventory] | None = None
        # The labels of the node with findings, or None before the next call of ``labels``.
        self._labels: tuple[tuple[Label, ...], tuple[Finding, ...]] | None = None
        self._label_state: LabelState | None = None

    def connect(self, list_pods: ListPods, on_allocate: Callable[[], object]) -> None:
        """Set LIST_PODS, which runs in the link's loop, and ON_ALLOCATE, which runs after each request."""
        self.kubelet.list_from_kubelet, self.journal.on_allocate = list_pods, on_allocate

    def configure(self, config: KubeletPluginConfig, problems: tuple[Finding, ...]) -> None:
        """Use CONFIG from the next call of ``resources``; PROBLEMS are the findings on the configuration."""
        before, self._config, self._config_problems = self._config, config, problems
        if (before.settings, before.profiles) != (config.settings, config.profiles):
            self._names = {}
            if _agent_settings(before.settings) != _agent_settings(config.settings):
                self._sharing.replace_agent(config.settings.shared_memory)

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
        inventory, settings = host.inventory, self._config.settings
        if self._config.problem:
            self._advertised, self._vendors = ResourceSet(), None
            return ()
        if inventory.problem:
            return None
        # The daemon may have a vendor package that this process lacks. Such a vendor gets a finding.
        unusable = {name: problem for name in inventory.vendors if (problem := registry.problem_of(name))}
        vendors = {name: one for name, one in inventory.vendors.items() if name not in unusable}
        found = advertise(vendors, self._config.profiles, self.is_in_spec, settings)
        found = self._modes.apply(found, self.kubelet.last_list)
        found = self._sharing.store_sizes(self._sharing.advertise(found), self._modes.sizes)
        now = {one.name for one in found.resources}
        self._names |= dict.fromkeys(one.name for one in found.resources)
        empty = (Resource(name=name, units=()) for name in self._names if name not in now)
        every = (*found.resources, *empty)
        policies = {one.name: policy_of(one, settings, vendors) for one in every}
        missing = missing_families(policies.values(), self.is_in_spec)
        unknown = tuple(unusable_vendor(name, problem) for name, problem in unusable.items())
        listed, removed = self._modes.removed.apply(every, found.candidates, self.kubelet.last_known_pods)
        findings = (*found.findings, *missing, *unknown, *removed)
        self._advertised = replace(found, resources=listed, findings=findings)
        self._vendors, self._labels = vendors, None
        # The allocators have only the devices of the host.
        allocators = [self._allocator(one, policies[one.name]) for one in every]
        return tuple(zip(listed, allocators, strict=True))

    def has_changed(self) -> bool:
        """Return whether a change of the pods changes the result of ``resources``."""
        return self._modes.is_outdated(self.kubelet.last_list)

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings on the host's devices, specs and labels, as of the last ``resources``."""
        labels = self._labels[1] if self._labels is not None else ()
        return (*self._advertised.findings, *labels, *(self._host.specs.problems if self._host else ()))

    def stale(self) -> tuple[str, ...]:
        """Return the reasons why the last known state of the host is used, or () if the state is current."""
        if self._host is None:
            return ()
        inventory = self._host.inventory
        return (inventory.problem,) if inventory.problem else tuple(dict.fromkeys(inventory.stale.values()))

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
            self._labels = node_labels(
                self._advertised.resources,
                self._vendors,
                running=running_drivers(self._host.sources.host),
                mig_strategy=self._config.settings.mig_strategy,
                machine=self._config.machine,
            )
        return self._labels[0]

    def set_labels(self, state: LabelState | None) -> None:
        """Set the state of the file of node labels, or None if there is no file."""
        self._label_state = state

    def document(self, process: ServiceProcess) -> dict[str, Any]:
        """Return the content of status.json."""
        return document(self.view(), process)

    def view(self) -> KubeletPluginStatus:
        """Return the status of the process, for status.json and metrics."""
        agent, journal = self._sharing.agent, self.journal
        return KubeletPluginStatus(
            started_s=self._started_s,
            kubelet_dir=self._kubelet_dir,
            served=self._registered,
            stale=self.stale(),
            problems=(*self._config_problems, *self.findings()),
            journal=journal.latest(),
            pods=self.kubelet.pods,
            idle_reason=self._idle_reason(),
            allocations=journal.allocations.copy(),
            refused=journal.refused.copy(),
            shared_memory=agent.state() if agent is not None else None,
            labels=self._label_state,
        )

    def reason_unready(self) -> str:
        """Return the reason why a resource is not registered, or why no resource is advertised, or ""."""
        return self.view().reason

    def _idle_reason(self) -> str:
        problem = self._config.problem or (self._host.inventory.problem if self._host else "")
        return f"no resource is advertised: {problem}" if problem else ""

    def metrics(self) -> Callable[[], bytes]:
        """Return a function that renders the metrics for Prometheus."""
        from cdigen.kubelet.metrics import render  # noqa: PLC0415 - takes 50 ms, so imported late

        return lambda: render(self.view(), self.journal.durations)

    def stop(self) -> None:
        """Stop the agent; do not wait for its threads."""
        self._sharing.stop()

    def _allocator(self, resource: Resource, policy: AllocationPolicy) -> ResourceAllocator | MemoryAllocator:
        context = AllocatorContext(
            kubelet=self.kubelet, is_in_spec=self.is_in_spec, record=self.journal.record
        )
        memory, sharing = self._advertised.memory, self._sharing
        if memory is not None and sharing.agent is not None and resource.is_memory:
            return MemoryAllocator(memory, lambda: sharing.agent, policy, context)
        spread = self._config.settings.shared_allocation == "distributed"
        return ResourceAllocator(resource, policy, context, spread=spread)


def _agent_settings(settings: KubeletConfig) -> tuple[bool, str, str, str]:
    """Return the values of SETTINGS whose change requires a new agent."""
    shared = settings.shared_memory
    return shared.unit == "none", shared.resource, shared.count, shared.namespace
