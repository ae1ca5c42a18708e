"""All that a decision about a container depends on: ``context_of`` the host's state and the configuration."""

from __future__ import annotations

from cdigen.host.root import Root
from cdigen.nri.decision.decide import decide
from cdigen.nri.decision.machine import VENDOR, Machine, machine_of
from cdigen.nri.decision.policy import policy_of
from cdigen.nri.decision.raw import PreparedSpec, prepare
from cdigen.nri.decision.select import DeviceNames
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import Settings
    from cdigen.frontend.host_state import HostState
    from cdigen.nri.decision.decide import Decision
    from cdigen.nri.decision.policy import Policy
    from cdigen.nri.pods import Container, Pod
    from cdigen.runtimes.spec_cache import SpecCache

# The CDI library of containerd 2.1 and CRI-O 1.33, the first that take CDI devices from a plugin, or nearly.
LIBRARY = "1.0.1"


@frozen
class DecisionContext:
    """The ``host``, and what was made of it once for all decisions.

    ``gives_raw``: the policy is to give nodes and mounts to a runtime that drops CDI devices; ``nodes``: the
    tree in which the host's nodes are.
    """

    host: HostState
    policy: Policy
    names: DeviceNames
    machine: Machine
    gives_raw: bool
    nodes: Root

    def decide(self, pod: Pod, container: Container) -> Decision:
        """Return what becomes of CONTAINER of POD."""
        return decide(pod, container, policy=self.policy, names=self.names, machine=self.machine)

    def prepared(self, device: str) -> PreparedSpec | None:
        """Return the spec that defines DEVICE; None where it does not resolve."""
        file = self.host.specs.file(device)
        return file.prepared if file is not None and isinstance(file.prepared, PreparedSpec) else None


def gives_raw(settings: Settings) -> bool:
    """Return whether a runtime that drops CDI devices is to be given nodes and mounts."""
    return settings.nri.unsupported_cdi == "raw"


def cache_for(settings: Settings) -> SpecCache:
    """Return a cache for ``read_host_state`` that keeps of each spec what ``context_of`` needs."""
    from cdigen.runtimes.spec_cache import SpecCache  # noqa: PLC0415 - a process may have to register first

    return SpecCache(prepare if gives_raw(settings) else None)


def context_of(host: HostState, settings: Settings, before: DecisionContext | None = None) -> DecisionContext:
    """Return the context of decisions on HOST, which was read with the cache that SETTINGS need.

    Where the inventory is that of BEFORE, the machine is, too.
    """
    specs = host.specs
    if before is not None and before.host.inventory is host.inventory:
        machine = before.machine
    else:
        machine = machine_of(*host.inventory.of(VENDOR))
    return DecisionContext(
        host=host,
        policy=policy_of(settings),
        names=DeviceNames.by_kind(specs.names, lambda name: specs.resolve(name).reason),
        machine=machine,
        gives_raw=gives_raw(settings),
        nodes=Root(host.sources.host),
    )
