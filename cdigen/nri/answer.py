"""What the runtime is told of one container, by what is known and what the runtime can do. Pure.

``created`` answers CreateContainer, ``validated`` judges what all plugins together have made of a container.
"""

from __future__ import annotations

from functools import partial

from cdigen.nri.pods import Adjustment
from cdigen.nri.raw import raw_adjustment, read_numbers
from cdigen.nri.refusal import Refusal
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.nri.compat import Abilities
    from cdigen.nri.decide import Decision, Note, Outcome
    from cdigen.nri.known import Known
    from cdigen.nri.pods import Container, Pod

# The annotation that says on a container what it got from us: an audit finds by it who got nothing.
MARK = "cdigen.dev/injected"
_MAX_MARK = 1024


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


def created(pod: Pod, container: Container, known: Known, abilities: Abilities) -> Answer:
    """Return what becomes of CONTAINER, which is about to be created."""
    decision = known.decisions.decide(
        pod, container, policy=known.policy, names=known.names, machine=known.machine
    )
    if decision.outcome != "inject":
        return Answer(
            outcome=decision.outcome, cause=decision.cause, reason=decision.reason, notes=decision.notes
        )
    try:
        adjustment, notes = _adjustment(decision, known, abilities)
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
    pod: Pod, container: Container, adjustment: Adjustment, known: Known, abilities: Abilities
) -> str:
    """Return why CONTAINER must not start with ADJUSTMENT, empty where it may.

    CONTAINER is as it was asked for. So it is seen where we were not asked, our answer came too late, or
    another plugin has taken something away.
    """
    wanted = created(pod, container, known, abilities)
    if wanted.outcome == "refuse":
        return wanted.reason
    if wanted.outcome != "inject":
        return ""
    missing = [name for name in wanted.adjustment.cdi_devices if name not in adjustment.cdi_devices]
    given = {device.path for device in adjustment.devices}
    missing += [device.path for device in wanted.adjustment.devices if device.path not in given]
    if not missing:
        return ""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    asked = ", ".join(wanted.devices[:6])
    return f"the container asks for {asked} and would start without {missing[0]}{more}"


def _adjustment(
    decision: Decision, known: Known, abilities: Abilities
) -> tuple[Adjustment, tuple[Note, ...]]:
    """Return how the runtime is told of DECISION's devices; Refusal where it could not give them."""
    devices = decision.devices
    marks = {MARK: _mark(devices)}
    if abilities.cdi == "injects":
        return Adjustment(annotations=marks, cdi_devices=devices), ()
    if abilities.takes_devices and known.prepared is not None:
        # Who defines a device is read after it is known to be there.
        if gone := next((name for name in devices if name not in known.prepared), ""):
            raise Refusal("unknown_device", f"the spec of {gone} has gone")
        made, notes = raw_adjustment(
            [(known.prepared[name], name.partition("=")[2]) for name in devices],
            partial(read_numbers, known.nodes),
        )
        return replace(made, annotations=marks), notes
    raise Refusal("runtime", _inability(abilities))


def _mark(devices: tuple[str, ...]) -> str:
    text = ",".join(devices)
    return text if len(text) <= _MAX_MARK else f"{len(devices)} devices"


def _inability(abilities: Abilities) -> str:
    name = f"{abilities.runtime or 'the runtime'} {abilities.version}".strip()
    if abilities.cdi == "refuses":
        return f"{name} takes no devices from NRI plugins: ask by its own option --device instead"
    does = "drops CDI devices of NRI plugins without a word"
    said = does if abilities.cdi == "drops" else f"is not known to cdigen, and may be one that {does}"
    remedy = f"; {abilities.remedy}" if abilities.remedy else ""
    return f"{name} {said}{remedy}; 'nri: dropper: raw' in the configuration of cdigen gives nodes and mounts"
