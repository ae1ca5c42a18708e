"""All that a decision about a container depends on: ``context_of`` the host's state and the configuration."""

from __future__ import annotations

import threading

from cdigen.host.root import Root
from cdigen.nri.decision import request
from cdigen.nri.decision.decide import decide
from cdigen.nri.decision.machine import VENDOR, Machine, machine_of
from cdigen.nri.decision.policy import Policy, policy_of
from cdigen.nri.decision.raw import prepare
from cdigen.nri.decision.select import DeviceNames
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.config import Settings
    from cdigen.frontend.host_state import HostState
    from cdigen.nri.decision.decide import Decision
    from cdigen.nri.decision.raw import PreparedSpec
    from cdigen.nri.pods import Container, Pod

    Key = tuple[object, ...]

# The CDI library of containerd 2.1 and CRI-O 1.33, the first that take CDI devices from a plugin, or nearly.
LIBRARY = "1.0.1"
# One with 64 devices holds some 30 kB; a longer request than a sensible one is not kept.
_MOST = 64
_MAX_TEXT = 1 << 14
_MAX_PARTS = 1_000


class DecisionCache:
    """The last decisions in one context, by all that they depend on; threads share it.

    Replicas make the same request, and a container may be judged twice.
    """

    def __init__(self) -> None:
        self._made: dict[Key, Decision] = {}
        self._lock = threading.Lock()

    def find(self, key: Key) -> Decision | None:
        """Return the decision that was made for KEY, if it is still here."""
        with self._lock:
            return self._made.get(key)

    def keep(self, key: Key, made: Decision) -> None:
        """Keep the decision that was MADE for KEY, in the place of the oldest if there are many."""
        with self._lock:
            if len(self._made) >= _MOST:
                del self._made[next(iter(self._made))]
            self._made[key] = made


@frozen
class DecisionContext:
    """The ``host``, and what was made of it once for all decisions.

    ``decisions`` are those made so far. ``prepared``: the spec of each device, where the policy is to give
    nodes and mounts to a runtime that drops CDI devices; ``nodes``: the tree in which the host's nodes are.
    """

    host: HostState
    policy: Policy
    names: DeviceNames
    machine: Machine
    decisions: DecisionCache
    prepared: Mapping[str, PreparedSpec] | None
    nodes: Root

    def decide(self, pod: Pod, container: Container) -> Decision:
        """Return what becomes of CONTAINER of POD."""
        key = _key(pod, container, self.policy)
        made = self.decisions.find(key) if key else None
        if made is None:
            made = decide(pod, container, policy=self.policy, names=self.names, machine=self.machine)
            if key:
                self.decisions.keep(key, made)
        return made


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
        decisions=DecisionCache(),
        prepared=prepared,
        nodes=Root(host.sources.host),
    )


def _key(pod: Pod, container: Container, policy: Policy) -> Key | None:
    """Return what a decision depends on, None where nothing counts, or that is too long to be kept.

    Of labels and annotations, of which anybody may write a megabyte, only those that are read are looked at.
    """
    grant = policy.grant(pod)
    if not (grant.rows or grant.administers):
        return None
    given = request.variables(container.env)
    asked = request.requesting_annotations(pod.annotations, container.name, policy.settings.annotations)
    texts = (
        pod.namespace,
        pod.runtime_handler,
        container.name,
        *(text for name, _ in asked for text in (name, pod.annotations[name])),
        *(text for pair in given.values.items() for text in pair),
        *(text for pair in given.requirements for text in pair),
        *container.devices,
        *container.cdi_devices,
        *(mount.destination for mount in container.mounts),
    )
    if len(texts) > _MAX_PARTS or sum(map(len, texts)) > _MAX_TEXT:
        return None
    # Rows of the policy live as long as this memory. The counts keep apart what stands side by side.
    rows = tuple(map(id, grant.rows))
    parts = (len(asked), len(given.values), len(given.requirements), len(container.devices))
    return rows, grant.administers, parts, len(container.cdi_devices), texts
