"""Who is there already and asked in vain: ``Audit`` of what a runtime tells when the plugin registers. Pure.

While no plugin is registered, containers start as if there were none. NRI before 0.10 cannot prevent that, so
it is at least told who they are.
"""

from __future__ import annotations

from cdigen.nri import request, served
from cdigen.nri.answer import MARK
from cdigen.nri.decide import decide
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.known import Known
    from cdigen.nri.messages import Part
    from cdigen.nri.pods import Container, Pod

# A node has a few hundred containers; more than these that might ask are not looked at.
_MAX_HELD = 20_000
# What a decision looks at begins with one of these.
_READ = ("NVIDIA_", "AMD_", "CUDA_")


@frozen
class Missed:
    """A running container that asked for ``devices`` and has not got them; ``reason`` says why not."""

    namespace: str
    pod: str
    container: str
    devices: tuple[str, ...]
    reason: str


@frozen
class Findings:
    """What an audit found; ``foreign`` are annotations that another plugin serves as well.

    ``is_complete``: all that the runtime told was looked at.
    """

    missed: tuple[Missed, ...]
    foreign: tuple[str, ...]
    is_complete: bool


class Audit:
    """Gathers the parts of a runtime's state, in which a container may come before its pod."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._containers: list[Container] = []
        self._is_complete = True

    def add(self, part: Part | None, known: Known) -> None:
        """Take PART; None is one that was not held."""
        if part is None:
            self._is_complete = False
            return
        for pod in part.pods():
            grant = known.policy.grant(pod)
            if grant.rows or grant.administers:
                self._pods[pod.id] = replace(pod, annotations=_asking(pod, known))
        for container in part.containers():
            if MARK in container.annotations:
                continue
            if len(self._containers) >= _MAX_HELD:
                self._is_complete = False
                return
            env = tuple(entry for entry in container.env if entry.startswith(_READ))
            self._containers.append(replace(container, env=env))

    def findings(self, known: Known) -> Findings:
        """Return what there is to say of all parts, by what is KNOWN now."""
        missed: list[Missed] = []
        foreign: dict[str, None] = {}
        for container in self._containers:
            pod = self._pods.get(container.pod_id)
            if pod is None:
                continue
            asked = request.annotated(pod.annotations, container.name, known.policy.settings.annotations)
            others = served.injected_by_another(container, asked, container.annotations, MARK)
            foreign |= dict.fromkeys(others)
            found = _missed(pod, container, known)
            if found and not others:
                missed.append(found)
        return Findings(missed=tuple(missed), foreign=tuple(foreign), is_complete=self._is_complete)


def _asking(pod: Pod, known: Known) -> dict[str, str]:
    """Return those annotations of POD that ask for devices: the others may be long."""
    prefixes = tuple(
        prefix for reader in known.policy.settings.annotations for prefix in request.PREFIXES[reader]
    )
    return {name: text for name, text in pod.annotations.items() if name.startswith(prefixes)}


def _missed(pod: Pod, container: Container, known: Known) -> Missed | None:
    decision = decide(pod, container, policy=known.policy, names=known.names, machine=known.machine)
    if decision.outcome not in {"inject", "refuse"}:
        return None
    return Missed(
        namespace=pod.namespace,
        pod=pod.name,
        container=container.name,
        devices=decision.devices,
        reason=decision.reason or "it was started while no plugin was registered",
    )
