"""Containers that were started without their GPU: ``audit`` of the state that a runtime reports. Pure.

While no plugin is registered, containers start as if there were none. NRI before 0.10 cannot prevent that, so
these containers are at least named as soon as the plugin registers.
"""

from __future__ import annotations

from cdigen.nri.book import MAX_HELD, Held
from cdigen.nri.decision import existing_devices
from cdigen.nri.decision.annotations import requesting_annotations
from cdigen.nri.decision.answer import MARK
from cdigen.nri.decision.handover import believed
from cdigen.nri.pods import ContainerName, container_name, shorten, shorten_name
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
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


_MAX_NAMED = 16


@frozen
class MissedContainer:
    """A running container that requested ``devices`` and has not got them, for ``reason``."""

    name: ContainerName
    devices: tuple[str, ...]
    reason: str


@frozen
class AuditResult:
    """``missed`` containers, and ``foreign`` annotations, which another plugin serves as well.

    ``given``: those that have devices of ours, by their marks.
    ``is_complete``: all that the runtime told was looked at.
    """

    missed: tuple[MissedContainer, ...]
    foreign: tuple[str, ...]
    is_complete: bool
    given: tuple[Held, ...] = ()


def audit(parts: Sequence[Part], context: DecisionContext, *, is_complete: bool = True) -> AuditResult:
    """Return which containers in PARTS, of one runtime, were missed, by the CONTEXT of now.

    A container may be in another part than its pod. IS_COMPLETE: they are all that the runtime told.
    """
    # None: a pod whose requests do not count. Names are for those that have devices.
    pods: dict[str, Pod | None] = {}
    names: dict[str, tuple[str, str]] = {}
    # Pods that have our mark themselves, which a runtime may pass on to their containers.
    bearing: set[str] = set()
    for one in (one for part in parts for one in part.pods()):
        pods[one.id] = one if _may_ask(one, context) else None
        names[one.id] = shorten_name(one.namespace), shorten_name(one.name)
        if MARK in one.annotations:
            bearing.add(one.id)
    given: list[Held] = []
    missed: list[MissedContainer] = []
    foreign: dict[str, None] = {}
    for container in (container for part in parts for container in part.containers()):
        devices = believed(container, trusts_mark=container.pod_id not in bearing)
        if devices is not None:
            if len(given) >= MAX_HELD:
                continue
            namespace, pod_name = names.get(container.pod_id, ("", ""))
            named = ContainerName(namespace=namespace, pod=pod_name, container=shorten_name(container.name))
            given.append(Held(id=container.id, name=named, devices=devices))
            continue
        if not container.pod_id:
            # It is being removed: containerd has its id, and nothing else (nri_api_linux.go, nriContainer).
            continue
        if container.pod_id not in pods:
            # Nobody can say whether it may ask.
            is_complete = False
        pod = pods.get(container.pod_id)
        if pod is None:
            continue
        others = _others(pod, container, context)
        foreign |= dict.fromkeys(others)
        if not others and (found := _missed(pod, container, context)):
            missed.append(found)
    is_complete = is_complete and not any(part.unread for part in parts)
    return AuditResult(
        missed=tuple(missed), foreign=tuple(foreign), is_complete=is_complete, given=tuple(given)
    )


def _may_ask(pod: Pod, context: DecisionContext) -> bool:
    grant = context.policy.grant(pod)
    return bool(grant.rows or grant.administers)


def _others(pod: Pod, container: Container, context: DecisionContext) -> tuple[str, ...]:
    """Return the annotations that count and that another plugin has served."""
    readers = context.policy.settings.annotations
    asked = requesting_annotations(pod.annotations, container.name, readers)
    return existing_devices.injected_by_another(container, asked)


def _missed(pod: Pod, container: Container, context: DecisionContext) -> MissedContainer | None:
    decision = context.decide(pod, container)
    if decision.outcome not in {"inject", "refuse"}:
        return None
    return MissedContainer(
        name=container_name(pod, container),
        devices=decision.devices[:_MAX_NAMED],
        reason=shorten(decision.reason) or "it was started while no plugin was registered",
    )
