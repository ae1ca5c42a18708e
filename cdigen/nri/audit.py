"""Who is there already and asked in vain: ``Audit`` of what a runtime tells when the plugin registers. Pure.

While no plugin is registered, containers start as if there were none. NRI before 0.10 cannot prevent that, so
it is at least told who they are.
"""

from __future__ import annotations

from cdigen.nri import request, served
from cdigen.nri.answer import MARK
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.known import Known
    from cdigen.nri.messages import Part
    from cdigen.nri.pods import Container, Pod

# Runtimes tell a pod before its containers, but for those at the end of a message.
_MAX_EARLY = 1_000
_MAX_NAMED = 16


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
    """Takes the parts of a runtime's state one by one; what is not needed any more is not held."""

    def __init__(self) -> None:
        # None: a pod whose wishes do not count.
        self._pods: dict[str, Pod | None] = {}
        # Those that came before their pods.
        self._early: list[Container] = []
        self._missed: list[Missed] = []
        self._foreign: dict[str, None] = {}
        self._is_complete = True

    def add(self, part: Part | None, known: Known) -> None:
        """Look at PART, by what is KNOWN now; None is one that was not held."""
        if part is None:
            self._is_complete = False
            return
        for pod in part.pods():
            grant = known.policy.grant(pod)
            counts = grant.rows or grant.administers
            self._pods[pod.id] = replace(pod, annotations=_asking(pod, known)) if counts else None
        for container in part.containers():
            if MARK in container.annotations:
                continue
            if container.pod_id in self._pods:
                self._judge(container, known)
            elif len(self._early) < _MAX_EARLY:
                self._early.append(container)
            else:
                self._is_complete = False

    def findings(self, known: Known) -> Findings:
        """Return what there is to say after the last part."""
        for container in self._early:
            self._judge(container, known)
        return Findings(
            missed=tuple(self._missed), foreign=tuple(self._foreign), is_complete=self._is_complete
        )

    def _judge(self, container: Container, known: Known) -> None:
        pod = self._pods.get(container.pod_id)
        if pod is None:
            return
        asked = request.annotated(pod.annotations, container.name, known.policy.settings.annotations)
        others = served.injected_by_another(container, asked, container.annotations, MARK)
        self._foreign |= dict.fromkeys(others)
        found = _missed(pod, container, known)
        if found and not others:
            self._missed.append(found)


def _asking(pod: Pod, known: Known) -> dict[str, str]:
    """Return those annotations of POD that ask for devices: the others may be long."""
    prefixes = tuple(
        prefix for reader in known.policy.settings.annotations for prefix in request.PREFIXES[reader]
    )
    return {name: text for name, text in pod.annotations.items() if name.startswith(prefixes)}


def _missed(pod: Pod, container: Container, known: Known) -> Missed | None:
    decision = known.decisions.decide(
        pod, container, policy=known.policy, names=known.names, machine=known.machine
    )
    if decision.outcome not in {"inject", "refuse"}:
        return None
    return Missed(
        namespace=pod.namespace,
        pod=pod.name,
        container=container.name,
        devices=decision.devices[:_MAX_NAMED],
        reason=decision.reason or "it was started while no plugin was registered",
    )
