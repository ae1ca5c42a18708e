"""Decisions that were made before: ``Memory``. Replicas ask alike, and a container may be judged twice."""

from __future__ import annotations

from cdigen.nri.decide import decide
from cdigen.nri.request import variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.decide import Decision
    from cdigen.nri.machine import Machine
    from cdigen.nri.pods import Container, Pod
    from cdigen.nri.policy import Policy
    from cdigen.nri.select import Names

    Key = tuple[object, ...]

# One with 64 devices holds some 30 kB; longer texts than a sensible wish has are not kept.
_MOST = 64
_MAX_TEXT = 1 << 14


class Memory:
    """The last decisions by one policy, on one host, by all that they depend on."""

    def __init__(self) -> None:
        self._made: dict[Key, Decision] = {}

    def decide(
        self, pod: Pod, container: Container, *, policy: Policy, names: Names, machine: Machine
    ) -> Decision:
        """Return what ``decide.decide`` returns."""
        key = _key(pod, container)
        found = self._made.get(key) if key else None
        if found is None:
            found = decide(pod, container, policy=policy, names=names, machine=machine)
            if len(self._made) >= _MOST:
                del self._made[next(iter(self._made))]
            if key:
                self._made[key] = found
        return found


def _key(pod: Pod, container: Container) -> Key | None:
    """Return what a decision depends on, None where that is too long to be kept."""
    given = variables(container.env)
    texts = (*pod.annotations.values(), *given.values.values(), *(text for _, text in given.requirements))
    if sum(map(len, texts)) > _MAX_TEXT:
        return None
    return (
        pod.namespace,
        pod.runtime_handler,
        tuple(sorted(pod.labels.items())),
        tuple(sorted(pod.annotations.items())),
        container.name,
        tuple(sorted(given.values.items())),
        given.requirements,
        container.devices,
        container.cdi_devices,
        tuple([mount.destination for mount in container.mounts]),
    )
