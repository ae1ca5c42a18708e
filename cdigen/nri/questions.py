"""Questions of a runtime on one connection, each answered once: ``Questions``.

A question waits where the state of the host has changed since it was read, for half of the runtime's timeout
at most; then it is refused. A runtime takes what is not answered in time for "nothing to change", and starts
the container without its GPU.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial

from cdigen.nri import events
from cdigen.nri.book import MAX_DEVICES, Held
from cdigen.nri.decision import answer, handover
from cdigen.nri.decision.adjustments import apply_adjustment
from cdigen.nri.decision.blame import blame
from cdigen.nri.decision.decide import Note
from cdigen.nri.decision.policy import needs_decision, requests_devices
from cdigen.nri.pods import Adjustment, container_name, shorten
from cdigen.nri.wire.protobuf import MessageError
from cdigen.nri.wire.session import CreateContainer, SessionError, ValidateAdjustment
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.nri.decision.answer import Answer, Verdict
    from cdigen.nri.decision.compat import Abilities
    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.shared_state import SharedState
    from cdigen.nri.wire.session import Session

    Question = CreateContainer | ValidateAdjustment

# plugin_request_timeout of a runtime that does not tell it (NRI up to 0.6).
REQUEST_TIMEOUT_S = 2.0
# Of the runtime's own timeout: the way to us and back takes some of it.
PATIENCE = 0.5
# A runtime asks one question at a time (pkg/adaptation holds a lock meanwhile); each may have 4 MiB.
_MAX_WAITING = 256
# Notes that a new spec might take back.
_OF_SPECS = frozenset(("none", "no_spec"))
# What only its doer counts: a container is created once, however many plugins are asked.
_DOINGS = frozenset(("inject", "refuse"))
_OTHER = Note(cause="served", text="another cdigen beside this one has given it its devices")
_GONE = "another cdigen has given the container {}, and it would start without"
_LEAVING = "the plugin is being stopped"
_LATE = "the devices of this host could not be looked up within {:.2g} s"


@frozen
class _Waiting:
    """A question that came at ``since_s`` and is due at ``due_s``."""

    question: Question
    since_s: float
    due_s: float


class Questions:
    """Answers the questions of SESSION by the SHARED state, and has SEND send what it says."""

    def __init__(self, session: Session, shared: SharedState, send: Callable[[bytes], None]) -> None:
        self._session, self._shared, self._send = session, shared, send
        self._waiting: deque[_Waiting] = deque()
        # The context by which those who wait cannot be answered.
        self._outdated: DecisionContext | None = None
        self._abilities: Abilities | None = None
        self._plugins: tuple[str, ...] = ()
        self._limit_s = REQUEST_TIMEOUT_S
        self._is_leaving = False

    def begin(self, abilities: Abilities, limit_s: float) -> None:
        """Answer as a runtime with ABILITIES understands it, each question within LIMIT_S."""
        self._abilities, self._limit_s = abilities, limit_s

    def next_due_s(self) -> float | None:
        """Return when the first of those who wait has to be answered (time.monotonic), None if none waits."""
        return min((one.due_s for one in self._waiting), default=None)

    def leave(self) -> None:
        """Refuse those who wait, and from now on every one that would have to."""
        self._is_leaving = True
        while self._waiting:
            self._refuse(self._waiting.popleft(), _LEAVING)

    def ask(self, question: Question) -> None:
        """Answer QUESTION, now or when the state of the host is known."""
        now = time.monotonic()
        limit_s = self._limit_s if question.timeout_s is None else min(self._limit_s, question.timeout_s)
        one = _Waiting(question=question, since_s=now, due_s=now + PATIENCE * limit_s)
        try:
            is_answered = self._is_soon_answered(one)
        except Exception as error:  # noqa: BLE001 - a defect must not start a container without its GPU
            self._refuse(one, _defect(error), cause="defect")
            return
        if not is_answered:
            self._wait(one)

    def settle(self) -> None:
        """Answer those who wait, if there is something new to answer by, or it is time."""
        context = self._shared.context
        is_new = context is not self._outdated
        self._outdated = context
        for _ in range(len(self._waiting)):
            one = self._waiting.popleft()
            if is_new and context is not None and self._is_answered(one, context):
                continue
            if time.monotonic() >= one.due_s:
                self._refuse(one, _LATE.format(one.due_s - one.since_s))
            else:
                self._waiting.append(one)

    def _is_soon_answered(self, one: _Waiting) -> bool:
        """Answer what can be answered now; returns whether that was so."""
        question, shared = one.question, self._shared
        pod, container = question.pod, question.container
        if self._is_others(question):
            return True
        if isinstance(question, ValidateAdjustment):
            container = apply_adjustment(container, question.adjustment)
        if shared.problem:
            if requests_devices(pod, container):
                self._refuse(one, shared.problem, cause="configuration")
            else:
                self._pass(one)
            return True
        context = shared.context
        if (
            context is None
            and shared.policy is not None
            and not needs_decision(pod, container, shared.policy)
        ):
            self._pass(one)
            return True
        return context is not None and self._is_answered(one, context)

    def _is_others(self, question: Question) -> bool:
        """Answer what is the business of another cdigen beside this one; returns whether that was so."""
        shared = self._shared
        if isinstance(question, CreateContainer):
            devices = handover.earlier(question.pod, question.container, trusts_mark=shared.stands_by)
            if devices is not None:
                self._leave_to_other(question, devices)
            return devices is not None
        made = question.adjustment
        devices = handover.others(
            question.container, made, instance=shared.instance, trusts_mark=shared.stands_by
        )
        if devices is None:
            return False
        # Whether they are what the container asks for, the other one judges, by its own configuration.
        gone = [name for name in devices if name not in made.cdi_devices]
        self._note_plugins(question)
        self._judge(question, _GONE.format(gone[0]) if gone and self._able().cdi == "injects" else "")
        return True

    def _leave_to_other(self, question: CreateContainer, devices: tuple[str, ...]) -> None:
        """Change nothing in the container, which has DEVICES; who has given them has counted it."""
        self._send(self._session.adjust(question.call, Adjustment()))
        self._note_held(question, devices)
        found = answer.Answer(outcome="served", devices=devices, notes=(_OTHER,))
        name = container_name(question.pod, question.container)
        self._shared.add_event(
            events.ContainerDecided(name=name, answer=events.summarize(found), duration_s=0.0)
        )

    def _pass(self, one: _Waiting) -> None:
        """Answer that there is nothing to change, whatever the host has."""
        if isinstance(one.question, ValidateAdjustment):
            self._judge(one.question, "")
        else:
            self._finish(one.question, one, answer.Answer(outcome="nothing"))

    def _wait(self, one: _Waiting) -> None:
        if self._is_leaving:
            self._refuse(one, _LEAVING)
        elif len(self._waiting) >= _MAX_WAITING:
            self._refuse(one, "too many containers wait for the devices of this host to be read")
        else:
            self._waiting.append(one)
            self._shared.request_context()

    def _is_answered(self, one: _Waiting, context: DecisionContext) -> bool:
        """Answer by CONTEXT; returns whether that was done: not where the host has changed since."""
        question = one.question
        if isinstance(question, ValidateAdjustment):
            return self._is_validated(question, one, context)
        return self._is_created(question, one, context)

    def _is_created(self, question: CreateContainer, one: _Waiting, context: DecisionContext) -> bool:
        try:
            found = answer.created(question.pod, question.container, context, self._able())
            if _depends(found) and not _is_new(context, one):
                return False
        except Exception as error:  # noqa: BLE001 - a defect must not start a container without its GPU
            found = answer.refused("defect", _defect(error))
        self._finish(question, one, found)
        return True

    def _finish(self, question: CreateContainer, one: _Waiting, found: Answer) -> None:
        """Send the answer FOUND, after it is counted, and add the event.

        While another cdigen has the run directory, it counts and reports what neither gives or refuses.
        """
        sent = b""
        if found.outcome != "refuse":
            try:
                sent = self._session.adjust(question.call, self._sealed(question, found))
            except MessageError as error:
                found = answer.refused("too_much", f"what the container asks for cannot be given: {error}")
            except Exception as error:  # noqa: BLE001 - likewise
                found = answer.refused("defect", _defect(error))
        duration_s = time.monotonic() - one.since_s
        is_ours = not self._shared.stands_by or found.outcome in _DOINGS
        if is_ours:
            self._shared.metrics.count(found, duration_s)
        self._send(sent or self._session.refuse(question.call, _signed(found.reason)))
        if found.outcome == "inject":
            self._note_held(question, found.devices)
        if is_ours and (found.outcome != "nothing" or found.notes):
            self._shared.add_event(
                events.ContainerDecided(
                    name=container_name(question.pod, question.container),
                    answer=events.summarize(found),
                    duration_s=duration_s,
                )
            )

    def _sealed(self, question: CreateContainer, found: Answer) -> Adjustment:
        """Return what FOUND gives, as another cdigen that is called later knows it."""
        made = found.adjustment
        if found.outcome != "inject":
            return made
        sealed = handover.seal(question.container, self._shared.instance)
        return replace(made, annotations={**made.annotations, handover.SEAL: sealed})

    def _note_held(self, question: CreateContainer, devices: tuple[str, ...]) -> None:
        self._shared.book.note(
            Held(
                id=question.container.id,
                name=container_name(question.pod, question.container),
                devices=devices[:MAX_DEVICES],
                at_s=time.time(),
            )
        )

    def _is_validated(self, question: ValidateAdjustment, one: _Waiting, context: DecisionContext) -> bool:
        self._note_plugins(question)
        try:
            verdict = answer.validated(
                question.pod, question.container, question.adjustment, context, self._able()
            )
        except Exception as error:  # noqa: BLE001 - likewise
            verdict = answer.Verdict(reason=_defect(error))
        if verdict.reason and not _is_new(context, one):
            return False
        self._judge(question, *self._blame(question, verdict, context))
        return True

    def _note_plugins(self, question: ValidateAdjustment) -> None:
        if question.plugins != self._plugins:
            self._plugins = question.plugins
            self._shared.add_event(events.PluginsChanged(plugins=question.plugins))

    def _blame(
        self, question: ValidateAdjustment, verdict: Verdict, context: DecisionContext
    ) -> tuple[str, str]:
        """Return VERDICT's reason, in which the other plugin stands whose doing it is, and that plugin."""
        if not verdict.reason:
            return "", ""
        judge = partial(answer.validated, question.pod, context=context, abilities=self._able())
        try:
            asked, made = question.container, question.adjustment
            plugin, did = blame(judge, verdict, asked, made, question.owners(), own=self._session.plugin)
        except Exception:  # noqa: BLE001 - it is refused anyway
            plugin, did = "", ""
        return f"{verdict.reason}: the plugin {plugin} {did}" if plugin else verdict.reason, plugin

    def _judge(self, question: ValidateAdjustment, problem: str, plugin: str = "") -> None:
        if problem or not self._shared.stands_by:
            self._shared.metrics.verdicts["rejected" if problem else "passed"] += 1
        self._send(self._session.validate(question.call, _signed(problem) if problem else ""))
        if problem:
            self._shared.add_event(
                events.Validated(
                    name=container_name(question.pod, question.container),
                    reason=shorten(problem),
                    plugin=plugin,
                )
            )

    def _refuse(self, one: _Waiting, why: str, cause: str = "late") -> None:
        if isinstance(one.question, ValidateAdjustment):
            self._judge(one.question, why)
        else:
            self._finish(one.question, one, answer.refused(cause, why))

    def _able(self) -> Abilities:
        # The session refuses every question before Configure.
        if self._abilities is None:
            raise SessionError("the runtime asks before it has introduced itself")
        return self._abilities


def _depends(found: Answer) -> bool:
    """Return whether another state of the host might have given another answer than FOUND."""
    return found.outcome in {"inject", "refuse"} or any(note.cause in _OF_SPECS for note in found.notes)


def _is_new(context: DecisionContext, one: _Waiting) -> bool:
    """Return whether CONTEXT is newer than the question, or nothing has changed since."""
    return context.host.begun_s >= one.since_s or context.host.is_current()


def _signed(text: str) -> str:
    # It is shown between messages of other programs, above all in kubelet's events.
    return f"cdigen: {text}"


def _defect(error: Exception) -> str:
    return f"cdigen has a defect: {type(error).__name__}: {error}"
