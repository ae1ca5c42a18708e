"""The adjustment of one container, and the validation of an adjustment.

``adjust_container`` returns the result for CreateContainer. ``validate_adjustment`` checks an adjustment
that contains the changes of all plugins. The functions do no I/O except reads of device nodes.
"""

from __future__ import annotations

from functools import partial

from cdigen.model.names import NONE
from cdigen.nri.decision.raw import raw_adjustment, read_node
from cdigen.nri.decision.request.refusal import InjectionRefusal, quote
from cdigen.nri.decision.result.adjustments import apply_adjustment, subtract_adjustment
from cdigen.nri.pods import Adjustment
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.decision.decide import IgnoredRequest, InjectionDecision, Outcome
    from cdigen.nri.decision.result.compat import Abilities
    from cdigen.nri.pods import Container, Pod

# This annotation of a container lists the devices that cdigen injected. The audit and the validation read the
# annotation. 256 device names with UUIDs have 14 kB.
INJECTED_ANNOTATION = "cdigen.dev/injected"


@frozen
class InjectionResult:
    """The result for one container.

    ``adjustment`` contains the changes. It is empty if the container stays unchanged. ``cause`` and
    ``reason`` describe why a refused container must not start.
    """

    outcome: Outcome
    adjustment: Adjustment = Adjustment()
    devices: tuple[str, ...] = ()
    cause: str = ""
    reason: str = ""
    ignored_requests: tuple[IgnoredRequest, ...] = ()


@frozen
class AdjustmentValidation:
    """The result of a validation.

    ``reason`` describes why the container must not start. It is empty if the container may start.
    ``missing`` are the devices and mounts that the container would not have.
    """

    reason: str = ""
    missing: tuple[str, ...] = ()


def adjust_container(
    pod: Pod, container: Container, context: DecisionContext, abilities: Abilities
) -> InjectionResult:
    """Return the result for CONTAINER before its creation."""
    decision = context.decide(pod, container)
    if decision.outcome != "inject":
        return InjectionResult(
            outcome=decision.outcome,
            cause=decision.cause,
            reason=decision.reason,
            ignored_requests=decision.ignored_requests,
        )
    try:
        adjustment, ignored_requests = _make_adjustment(decision, container, context, abilities)
    except InjectionRefusal as refusal:
        return refuse_container(refusal.cause, refusal.reason, decision.ignored_requests)
    return InjectionResult(
        outcome="inject",
        adjustment=adjustment,
        devices=decision.devices,
        ignored_requests=(*decision.ignored_requests, *ignored_requests),
    )


def refuse_container(
    cause: str, reason: str, ignored_requests: tuple[IgnoredRequest, ...] = ()
) -> InjectionResult:
    """Return the refusal of a container for CAUSE and REASON."""
    return InjectionResult(outcome="refuse", cause=cause, reason=reason, ignored_requests=ignored_requests)


def validate_adjustment(
    pod: Pod, container: Container, adjustment: Adjustment, context: DecisionContext, abilities: Abilities
) -> AdjustmentValidation:
    """Return the result of the validation of ADJUSTMENT, which contains the changes of all plugins.

    The validation detects three errors: the runtime did not call cdigen, cdigen's response was too late, or
    another plugin removed a device.

    CONTAINER is the original container. In CreateContainer, the container has the changes of earlier plugins.
    Therefore the validation first applies the changes of the other plugins to CONTAINER. cdigen's own changes
    are not applied. With cdigen's device nodes, the container would already have its devices. With the
    variables of the specs (NVIDIA_VISIBLE_DEVICES=void), the container would request nothing.

    INJECTED_ANNOTATION contains the names of the devices that cdigen injected. cdigen's own changes are
    computed from these names. A forged annotation has no effect on the result, because the validation
    searches ADJUSTMENT for the requested devices.
    """
    try:
        others_changes = _without_own_changes(adjustment, container, context, abilities)
    except InjectionRefusal as refusal:
        return AdjustmentValidation(reason=refusal.reason)
    expected = adjust_container(pod, apply_adjustment(container, others_changes), context, abilities)
    if expected.outcome == "refuse":
        return AdjustmentValidation(reason=expected.reason)
    if expected.outcome != "inject":
        return AdjustmentValidation()
    missing = _missing_devices(expected.adjustment, adjustment)
    if not missing:
        return AdjustmentValidation()
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    requested = ", ".join(expected.devices[:6])
    reason = f"the container requests {requested} and would start without {missing[0]}{more}"
    return AdjustmentValidation(reason=reason, missing=tuple(missing))


def _without_own_changes(
    adjustment: Adjustment, container: Container, context: DecisionContext, abilities: Abilities
) -> Adjustment:
    """Return ADJUSTMENT of CONTAINER without cdigen's changes.

    Raise InjectionRefusal if cdigen's changes cannot be computed.
    """
    devices = adjustment.annotations.get(INJECTED_ANNOTATION)
    if devices is None or abilities.cdi == "injects" or not context.injects_raw:
        # cdigen's changes contain only CDI devices, which ``apply_adjustment`` does not apply.
        return subtract_adjustment(adjustment, Adjustment(), mark=INJECTED_ANNOTATION)
    own_changes, _ = _raw_changes(tuple(devices.split(",")), container, context)
    return subtract_adjustment(adjustment, own_changes, mark=INJECTED_ANNOTATION)


def _missing_devices(expected: Adjustment, actual: Adjustment) -> list[str]:
    """Return the devices and mounts of EXPECTED that ACTUAL does not have.

    Hooks are not compared, because a plugin cannot remove hooks. Variables are not compared, because other
    plugins may change variables.
    """
    devices, nodes = set(actual.cdi_devices), {device.path for device in actual.devices}
    # Each device of a kind also injects the driver's files, so the device NONE of the kind is not missing.
    devices |= {f"{name.partition('=')[0]}={NONE}" for name in actual.cdi_devices}
    mounts = {mount.destination for mount in actual.mounts}
    return [
        *[name for name in expected.cdi_devices if name not in devices],
        *[device.path for device in expected.devices if device.path not in nodes],
        *[mount.destination for mount in expected.mounts if mount.destination not in mounts],
    ]


def _make_adjustment(
    decision: InjectionDecision, container: Container, context: DecisionContext, abilities: Abilities
) -> tuple[Adjustment, tuple[IgnoredRequest, ...]]:
    """Return the adjustment that injects the devices of DECISION into CONTAINER, and the ignored parts.

    Raise InjectionRefusal if the runtime cannot inject the devices.
    """
    devices = decision.devices
    annotations = {INJECTED_ANNOTATION: ",".join(devices)}
    if abilities.cdi == "injects":
        return Adjustment(annotations=annotations, cdi_devices=devices), ()
    if abilities.takes_devices and context.injects_raw:
        adjustment, ignored_requests = _raw_changes(devices, container, context)
        return replace(adjustment, annotations=annotations), ignored_requests
    raise InjectionRefusal("runtime", _reason_without_cdi(abilities))


def _raw_changes(
    devices: tuple[str, ...], container: Container, context: DecisionContext
) -> tuple[Adjustment, tuple[IgnoredRequest, ...]]:
    """Return the adjustment of CONTAINER with the nodes and mounts of DEVICES, and the ignored parts.

    Raise InjectionRefusal if a device cannot be injected as device nodes and mounts.
    """
    specs = [(name, context.prepared(name)) for name in devices]
    # The annotation with the names can come from another plugin, so a spec can be missing.
    if missing := next((name for name, spec in specs if spec is None), ""):
        raise InjectionRefusal("unknown_device", f"no spec defines {quote(missing)} any more")
    # The context is used until a spec changes. Until then, a missing folder of nodes (/dev/dri) can appear.
    context.nodes.forget_missing()
    return raw_adjustment(
        [(spec, name.partition("=")[2]) for name, spec in specs if spec is not None],
        partial(read_node, context.nodes),
        maps_ids=container.has_user_namespace,
    )


def _reason_without_cdi(abilities: Abilities) -> str:
    name = f"{abilities.runtime or 'the runtime'} {abilities.version}".strip()
    if abilities.cdi == "refuses":
        return f"{name} rejects devices of NRI plugins: use the option --device"
    behaviour = "drops CDI devices of NRI plugins silently"
    if abilities.cdi == "drops":
        problem = behaviour
    else:
        problem = f"is unknown to cdigen, and may be a runtime that {behaviour}"
    remedy = f"; {abilities.remedy}" if abilities.remedy else ""
    raw = "'nri: unsupported_cdi: raw' in cdigen's configuration injects nodes and mounts instead"
    return f"{name} {problem}{remedy}; {raw}"
