"""``audit``: a pure function that finds the running containers without their requested devices.

While no plugin is registered, containers start without devices. NRI before 0.10 cannot prevent such starts.
Therefore the plugin reports these containers after its registration.
"""

from __future__ import annotations

from cdigen.nri.decision.limits import existing_devices
from cdigen.nri.decision.request.annotations import requesting_annotations
from cdigen.nri.decision.result.handover import verified_markers
from cdigen.nri.injected_containers import MAX_CONTAINERS, InjectedContainer
from cdigen.nri.pods import ContainerName, container_name, shorten, shorten_name
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Protocol

    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.pods import Container, Pod

    class StatePart(Protocol):
        """A part of the runtime's pods and containers.

        ``unread`` is the number of invalid pods and containers that were found so far.
        """

        unread: int

        def pods(self) -> Iterator[Pod]:
            """Yield the valid pods."""

        def containers(self) -> Iterator[Container]:
            """Yield the valid containers."""


_MAX_NAMED = 16


@frozen
class UninjectedContainer:
    """A running container without the requested ``devices``; ``reason`` is the cause."""

    name: ContainerName
    devices: tuple[str, ...]
    reason: str


@frozen
class AuditResult:
    """The result of an audit.

    ``uninjected`` are the containers without their requested devices. ``foreign_annotations`` are the
    annotations for which another plugin has injected devices. ``injected`` are the containers with a valid
    annotation of cdigen. ``is_complete`` is true if the audit read all pods and containers of the runtime.
    """

    uninjected: tuple[UninjectedContainer, ...]
    foreign_annotations: tuple[str, ...]
    is_complete: bool
    injected: tuple[InjectedContainer, ...] = ()


def audit(parts: Sequence[StatePart], context: DecisionContext, *, is_complete: bool = True) -> AuditResult:
    """Return the result of the audit of PARTS, the pods and containers of one runtime.

    CONTEXT contains the policy and the devices of the host. A container can be in another part than its pod.
    IS_COMPLETE is true if PARTS contain all pods and containers of the runtime.
    """
    # In ``pods``, a pod without permitted requests has the value None. ``names`` is for injected containers.
    pods: dict[str, Pod | None] = {}
    names: dict[str, tuple[str, str]] = {}
    for sandbox in (sandbox for part in parts for sandbox in part.pods()):
        pods[sandbox.id] = sandbox if _may_request(sandbox, context) else None
        names[sandbox.id] = shorten_name(sandbox.namespace), shorten_name(sandbox.name)
    injected: list[InjectedContainer] = []
    uninjected: list[UninjectedContainer] = []
    foreign_annotations: dict[str, None] = {}
    for container in (container for part in parts for container in part.containers()):
        devices = verified_markers(container)
        if devices is not None:
            if len(injected) >= MAX_CONTAINERS:
                continue
            namespace, pod_name = names.get(container.pod_id, ("", ""))
            named = ContainerName(namespace=namespace, pod=pod_name, container=shorten_name(container.name))
            injected.append(InjectedContainer(id=container.id, name=named, devices=devices))
            continue
        if not container.pod_id:
            # The runtime is removing the container. containerd then reports only the id of the container
            # (nri_api_linux.go, nriContainer).
            continue
        if container.pod_id not in pods:
            # Without the pod, the permissions of the container are unknown.
            is_complete = False
        pod = pods.get(container.pod_id)
        if pod is None:
            continue
        by_others = _injected_by_others(pod, container, context)
        foreign_annotations |= dict.fromkeys(by_others)
        if not by_others and (found := _uninjected(pod, container, context)):
            uninjected.append(found)
    is_complete = is_complete and not any(part.unread for part in parts)
    return AuditResult(
        uninjected=tuple(uninjected),
        foreign_annotations=tuple(foreign_annotations),
        is_complete=is_complete,
        injected=tuple(injected),
    )


def _may_request(pod: Pod, context: DecisionContext) -> bool:
    grant = context.policy.grant(pod)
    return bool(grant.rows or grant.administers)


def _injected_by_others(pod: Pod, container: Container, context: DecisionContext) -> tuple[str, ...]:
    """Return the configured annotations of CONTAINER that another plugin has handled."""
    readers = context.policy.settings.annotations
    annotations = requesting_annotations(pod.annotations, container.name, readers)
    return existing_devices.injected_by_other_plugin(container, annotations)


def _uninjected(pod: Pod, container: Container, context: DecisionContext) -> UninjectedContainer | None:
    decision = context.decide(pod, container)
    if decision.outcome not in {"inject", "refuse"}:
        return None
    return UninjectedContainer(
        name=container_name(pod, container),
        devices=decision.devices[:_MAX_NAMED],
        reason=shorten(decision.reason) or "the container started while no plugin was registered",
    )
