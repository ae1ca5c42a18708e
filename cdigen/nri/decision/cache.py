"""Decisions made before: ``DecisionCache``. Replicas ask alike, and a container may be judged twice."""

from __future__ import annotations

import threading

from cdigen.nri.decision import request
from cdigen.nri.decision.decide import decide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.decision.decide import Decision
    from cdigen.nri.decision.machine import Machine
    from cdigen.nri.decision.policy import Policy
    from cdigen.nri.decision.select import DeviceNames
    from cdigen.nri.pods import Container, Pod

    Key = tuple[object, ...]

# One with 64 devices holds some 30 kB; what is longer than a sensible wish is not kept.
_MOST = 64
_MAX_TEXT = 1 << 14
_MAX_PARTS = 1_000


class DecisionCache:
    """The last decisions by one policy, on one host, by all that they depend on; threads share it."""

    def __init__(self) -> None:
        self._made: dict[Key, Decision] = {}
        self._lock = threading.Lock()

    def decide(
        self, pod: Pod, container: Container, *, policy: Policy, names: DeviceNames, machine: Machine
    ) -> Decision:
        """Return what ``decide.decide`` returns."""
        key = _key(pod, container, policy)
        with self._lock:
            found = self._made.get(key) if key else None
        if found is None:
            found = decide(pod, container, policy=policy, names=names, machine=machine)
            if key:
                self._keep(key, found)
        return found

    def _keep(self, key: Key, found: Decision) -> None:
        with self._lock:
            if len(self._made) >= _MOST:
                del self._made[next(iter(self._made))]
            self._made[key] = found


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
