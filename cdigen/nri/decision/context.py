"""All that a decision about a container depends on: ``context_of`` the host's state and the configuration."""

from __future__ import annotations

from cdigen.host.root import Root
from cdigen.nri.decision.decide import decide
from cdigen.nri.decision.machine import VENDOR, Machine, machine_of
from cdigen.nri.decision.policy import policy_of
from cdigen.nri.decision.raw import prepare
from cdigen.nri.decision.select import DeviceNames
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.config import Settings
    from cdigen.frontend.host_state import HostState
    from cdigen.nri.decision.decide import Decision
    from cdigen.nri.decision.policy import Policy
    from cdigen.nri.decision.raw import PreparedSpec
    from cdigen.nri.pods import Container, Pod

# The CDI library of containerd 2.1 and CRI-O 1.33, the first that take CDI devices from a plugin, or nearly.
LIBRARY = "1.0.1"


@frozen
class DecisionContext:
    """The ``host``, and what was made of it once for all decisions.

    ``prepared``: the spec of each device, where the policy is to give nodes and mounts to a runtime that
    drops CDI devices; ``nodes``: the tree in which the host's nodes are.
    """

    host: HostState
    policy: Policy
    names: DeviceNames
    machine: Machine
    prepared: Mapping[str, PreparedSpec] | None
    nodes: Root

    def decide(self, pod: Pod, container: Container) -> Decision:
        """Return what becomes of CONTAINER of POD."""
        return decide(pod, container, policy=self.policy, names=self.names, machine=self.machine)


def context_of(host: HostState, settings: Settings) -> DecisionContext:
    """Return the context of decisions on HOST; its specs are read again where ``unsupported_cdi`` is raw."""
    specs = host.specs
    prepared = None
    if settings.nri.unsupported_cdi == "raw":
        by_path = {path: prepare(document) for path, document in host.documents().items()}
        prepared = {device: by_path[path] for device, path in specs.devices if path in by_path}
    return DecisionContext(
        host=host,
        policy=policy_of(settings),
        names=DeviceNames((device for device, _ in specs.devices), lambda name: specs.resolve(name).reason),
        machine=machine_of(*host.inventory.of(VENDOR)),
        prepared=prepared,
        nodes=Root(host.sources.host),
    )
