"""Which devices a container gets, or why it must not start: ``decide``. Pure; ``cdigen resolve`` prints it.

What the container requests and the policy lets count (``counted``), without what it has already
(``existing_devices``), as names that resolve (``select``), if driver and GPUs meet what the image requires
(``requirements``).
"""

from __future__ import annotations

from functools import partial

from cdigen.model.names import NONE
from cdigen.nri.decision import environment, existing_devices, mounts, requirements
from cdigen.nri.decision.counted import CountedRequests
from cdigen.nri.decision.machine import ALL
from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.nri.decision.request import DeviceRequest, is_nvidia, is_nvidia_gpu
from cdigen.nri.decision.select import Choice, choose
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.nri.decision.machine import Machine
    from cdigen.nri.decision.policy import Policy
    from cdigen.nri.decision.requirements import Facts, Requirement
    from cdigen.nri.decision.select import DeviceNames
    from cdigen.nri.pods import Container, Pod

    Outcome = Literal["nothing", "served", "inject", "refuse"]

# Labels of a metric beside CAUSES, for where the policy only warns; docs/nri.md, "Metrics, status, log".
NOTES = (
    "not_counted", "overruled", "served", "nodes_without_driver", "none", "no_spec", "no_compat32",
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
        self._container = container
        self._policy = policy
        self._names = names
        self._machine = machine
        self._gpus = frozenset(row.kind for row in policy.gpu_kinds)
        self.notes: list[Note] = []
        # It knows the list alone: a cycle would keep the pod, which may have megabytes, until garbage is
        # looked for.
        self._note = partial(_add_note, self.notes)
        self._requests = CountedRequests(pod, container, policy=policy, names=names, note=self._note)

    def decision(self) -> Decision:
        given = environment.variables(self._container.env, self._policy.makers)
        source, items = self._requests.counted(given)
        if not items:
            return self._end("served" if self._is_marked(given) else "nothing")
        left, bare = self._not_served(items, given)
        if any(item.token == mounts.ROOT for item in left):
            raise self._requests.unlisted()
        choices = choose(
            left,
            gpu_kinds=self._gpu_kinds(source, given, left),
            names=self._names,
            machine=self._machine,
            other_kinds=self._policy.makers.kinds,
        )
        choices += self._driver_for(bare, choices, source, given)
        if not choices and left:
            self._note("none", "no GPU is asked for, and no spec offers the driver without one")
            return self._end("nothing")
        if not choices:
            return self._end("served")
        self._require(given, choices)
        return self._end("inject", choices)

    def _end(self, outcome: Outcome, choices: tuple[Choice, ...] = ()) -> Decision:
        return Decision(outcome=outcome, choices=choices, notes=tuple(self.notes))

    def _not_served(
        self, items: tuple[DeviceRequest, ...], given: environment.Variables
    ) -> tuple[tuple[DeviceRequest, ...], DeviceRequest | None]:
        """Return those of ITEMS that are not there, and one GPU whose nodes are, but not its driver."""
        found = existing_devices.injection_evidence(self._container, given.values.get(environment.VISIBLE))
        left, bare = [], None
        for item in items:
            nodes = self._machine.nodes(item.token, begun=bool(item.alias)) if item.kind in self._gpus else ()
            by = existing_devices.already_injected(
                found, item, gpu_kinds=self._gpus, nodes=nodes, makers=self._policy.makers
            )
            if not by:
                left.append(item)
                continue
            self._note("served", f"{quote(item.token)} ({item.origin}) is there already: {by}")
            if existing_devices.is_gpu(item.kind or existing_devices.GPU, self._gpus):
                bare = bare or item
        return tuple(left), bare if bare and existing_devices.lacks_driver(found, self._gpus) else None

    def _driver_for(
        self,
        bare: DeviceRequest | None,
        choices: tuple[Choice, ...],
        source: str,
        given: environment.Variables,
    ) -> tuple[Choice, ...]:
        """Return what gives BARE, a GPU that has its nodes, the driver's files, unless one of CHOICES does.

        Refusal: it must not start without them, and gets none.
        """
        if bare is None or any(existing_devices.is_gpu(choice.kind, self._gpus) for choice in choices):
            return ()
        text = "nodes of GPUs are there, and nothing shows that the driver's files are"
        mode = self._policy.settings.nodes_without_driver
        if mode == "warn":
            # First: of many notes the last are not told.
            self.notes.insert(0, Note(cause="nodes_without_driver", text=text))
            return ()
        if mode == "refuse":
            raise Refusal("nodes_without_driver", text)
        kinds = self._gpu_kinds(source, given, (bare,)) or (bare.kind,)
        device = next((device for kind in kinds if (device := self._names.find(kind, NONE))), "")
        if not device:
            wanted = f"{kinds[0]}={NONE}"
            raise Refusal("nodes_without_driver", f"{text}; no spec offers these alone, as {wanted} does")
        return (Choice(device=device, token=bare.token, origin=bare.origin),)

    def _is_marked(self, given: environment.Variables) -> bool:
        """Return whether the environment is that of a spec of GPUs, and the GPUs are there as well."""
        visible = given.values.get(environment.VISIBLE)
        gpus = DeviceRequest(token=ALL, kind="", origin=environment.VISIBLE)
        found = existing_devices.injection_evidence(self._container, visible)
        return visible == "void" and bool(
            existing_devices.already_injected(found, gpus, gpu_kinds=self._gpus, makers=self._policy.makers)
        )

    def _gpu_kinds(
        self, source: str, given: environment.Variables, items: tuple[DeviceRequest, ...]
    ) -> tuple[str, ...]:
        # Whoever names kinds has chosen by that.
        if all(item.kind for item in items):
            return ()
        kinds = self._policy.kinds_giving(self._capabilities(given), self._requests.grant, source)
        # Beside a GPU that was named with its kind, others are of that kind: two bring the driver twice.
        named = {item.kind for item in items}
        return tuple(sorted(kinds, key=lambda kind: kind not in named))

    def _capabilities(self, given: environment.Variables) -> tuple[str, ...]:
        """Return the capabilities asked for, without 32-bit libraries where no kind has any.

        NVIDIA's runtime gives those that the host has, or none: libnvidia-container, src/nvc_info.c.
        """
        wanted = environment.capabilities(given)
        compat32 = environment.COMPAT32
        if compat32 not in wanted or any(compat32 in row.capabilities for row in self._policy.gpu_kinds):
            return wanted
        text = f"{environment.CAPABILITIES} names {compat32}, and no kind of GPUs has 32-bit libraries"
        self._note("no_compat32", text)
        return tuple(word for word in wanted if word != compat32)

    def _require(self, given: environment.Variables, choices: tuple[Choice, ...]) -> None:
        """Judge what the image requires. Refusal: it is not met, or cannot be judged, and has to be."""
        mode = self._policy.settings.require
        theirs = [choice for choice in choices if is_nvidia(choice.kind)]
        if mode == "off" or not theirs:
            return
        try:
            rows = environment.requirements(given)
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
            if not is_nvidia_gpu(kind):
                continue
            gpu = self._machine.find(name)
            for one in self._machine.models() if name == ALL else (gpu,) if gpu else ():
                # GPUs of one model are alike: one stands for all.
                found.setdefault((one.facts.arch, one.facts.brands), (one.names[0], one.facts))
        return list(found.values()) or [("", self._machine.facts)]


def _add_note(notes: list[Note], cause: str, text: str) -> None:
    notes.append(Note(cause=cause, text=text))


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
