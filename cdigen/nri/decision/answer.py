"""What the runtime is answered for one container: ``created`` and ``validated``. Pure.

``created`` answers CreateContainer, ``validated`` judges what all plugins together have made of a container.
"""

from __future__ import annotations

from functools import partial

from cdigen.model.names import NONE
from cdigen.nri.decision.adjustments import apply_adjustment, subtract_adjustment
from cdigen.nri.decision.raw import raw_adjustment, read_numbers
from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.nri.pods import Adjustment
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.decision.compat import Abilities
    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.decision.decide import Decision, Note, Outcome
    from cdigen.nri.pods import Container, Pod

# The annotation that says on a container what it got from us: an audit finds by it who got nothing, and a
# validator by which devices it was. 256 names of UUIDs are 14 kB.
MARK = "cdigen.dev/injected"


@frozen
class Answer:
    """What becomes of a container, and why.

    ``adjustment`` holds what it gets, nothing where it is as it was; one that is refused must not start, by
    ``cause`` and ``reason``.
    """

    outcome: Outcome
    adjustment: Adjustment = Adjustment()
    devices: tuple[str, ...] = ()
    cause: str = ""
    reason: str = ""
    notes: tuple[Note, ...] = ()


@frozen
class Verdict:
    """Why a container must not start, empty where it may, and what it would lack."""

    reason: str = ""
    missing: tuple[str, ...] = ()


def created(pod: Pod, container: Container, context: DecisionContext, abilities: Abilities) -> Answer:
    """Return what becomes of CONTAINER, which is about to be created."""
    decision = context.decide(pod, container)
    if decision.outcome != "inject":
        return Answer(
            outcome=decision.outcome, cause=decision.cause, reason=decision.reason, notes=decision.notes
        )
    try:
        adjustment, notes = _adjustment(decision, context, abilities)
    except Refusal as refusal:
        return refused(refusal.cause, refusal.reason, decision.notes)
    return Answer(
        outcome="inject",
        adjustment=adjustment,
        devices=decision.devices,
        notes=(*decision.notes, *notes),
    )


def refused(cause: str, reason: str, notes: tuple[Note, ...] = ()) -> Answer:
    """Return the refusal for REASON."""
    return Answer(outcome="refuse", cause=cause, reason=reason, notes=notes)


def validated(
    pod: Pod, container: Container, adjustment: Adjustment, context: DecisionContext, abilities: Abilities
) -> Verdict:
    """Return whether CONTAINER may start with ADJUSTMENT.

    So it is seen where we were not asked, our answer came too late, or another plugin has taken something
    away. CONTAINER is as it was asked for: what the others have made of it is applied first, as ``created``
    sees what those before us have. Our own part is not: with our nodes the container would be one that has
    its devices already, and with the variables of our specs one that asks for nothing. It is told by what
    MARK names, made anew; who sets that annotation in our place gains nothing, since what is missing is
    looked for in ADJUSTMENT itself.
    """
    try:
        theirs = _of_others(adjustment, context, abilities)
    except Refusal as refusal:
        return Verdict(reason=refusal.reason)
    wanted = created(pod, apply_adjustment(container, theirs), context, abilities)
    if wanted.outcome == "refuse":
        return Verdict(reason=wanted.reason)
    if wanted.outcome != "inject":
        return Verdict()
    missing = _missing(wanted.adjustment, adjustment)
    if not missing:
        return Verdict()
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    asked = ", ".join(wanted.devices[:6])
    reason = f"the container asks for {asked} and would start without {missing[0]}{more}"
    return Verdict(reason=reason, missing=tuple(missing))


def _of_others(adjustment: Adjustment, context: DecisionContext, abilities: Abilities) -> Adjustment:
    """Return ADJUSTMENT without what we gave; Refusal: that cannot be told any more."""
    devices = adjustment.annotations.get(MARK)
    if devices is None or abilities.cdi == "injects" or not context.gives_raw:
        # What we gave, if anything, are CDI devices, which are not part of a container yet.
        return subtract_adjustment(adjustment, Adjustment(), mark=MARK)
    ours, _ = _raw(tuple(devices.split(",")), context)
    return subtract_adjustment(adjustment, ours, mark=MARK)


def _missing(wanted: Adjustment, given: Adjustment) -> list[str]:
    """Return what WANTED has and GIVEN lacks; hooks are never taken away, and variables may be others'."""
    devices, nodes = set(given.cdi_devices), {device.path for device in given.devices}
    # Each device of a kind comes with the driver's files.
    devices |= {f"{name.partition('=')[0]}={NONE}" for name in given.cdi_devices}
    mounts = {mount.destination for mount in given.mounts}
    return [
        *[name for name in wanted.cdi_devices if name not in devices],
        *[device.path for device in wanted.devices if device.path not in nodes],
        *[mount.destination for mount in wanted.mounts if mount.destination not in mounts],
    ]


def _adjustment(
    decision: Decision, context: DecisionContext, abilities: Abilities
) -> tuple[Adjustment, tuple[Note, ...]]:
    """Return how the runtime is told of DECISION's devices; Refusal where it could not give them."""
    devices = decision.devices
    marks = {MARK: ",".join(devices)}
    if abilities.cdi == "injects":
        return Adjustment(annotations=marks, cdi_devices=devices), ()
    if abilities.takes_devices and context.gives_raw:
        made, notes = _raw(devices, context)
        return replace(made, annotations=marks), notes
    raise Refusal("runtime", _inability(abilities))


def _raw(devices: tuple[str, ...], context: DecisionContext) -> tuple[Adjustment, tuple[Note, ...]]:
    """Return what gives DEVICES by nodes and mounts; Refusal where that cannot be."""
    found = [(name, context.prepared(name)) for name in devices]
    # Another plugin may have written their names.
    if gone := next((name for name, spec in found if spec is None), ""):
        raise Refusal("unknown_device", f"the spec of {quote(gone)} has gone")
    # The context lasts until a spec changes; a folder of nodes, such as /dev/dri, may come before that.
    context.nodes.forget_missing()
    return raw_adjustment(
        [(spec, name.partition("=")[2]) for name, spec in found if spec is not None],
        partial(read_numbers, context.nodes),
    )


def _inability(abilities: Abilities) -> str:
    name = f"{abilities.runtime or 'the runtime'} {abilities.version}".strip()
    if abilities.cdi == "refuses":
        return f"{name} takes no devices from NRI plugins: ask by its own option --device instead"
    does = "drops CDI devices of NRI plugins silently"
    said = does if abilities.cdi == "drops" else f"is not known to cdigen, and may be one that {does}"
    remedy = f"; {abilities.remedy}" if abilities.remedy else ""
    raw = "'nri: unsupported_cdi: raw' in cdigen's configuration gives nodes and mounts"
    return f"{name} {said}{remedy}; {raw}"
