"""Which devices a container gets, or why it must not start: ``decide``. Pure; ``cdigen resolve`` prints it.

What the container requests (``request``) and the policy lets count (``policy``), without what it has already
(``existing_devices``), as names that resolve (``select``), if driver and GPUs meet what the image requires
(``requirements``).
"""

from __future__ import annotations

from cdigen.nri.decision import existing_devices, request, requirements
from cdigen.nri.decision.machine import ALL
from cdigen.nri.decision.policy import ANNOTATION, ENVIRONMENT
from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.nri.decision.select import NONE, Choice, choose
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.nri.decision.machine import Machine
    from cdigen.nri.decision.policy import Grant, Policy
    from cdigen.nri.decision.requirements import Facts, Requirement
    from cdigen.nri.decision.select import DeviceNames
    from cdigen.nri.pods import Container, Pod

    Outcome = Literal["nothing", "served", "inject", "refuse"]

# Labels of a metric beside CAUSES, for where the policy only warns; docs/nri.md, "Metrics, status, log".
NOTES = (
    "not_counted", "overruled", "served", "nodes_without_driver", "none", "no_amd",
    "requirement_unknown", "raw_groups", "raw_rdt", "raw_permissions", "raw_owner",
)  # fmt: skip


@frozen
class Note:
    """Something that did not count, or was let pass: ``cause`` is one of NOTES or CAUSES."""

    cause: str
    text: str


@frozen
class Decision:
    """What becomes of a container.

    ``nothing``: it asks for nothing that counts; ``served``: it has what it asks for;
    ``inject``: it gets ``choices``; ``refuse``: it must not start, by ``cause`` and ``reason``.
    """

    outcome: Outcome
    choices: tuple[Choice, ...] = ()
    cause: str = ""
    reason: str = ""
    notes: tuple[Note, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices to inject, none twice."""
        return tuple(choice.device for choice in self.choices)


def decide(
    pod: Pod, container: Container, *, policy: Policy, names: DeviceNames, machine: Machine
) -> Decision:
    """Return what becomes of CONTAINER of POD on a host with the devices NAMES."""
    work = _DecisionRun(pod, container, policy, names, machine)
    try:
        return work.decision()
    except Refusal as refusal:
        return Decision(outcome="refuse", cause=refusal.cause, reason=refusal.reason, notes=tuple(work.notes))


class _DecisionRun:
    """One decision on its way; ``notes`` gathers what there is to say besides."""

    def __init__(
        self, pod: Pod, container: Container, policy: Policy, names: DeviceNames, machine: Machine
    ) -> None:
        self._pod = pod
        self._container = container
        self._policy = policy
        self._names = names
        self._machine = machine
        self._grant: Grant = policy.grant(pod)
        self._gpus = frozenset(row.kind for row in policy.gpu_kinds)
        self.notes: list[Note] = []

    def decision(self) -> Decision:
        given = request.variables(self._container.env)
        source, items = self._asked(given)
        if not items:
            return self._end("served" if self._is_marked(given) else "nothing")
        left = self._not_served(items, given)
        if not left:
            return self._end("served")
        choices = choose(
            left,
            gpu_kinds=self._gpu_kinds(source, given, left),
            names=self._names,
            machine=self._machine,
        )
        if not choices:
            self._note("none", "no GPU is asked for, and no spec offers the driver without one")
            return self._end("nothing")
        self._require(given, choices)
        return self._end("inject", choices)

    def _end(self, outcome: Outcome, choices: tuple[Choice, ...] = ()) -> Decision:
        return Decision(outcome=outcome, choices=choices, notes=tuple(self.notes))

    def _asked(self, given: request.Variables) -> tuple[str, tuple[request.DeviceRequest, ...]]:
        """Return what counts: the annotations, and without any the environment."""
        annotations, name = self._pod.annotations, self._container.name
        readers = self._policy.settings.annotations
        found = request.requesting_annotations(annotations, name, readers)
        if found and self._grant.counts(ANNOTATION):
            items = request.by_annotation(annotations, name, readers)
            if not items:
                self._overrule(found[0][0], given)
            return ANNOTATION, self._permitted(ANNOTATION, items)
        if found:
            self._not_allowed(found[0][0])
        if not request.environment_requests_devices(given):
            return ENVIRONMENT, ()
        if not self._grant.counts(ENVIRONMENT):
            self._note("not_counted", f"the environment does not count in {self._where()}")
            return ENVIRONMENT, ()
        return ENVIRONMENT, self._permitted(ENVIRONMENT, self._known(request.by_environment(given)))

    def _overrule(self, name: str, given: request.Variables) -> None:
        """Note that the annotation NAME, which is empty, takes back what the environment asks for."""
        is_spec = given.values.get(request.VISIBLE) == "void"
        if request.environment_requests_devices(given) and not is_spec and self._grant.counts(ENVIRONMENT):
            self._note("overruled", f"the annotation {name} is empty, so that the environment does not count")

    def _not_allowed(self, name: str) -> None:
        text = f"the annotation {name} does not count in {self._where()}"
        if self._policy.settings.default_action == "refuse":
            raise Refusal("default_action", f"{text}: see 'nri' in the configuration of cdigen")
        self._note("not_counted", text)

    def _where(self) -> str:
        handler = self._pod.runtime_handler
        at = f"the namespace {quote(self._pod.namespace)}"
        return f"{at} with the runtime handler {quote(handler)}" if handler else at

    def _known(self, items: tuple[request.DeviceRequest, ...]) -> tuple[request.DeviceRequest, ...]:
        """Return ITEMS without AMD GPUs where the host has no specs of them."""
        if self._names.has_kind(request.AMD_KIND):
            return items
        kept = tuple(item for item in items if item.kind != request.AMD_KIND or item.qualified)
        if len(kept) < len(items):
            self._note("no_amd", f"{request.AMD_VISIBLE} does not count: no spec of {request.AMD_KIND}")
        return kept

    def _permitted(
        self, source: str, items: tuple[request.DeviceRequest, ...]
    ) -> tuple[request.DeviceRequest, ...]:
        """Return those of ITEMS that count. Refusal: one that was named in full does not.

        Variables may stand in an image for every host; what names a kind is meant for this one.
        """
        gpu_kinds = tuple(row.kind for row in self._policy.gpu_kinds)
        permitted: dict[str, bool] = {}
        kept = []
        for item in items:
            kinds = (item.kind,) if item.kind else gpu_kinds
            if item.kind not in permitted:
                permitted[item.kind] = any(self._grant.permits(source, kind) for kind in kinds)
            if permitted[item.kind]:
                kept.append(item)
                continue
            why = (
                f"{item.origin} asks for {quote(item.token)} of {' or '.join(kinds)}, "
                f"which the policy does not allow in {self._where()}"
            )
            if item.qualified:
                raise Refusal("not_permitted", why)
            self._note("not_counted", why)
        return tuple(kept)

    def _not_served(
        self, items: tuple[request.DeviceRequest, ...], given: request.Variables
    ) -> tuple[request.DeviceRequest, ...]:
        found = existing_devices.injection_evidence(self._container, given.values.get(request.VISIBLE))
        left = []
        for item in items:
            nodes = self._machine.nodes(item.token) if item.kind in self._gpus else ()
            by = existing_devices.already_injected(found, item, gpu_kinds=self._gpus, nodes=nodes)
            if by:
                self._note("served", f"{quote(item.token)} ({item.origin}) is there already: {by}")
            else:
                left.append(item)
        if len(left) < len(items) and existing_devices.lacks_driver(found):
            text = "nodes of GPUs are there, and nothing shows that the driver's files are"
            # First: of many notes the last are not told.
            self.notes.insert(0, Note(cause="nodes_without_driver", text=text))
        return tuple(left)

    def _is_marked(self, given: request.Variables) -> bool:
        """Return whether the environment is that of a spec of GPUs, and the GPUs are there as well."""
        visible = given.values.get(request.VISIBLE)
        gpus = request.DeviceRequest(token=ALL, kind="", origin=request.VISIBLE)
        found = existing_devices.injection_evidence(self._container, visible)
        return visible == "void" and bool(
            existing_devices.already_injected(found, gpus, gpu_kinds=self._gpus)
        )

    def _gpu_kinds(
        self, source: str, given: request.Variables, items: tuple[request.DeviceRequest, ...]
    ) -> tuple[str, ...]:
        # Whoever names kinds has chosen by that.
        if all(item.kind for item in items):
            return ()
        return self._policy.kinds_giving(request.capabilities(given), self._grant, source)

    def _require(self, given: request.Variables, choices: tuple[Choice, ...]) -> None:
        """Judge what the image requires. Refusal: it is not met, or cannot be judged, and has to be."""
        mode = self._policy.settings.require
        theirs = [choice for choice in choices if request.is_nvidia(choice.kind)]
        if mode == "off" or not theirs:
            return
        try:
            rows = request.requirements(given)
            if not rows:
                return
            if self._machine.problem:
                names = ", ".join(name for name, _ in rows[:3])
                raise Refusal("no_inventory", f"{names} cannot be judged: {self._machine.problem}")
            self._judge(rows, theirs)
        except Refusal as refusal:
            if mode == "enforce":
                raise
            self._note(refusal.cause, refusal.reason)

    def _judge(self, rows: tuple[tuple[str, str], ...], choices: list[Choice]) -> None:
        candidates = self._facts(choices)
        for name, text in rows:
            requirement = requirements.parse(text)
            for device, facts in candidates:
                if not _holds(name, requirement, facts):
                    raise Refusal("requirement", f"{name}={quote(text)} is not met: {_said(device, facts)}")
            missing = requirements.unknown(requirement, candidates[0][1])
            if missing:
                self._note("requirement_unknown", f"{name} asks for {', '.join(missing)}, not known here")

    def _facts(self, choices: list[Choice]) -> list[tuple[str, Facts]]:
        """Return what is known of each GPU that is given, and at least of the driver."""
        found: dict[tuple[str, tuple[str, ...]], tuple[str, Facts]] = {}
        for choice in choices:
            kind, _, name = choice.device.partition("=")
            if not request.is_nvidia_gpu(kind):
                continue
            gpu = self._machine.find(name)
            for one in self._machine.models() if name == ALL else (gpu,) if gpu else ():
                # GPUs of one model are alike: one stands for all.
                found.setdefault((one.facts.arch, one.facts.brands), (one.names[0], one.facts))
        return list(found.values()) or [("", self._machine.facts)]

    def _note(self, cause: str, text: str) -> None:
        self.notes.append(Note(cause=cause, text=text))


def _holds(name: str, requirement: Requirement, facts: Facts) -> bool:
    try:
        return requirements.holds(requirement, facts)
    except ValueError as error:
        raise Refusal("requirement_malformed", f"{name} cannot be read: {error}") from None


def _said(device: str, facts: Facts) -> str:
    known = {
        "driver": facts.driver,
        "cuda": facts.cuda,
        "arch": facts.arch,
        "brand": " or ".join(facts.brands),
    }
    has = ", ".join(f"{name} {value}" for name, value in known.items() if value)
    return f"GPU {device} has {has}" if device and device != NONE else f"the host has {has}"
