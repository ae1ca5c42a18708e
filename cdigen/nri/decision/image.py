"""What an image by itself asks for and requires, whoever runs it: ``judged`` adds it to a decision. Pure.

Beside the variables of its environment these are the labels of nvidia-docker 1.0 (tag v1.0.1,
src/nvidia/volumes.go, src/nvidia-docker/local.go): one names the volume that gave all GPUs and the driver,
one the CUDA that the driver has to serve.
"""

from __future__ import annotations

import re

from cdigen.nri.decision import environment, requirements
from cdigen.nri.decision.decide import Note
from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.nri.decision.decide import Decision
    from cdigen.nri.decision.machine import Machine
    from cdigen.nri.decision.policy import Policy
    from cdigen.nri.decision.requirements import Facts, Requirement
    from cdigen.nri.decision.select import Choice

CUDA_LABEL = "com.nvidia.cuda.version"
VOLUMES_LABEL = "com.nvidia.volumes.needed"
# The one volume that nvidia-docker-plugin had.
_VOLUME = "nvidia_driver"
_VERSION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})", re.ASCII)


@frozen
class ImageConfig:
    """What an image is configured with: its ``KEY=value`` environment, and its labels."""

    environment: tuple[str, ...]
    labels: Mapping[str, str]

    @property
    def asks_by_label(self) -> bool:
        """Whether it asks for GPUs by its label alone, as images of nvidia-docker 1.0 do."""
        asks = _VOLUME in self.labels.get(VOLUMES_LABEL, "").split()
        return asks and not any(entry.startswith(f"{environment.VISIBLE}=") for entry in self.environment)

    @property
    def requests(self) -> tuple[str, ...]:
        """Its environment, with what its label asks for."""
        return (*self.environment, *((f"{environment.VISIBLE}=all",) if self.asks_by_label else ()))


@frozen
class Judgement:
    """Whether the requirement ``text`` of ``origin``, a variable or a label, is met, and by what."""

    origin: str
    text: str
    is_met: bool
    has: str


def judged(
    decision: Decision,
    image: ImageConfig,
    given: tuple[str, ...],
    *,
    policy: Policy,
    machine: Machine,
) -> tuple[Decision, tuple[Judgement, ...]]:
    """Return DECISION on a container of IMAGE, and how the host meets each thing that this requires.

    GIVEN is the container's whole environment. What is required is judged whether or not the policy lets the
    container have devices; one GPU of the host that fits is enough. Where it is not met, and the policy
    enforces that, the decision is to refuse.
    """
    mode = policy.settings.require
    noted = replace(decision, choices=_renamed(decision, image), notes=(*decision.notes, *_notes(image)))
    try:
        rows = _rows(image, environment.variables(given, policy.makers))
        if rows and machine.problem:
            names = ", ".join(name for name, _ in rows[:3])
            raise Refusal("no_inventory", f"{names} cannot be judged: {machine.problem}")
        found = tuple(_judgement(name, text, machine) for name, text in rows)
    except Refusal as refusal:
        return _against(noted, mode, refusal), ()
    unmet = next((row for row in found if not row.is_met), None)
    if unmet is None:
        return noted, found
    reason = f"{unmet.origin}={quote(unmet.text)} is not met: the host has {unmet.has}"
    return _against(noted, mode, Refusal("requirement", reason)), found


def _against(decision: Decision, mode: str, refusal: Refusal) -> Decision:
    if decision.outcome == "refuse" or mode == "off":
        return decision
    if mode == "enforce":
        return replace(decision, outcome="refuse", choices=(), cause=refusal.cause, reason=refusal.reason)
    note = Note(cause=refusal.cause, text=refusal.reason)
    return decision if note in decision.notes else replace(decision, notes=(*decision.notes, note))


def _rows(image: ImageConfig, given: environment.Variables) -> tuple[tuple[str, str], ...]:
    """Return what IMAGE requires, each with its variable or label; Refusal: it cannot be read."""
    rows = environment.requirements(given)
    text = image.labels.get(CUDA_LABEL, "").strip()
    if not text or not given.requires:
        return rows
    if not _VERSION.fullmatch(text):
        raise Refusal("requirement_malformed", f"{CUDA_LABEL}={quote(text)} is not a version")
    return (*rows, (CUDA_LABEL, f"cuda>={text}"))


def _judgement(origin: str, text: str, machine: Machine) -> Judgement:
    wanted = requirements.parse(text)
    models = [gpu.facts for gpu in machine.models()] or [machine.facts]
    is_met = any(_holds(origin, wanted, facts) for facts in models)
    return Judgement(origin=origin, text=text, is_met=is_met, has=_said(models[0]))


def _holds(origin: str, wanted: Requirement, facts: Facts) -> bool:
    try:
        return requirements.holds(wanted, facts)
    except ValueError as error:
        raise Refusal("requirement_malformed", f"{origin} cannot be read: {error}") from None


def _said(facts: Facts) -> str:
    known = {"driver": facts.driver, "cuda": facts.cuda, "arch": facts.arch}
    return ", ".join(f"{name} {value}" for name, value in known.items() if value) or "nothing that is known"


def _renamed(decision: Decision, image: ImageConfig) -> tuple[Choice, ...]:
    if not image.asks_by_label:
        return decision.choices
    label = f"label {VOLUMES_LABEL}"
    return tuple(
        replace(choice, origin=label) if choice.origin == environment.VISIBLE else choice
        for choice in decision.choices
    )


def _notes(image: ImageConfig) -> tuple[Note, ...]:
    others = [name for name in image.labels.get(VOLUMES_LABEL, "").split() if name != _VOLUME]
    if not others:
        return ()
    text = f"the label {VOLUMES_LABEL} names {quote(others[0])}, and only {_VOLUME} was ever a volume"
    return (Note(cause="not_counted", text=text),)
