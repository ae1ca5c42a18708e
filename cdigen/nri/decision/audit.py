"""Containers that were started without their GPU: ``Audit`` of the state that a runtime tells. Pure.

While no plugin is registered, containers start as if there were none. NRI before 0.10 cannot prevent that, so
these containers are at least named as soon as the plugin registers.
"""

from __future__ import annotations

from cdigen.nri.decision import existing_devices, request
from cdigen.nri.decision.answer import MARK
from cdigen.nri.pods import container_name, shorten
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.pods import Container, Pod

    class Part(Protocol):
        """Pods and containers of a runtime; ``unread`` counts those that could not be read so far."""

        unread: int

        def pods(self) -> Iterator[Pod]:
            """Yield those pods that can be read."""

        def containers(self) -> Iterator[Container]:
            """Yield those containers that can be read."""


# Of containers that came before their pods: Go sends both in proportion in each message, in random order
# (adaptation's synchronize), so that half of a node's may be early. One takes some 1 kB, of which its texts
# are the lesser part; no node has more than some thousands.
_MAX_EARLY_BYTES = 64 << 20
_EARLY_BYTES = 600
_MAX_NAMED = 16


@frozen
class MissedContainer:
    """A running container that requested ``devices`` and has not got them, for ``reason``."""

    namespace: str
    pod: str
    container: str
    devices: tuple[str, ...]
    reason: str


@frozen
class AuditResult:
    """``missed`` containers, and ``foreign`` annotations, which another plugin serves as well.

    ``is_complete``: all that the runtime told was looked at.
    """

    missed: tuple[MissedContainer, ...]
    foreign: tuple[str, ...]
    is_complete: bool


class Audit:
    """Takes the parts of a runtime's state one by one, and keeps no more of them than it needs.

    Of containers that come before their pods it keeps about EARLY_BYTES at most.
    """

    def __init__(self, *, early_bytes: int = _MAX_EARLY_BYTES) -> None:
        self._room = early_bytes
        # None: a pod whose requests do not count.
        self._pods: dict[str, Pod | None] = {}
        # Those that came before their pods, by the pods' ids.
        self._early: dict[str, list[Container]] = {}
        # Many containers have one and the same variable.
        self._texts: dict[str, str] = {}
        self._missed: list[MissedContainer] = []
        self._foreign: dict[str, None] = {}
        self._is_complete = True

    def add(self, part: Part | None, context: DecisionContext) -> None:
        """Look at PART, by the CONTEXT of now; None is one that could not be held."""
        if part is None:
            self._is_complete = False
            return
        for pod in part.pods():
            self._pods[pod.id] = _abridged(pod, context)
            for container in self._early.pop(pod.id, ()):
                self._room += _size(container)
                self._judge(container, context)
        for container in part.containers():
            if MARK in container.annotations:
                continue
            if container.pod_id in self._pods:
                self._judge(container, context)
            else:
                self._keep(container)
        if part.unread:
            self._is_complete = False

    def findings(self) -> AuditResult:
        """Return what there is to say after the last part."""
        return AuditResult(
            missed=tuple(self._missed),
            foreign=tuple(self._foreign),
            # Of whom no pod was told, nobody can say whether it may ask.
            is_complete=self._is_complete and not self._early,
        )

    def _keep(self, container: Container) -> None:
        """Keep what counts of a CONTAINER whose pod has not come yet."""
        given = request.variables(container.env)
        requests = (*given.values.items(), *given.requirements)
        kept = replace(
            existing_devices.keep_evidence(container),
            annotations={},
            env=tuple([self._same(f"{name}={value}") for name, value in requests]),
        )
        size = _size(kept)
        if size > self._room:
            self._is_complete = False
            return
        self._room -= size
        self._early.setdefault(kept.pod_id, []).append(kept)

    def _same(self, text: str) -> str:
        return self._texts.setdefault(text, text)

    def _judge(self, container: Container, context: DecisionContext) -> None:
        pod = self._pods.get(container.pod_id)
        if pod is None:
            return
        asked = request.requesting_annotations(
            pod.annotations, container.name, context.policy.settings.annotations
        )
        others = existing_devices.injected_by_another(container, asked, container.annotations, MARK)
        self._foreign |= dict.fromkeys(others)
        found = _missed(pod, container, context)
        if found and not others:
            self._missed.append(found)


def _abridged(pod: Pod, context: DecisionContext) -> Pod | None:
    """Return POD with what counts of it, None where nothing does: labels and annotations may be long."""
    policy = context.policy
    grant = policy.grant(pod)
    if not grant.rows and not grant.administers:
        return None
    prefixes = tuple(prefix for reader in policy.settings.annotations for prefix in request.PREFIXES[reader])
    named = {name for row in policy.settings.allow for name, _ in row.labels}
    return replace(
        pod,
        labels={name: text for name, text in pod.labels.items() if name in named},
        annotations={name: text for name, text in pod.annotations.items() if name.startswith(prefixes)},
    )


def _size(container: Container) -> int:
    texts = (*container.env, *container.devices, *container.cdi_devices, container.name, container.pod_id)
    return _EARLY_BYTES + sum(map(len, texts))


def _missed(pod: Pod, container: Container, context: DecisionContext) -> MissedContainer | None:
    decision = context.decide(pod, container)
    if decision.outcome not in {"inject", "refuse"}:
        return None
    names = container_name(pod, container)
    return MissedContainer(
        namespace=names.namespace,
        pod=names.pod,
        container=names.container,
        devices=decision.devices[:_MAX_NAMED],
        reason=shorten(decision.reason) or "it was started while no plugin was registered",
    )
