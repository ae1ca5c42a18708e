"""What is made of the host for the kubelet: ``HostOffering``, with a desk for each resource (``desks``).

The main thread gives a new state of the host (``resources``) and asks for the status, that of HTTP for
metrics; the link's thread asks the desks. What several use is replaced as a whole, or only ever added to.
"""

from __future__ import annotations

import time
from collections import deque

from cdigen.frontend.host_state import running_drivers
from cdigen.kubelet.answers import Refusal
from cdigen.kubelet.counts import Counts
from cdigen.kubelet.desks import Desk, MemoryDesk
from cdigen.kubelet.forms import Forms, key_of
from cdigen.kubelet.journal import Allocation
from cdigen.kubelet.labels.rows import Offered, node_labels
from cdigen.kubelet.mps import mps_problem
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.policies import missing_families, policy_of, unknown_vendor, without_api
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.resources.offer import Offer, offer
from cdigen.kubelet.shares.desk import LatestPromises
from cdigen.kubelet.status import MAX_JOURNAL, Served, View, document
from cdigen.kubelet.wire.clients import KubeletError
from cdigen.model.errors import CdigenError, StoreError
from cdigen.model.findings import Finding, finding_of
from cdigen.store import unit_sizes
from cdigen.value import replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from typing import Any

    from cdigen.config import KubeletConfig, SharedMemory
    from cdigen.frontend.host_state import HostState
    from cdigen.frontend.status import Process
    from cdigen.kubelet.answers import Answer, Policy
    from cdigen.kubelet.forms import Key
    from cdigen.kubelet.labels.keeper import LabelState
    from cdigen.kubelet.labels.words import Label
    from cdigen.kubelet.listing import ResourceStatus
    from cdigen.kubelet.plugin_config import PluginConfig
    from cdigen.kubelet.pods import PodList
    from cdigen.kubelet.resources.memory import MemoryOffer
    from cdigen.kubelet.shares.agent import Agent
    from cdigen.kubelet.wire.server import Answers
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile

    # Asks, for so many seconds at most.
    Asking = Callable[[float], Awaitable[PodList]]

# Of answers that nobody has asked for yet.
_MAX_ANSWERS = 1_000
# So long after an answer the kubelet may not have it in its list yet.
_MOMENT_S = 1.0


class HostOffering:
    """What the host offers by SETTINGS, whose devices PROFILES name; the journal and counts of answers.

    ``pods`` is what containers have, None as long as the kubelet does not tell, ``told`` what it said last.
    AGENTS returns who knows which pods ask for GPUs' memory, begun, None: nobody. STATE_DIR keeps of which
    size the units are, if it is given.
    """

    def __init__(
        self,
        settings: KubeletConfig,
        profiles: tuple[Profile, ...],
        kubelet_dir: str,
        *,
        agents: Callable[[SharedMemory], Agent | None] = lambda _: None,
        state_dir: str = "",
    ) -> None:
        self.pods: tuple[PodDevices, ...] | None = None
        self.counts = Counts()
        self._agents = agents
        self._agent = agents(settings.shared_memory)
        self._why_no_agent = ""
        self._state_dir = state_dir
        self._kept = unit_sizes.read(state_dir) if state_dir else {}
        self._forms = Forms(self._kept)
        # What the host would offer if nobody had anything in another form.
        self._unsettled = Offer()
        self._key: Key = frozenset()
        self._keyed: tuple[PodDevices, ...] | None = None
        self._settings = settings
        self._profiles = profiles
        self._kubelet_dir = kubelet_dir
        self._started_s = time.time()
        self._asking: Asking = _ask_nobody
        self._given: Callable[[], object] = lambda: None
        self._told: PodList | None = None
        # Whether the last list had no pod.
        self._is_empty = False
        # When it was told, in Unix time and monotonic; whether the agent has it.
        self._told_s = self._told_at_s = 0.0
        self._is_agent_told = False
        self._host: HostState | None = None
        self._offer = Offer()
        # The names that had units since the configuration counts.
        self._known: dict[str, None] = {}
        self._problem = ""
        self._problems: tuple[Finding, ...] = ()
        self._stale: tuple[str, ...] = ()
        self._journal: deque[Allocation] = deque(maxlen=MAX_JOURNAL)
        self._answers: deque[Allocation] = deque(maxlen=_MAX_ANSWERS)
        self._served: tuple[Served, ...] = ()
        self._machine = ""
        # The inventories that are offered, None: none is known. The labels of them, once they were asked for.
        self._vendors: dict[str, Inventory] | None = None
        self._labels: tuple[Label, ...] | None = None
        self._label_state: LabelState | None = None

    def connect(self, ask: Asking, given: Callable[[], object]) -> None:
        """Take how to ASK in the link's loop what containers have; GIVEN is called after each answer."""
        self._asking, self._given = ask, given

    def configure(self, config: PluginConfig, problems: tuple[Finding, ...]) -> None:
        """Offer by CONFIG from the next ``resources`` on; PROBLEMS are what is wrong with it."""
        if (self._settings, self._profiles) != (config.settings, config.profiles):
            before, self._settings = self._settings, config.settings
            self._profiles, self._known = config.profiles, {}
            if _of_agent(before) != _of_agent(config.settings):
                self._replace_agent()
        self._problem, self._problems = config.problem, problems
        self._machine = config.machine

    def is_offered(self, name: str) -> bool:
        """Return whether a spec has the qualified CDI NAME."""
        host = self._host
        return host is not None and host.specs.file(name) is not None

    def resources(self, host: HostState) -> tuple[tuple[Resource, Answers], ...] | None:
        """Return what HOST offers, and who answers for each; None: nothing else than before.

        Without an inventory that can be read, nothing is known of devices, and what was offered stays. A
        resource that has no devices any more, as while the driver is being replaced, stays with none: pods
        see 0 at once, and a list is all that it takes when they are back.
        """
        self._host = host
        inventory = host.inventory
        stale = [inventory.problem] if inventory.problem else inventory.stale.values()
        self._stale = tuple(dict.fromkeys(stale))
        if self._problem:
            self._offer, self._vendors = Offer(), None
            return ()
        if inventory.problem:
            return None
        # A package that the daemon has may not be here; its devices cost the others nothing.
        vendors = {name: one for name, one in inventory.vendors.items() if name in registry.NAMES}
        found = offer(vendors, self._profiles, self.is_offered, self._settings)
        self._unsettled, self._keyed = found, self.told
        self._key = key_of(found, self._keyed or ())
        found = self._kept_sizes(self._with_shares(self._forms.settled(found, self._keyed)))
        self._known |= dict.fromkeys(one.name for one in found.resources)
        now = {one.name for one in found.resources}
        gone = [Resource(name=name, units=()) for name in self._known if name not in now]
        self._offer = replace(found, resources=(*found.resources, *gone))
        policies = {one.name: self._policy(one, vendors) for one in self._offer.resources}
        desks = tuple((one, self._desk(one, policies[one.name])) for one in self._offer.resources)
        missing = missing_families(policies.values(), self.is_offered)
        unknown = tuple(unknown_vendor(name) for name in inventory.vendors if name not in vendors)
        self._offer = replace(self._offer, findings=(*found.findings, *missing, *unknown))
        self._vendors, self._labels = vendors, None
        return desks

    def has_changed(self) -> bool:
        """Return whether ``resources`` would say something else of the same host, as pods have changed."""
        told = self.told
        if told is self._keyed:
            return False
        before, self._keyed = self._keyed, told
        is_first = before is None and self._unsettled.memory is not None
        return is_first or key_of(self._unsettled, told or ()) != self._key

    def findings(self) -> tuple[Finding, ...]:
        """Return what there is to say of the host's devices and specs, as of the last ``resources``."""
        return (*self._offer.findings, *(self._host.specs.problems if self._host else ()))

    def stale(self) -> tuple[str, ...]:
        """Return why it is the host's last known state that counts, as of the last ``resources``."""
        return self._stale

    @property
    def told(self) -> tuple[PodDevices, ...] | None:
        """What the kubelet said last that containers have, None: nothing so far."""
        return self._told.devices if self._told is not None else None

    @property
    def is_known(self) -> bool:
        """Whether the kubelet knows its pods, and has said what they have."""
        return self._told is not None and not self._is_empty

    def set_pods(self, found: PodList | None) -> None:
        """Take what containers have now, None: the kubelet does not tell.

        A list without a pod is that of a kubelet that has just started, or of a node without pods: it counts
        once the next one is no other.
        """
        self.pods = found.devices if found is not None else None
        if found is None:
            return
        was_empty, self._is_empty = self._is_empty, not found.names
        if self._is_empty and not was_empty:
            return
        self._told, self._told_s, self._told_at_s = found, time.time(), time.monotonic()
        if self._agent is not None:
            self._agent.told(found, self._told_at_s)

    async def ask(self, timeout_s: float) -> tuple[PodDevices, ...]:
        """Return what containers have now; in the link's loop. ``KubeletError``: not told in TIMEOUT_S."""
        found = await self._asking(timeout_s)
        self.set_pods(found)
        return found.devices

    def given(self) -> Iterator[PodDevices]:
        """Yield what was given so lately that ``told`` may not have it, to whomever."""
        for one in self._journal:
            if one.at_s >= self._told_s - _MOMENT_S and not one.cause:
                yield PodDevices(namespace="", pod="", container="", resource=one.resource, ids=one.ids)

    def note(self, resource: str, ids: tuple[str, ...], answer: Answer | Refusal, duration_s: float) -> None:
        """Note what became of a request, for journal and metrics."""
        self.counts.add(resource, answer, duration_s)
        done = Allocation(at_s=time.time(), resource=resource, ids=ids[:MAX_JOURNAL], count=len(ids))
        if isinstance(answer, Refusal):
            done = replace(done, cause=answer.cause, reason=answer.reason)
        else:
            done = replace(done, names=answer.names)
        self._journal.append(done)
        self._answers.append(done)
        self._given()

    def answers(self) -> Iterator[Allocation]:
        """Yield what became of requests since the last call."""
        while self._answers:
            yield self._answers.popleft()

    def set_statuses(self, statuses: tuple[ResourceStatus, ...], problems: Mapping[str, str]) -> None:
        """Take how the resources are, and PROBLEMS by resource."""
        known = {one.name: one for one in self._offer.resources}
        self._served = tuple(
            Served(
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
        """Return the labels of what is offered, None: nobody knows what there is."""
        if self._host is None or self._vendors is None:
            return None
        if self._labels is None:
            memory = self._offer.memory
            self._labels = node_labels(
                Offered(
                    resources=self._offer.resources,
                    inventories=self._vendors,
                    by_mps=self._offer.by_mps,
                    memory=memory.resource.name if memory is not None else "",
                    mig_strategy=self._settings.mig_strategy,
                    running=running_drivers(self._host.sources.host),
                    machine=self._machine,
                )
            )
        return self._labels

    def set_labels(self, state: LabelState | None) -> None:
        """Take how the file of the node's labels stands, None: there is none."""
        self._label_state = state

    def document(self, process: Process) -> dict[str, Any]:
        """Return status.json."""
        return document(self.view(), process)

    def view(self) -> View:
        """Return all that is known, for status and metrics."""
        return View(
            started_s=self._started_s,
            kubelet_dir=self._kubelet_dir,
            served=self._served,
            stale=self._stale,
            problems=(*self._problems, *self.findings()),
            allocations=tuple(self._journal.copy()),
            pods=self.pods,
            why_idle=self._why_idle(),
            given=self.counts.given.copy(),
            refused=self.counts.refused.copy(),
            shares=self._agent.state() if self._agent is not None else None,
            labels=self._label_state,
        )

    def reason_unready(self) -> str:
        """Return why pods cannot count on what the host has, "" if they can, or there is nothing."""
        return self.view().reason

    def _why_idle(self) -> str:
        problem = self._problem or (self._host.inventory.problem if self._host else "")
        return f"nothing is offered: {problem}" if problem else ""

    def metrics(self) -> Callable[[], bytes]:
        """Return what renders the metrics for Prometheus."""
        from cdigen.kubelet.metrics import Collector  # noqa: PLC0415 - not before the registration: 50 ms

        return Collector(self.view, self.counts).render

    def _with_shares(self, found: Offer) -> Offer:
        """Return FOUND without units of memory where nobody tells which pods ask for them."""
        shares = found.memory
        if shares is None:
            if self._agent is not None:
                self._agent.show(None)
            return found
        if self._agent is not None:
            self._show(self._agent, shares)
            return found
        name = shares.resource.name
        rest = (replace(one, units=()) if one.name == name else one for one in found.resources)
        finding = without_api(name, self._why_no_agent)
        return replace(found, resources=tuple(rest), findings=(*found.findings, finding))

    def _kept_sizes(self, found: Offer) -> Offer:
        """Return FOUND, once it is kept for a later start of which size the units are."""
        sizes = self._forms.sizes
        if not self._state_dir or sizes == self._kept:
            return found
        try:
            unit_sizes.save(self._state_dir, sizes)
        except StoreError as error:
            problem = finding_of(error, f"{self._state_dir}/{unit_sizes.FILE}")
            return replace(found, findings=(*found.findings, problem))
        self._kept = sizes.copy()
        return found

    def _replace_agent(self) -> None:
        """Let the agent be the one of the settings; requests find the former until this one can answer."""
        former, self._is_agent_told = self._agent, False
        try:
            made, self._why_no_agent = self._agents(self._settings.shared_memory), ""
        except CdigenError as error:
            made, self._why_no_agent = None, error.message
        if made is not None and self._offer.memory is not None:
            self._show(made, self._offer.memory)
        self._agent = made
        if former is not None:
            former.stop()

    def _show(self, agent: Agent, shares: MemoryOffer) -> None:
        agent.show(shares)
        if self._told is not None and not self._is_agent_told:
            agent.told(self._told, self._told_at_s)
        self._is_agent_told = True

    def stop(self) -> None:
        """End what runs beside this; nothing is waited for."""
        if self._agent is not None:
            self._agent.stop()

    def _desk(self, resource: Resource, policy: Policy) -> Desk | MemoryDesk:
        """Return who answers for RESOURCE."""
        shares = self._offer.memory
        if shares is not None and self._agent is not None and resource.name == shares.resource.name:
            return MemoryDesk(shares, LatestPromises(lambda: self._agent), policy, self)
        return Desk(resource, policy, self, spread=self._settings.shared_allocation == "distributed")

    def _policy(self, resource: Resource, vendors: Mapping[str, Inventory]) -> Policy:
        return policy_of(resource, self._offer, self._settings, vendors, mps_problem)


def _of_agent(settings: KubeletConfig) -> tuple[bool, str, str, str]:
    """Return by what of SETTINGS there is another agent."""
    shared = settings.shared_memory
    return shared.unit == "none", shared.resource, shared.count, shared.namespace


async def _ask_nobody(_: float) -> PodList:
    """Answer before there is a link."""
    raise KubeletError("there is no kubelet yet", was_reached=False)
