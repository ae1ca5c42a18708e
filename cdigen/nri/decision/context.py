"""``context_of``: the inputs of all decisions, from the host's state and the configuration."""

from __future__ import annotations

from cdigen.host.root import Root
from cdigen.nri.decision.decide import decide
from cdigen.nri.decision.limits.policy import policy_of
from cdigen.nri.decision.raw import PreparedSpec, prepare
from cdigen.nri.decision.request.host_gpus import VENDOR, HostGpus, host_gpus_of
from cdigen.nri.decision.request.select import DeviceNames
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.config import Settings
    from cdigen.nri.decision.decide import InjectionDecision
    from cdigen.nri.decision.limits.policy import InjectionPolicy
    from cdigen.nri.pods import Container, Pod
    from cdigen.runtimes.spec_cache import SpecCache
    from cdigen.service.host_state import HostState

# The version of the CDI library in containerd 2.1 and CRI-O 1.33. The runtimes inject CDI devices of NRI
# plugins since about these versions (cdigen.runtimes.releases).
LIBRARY = "1.0.1"


@frozen
class DecisionContext:
    """The state of the ``host``, and the values that all decisions on this state use.

    ``injects_raw`` is true if cdigen injects device nodes and mounts into a runtime that drops CDI devices.
    ``nodes`` is the tree with the device nodes of the host.
    """

    host: HostState
    policy: InjectionPolicy
    names: DeviceNames
    host_gpus: HostGpus
    injects_raw: bool
    nodes: Root

    def decide(self, pod: Pod, container: Container) -> InjectionDecision:
        """Return the decision about CONTAINER in POD."""
        return decide(pod, container, policy=self.policy, names=self.names, host_gpus=self.host_gpus)

    def prepared(self, device: str) -> PreparedSpec | None:
        """Return the spec that defines DEVICE, or None if the runtime cannot resolve DEVICE."""
        file = self.host.specs.file(device)
        return file.prepared if file is not None and isinstance(file.prepared, PreparedSpec) else None


def injects_raw(settings: Settings) -> bool:
    """Return whether cdigen injects device nodes and mounts into a runtime that drops CDI devices."""
    return settings.nri.unsupported_cdi == "raw"


def cache_for(settings: Settings) -> SpecCache:
    """Return a cache for ``read_host_state``; it prepares each spec if cdigen injects device nodes."""
    from cdigen.runtimes.spec_cache import SpecCache  # noqa: PLC0415 - the import would delay the registration

    return SpecCache(prepare if injects_raw(settings) else None)


def context_of(host: HostState, settings: Settings, before: DecisionContext | None = None) -> DecisionContext:
    """Return the context for decisions on HOST.

    HOST must be read with the cache ``cache_for(settings)``. BEFORE is the previous context, or None. If the
    previous context has the same inventory as HOST, the result has the ``host_gpus`` object of that context.
    """
    specs = host.specs
    if before is not None and before.host.inventory is host.inventory:
        host_gpus = before.host_gpus
    else:
        host_gpus = host_gpus_of(*host.inventory.of(VENDOR))
    return DecisionContext(
        host=host,
        policy=policy_of(settings),
        names=DeviceNames(specs.names, lambda name: specs.resolve(name).reason),
        host_gpus=host_gpus,
        injects_raw=injects_raw(settings),
        nodes=Root(host.sources.host),
    )
