"""One connection to a runtime, from the registration to its end: ``Serving``.

A question waits where the state of the host has changed since it was read, for half of the runtime's timeout
at most; then it is refused. A runtime takes what is not answered in time for "nothing to change", and starts
the container without its GPU.
"""

from __future__ import annotations

import select
import time
from collections import deque
from contextlib import suppress

from cdigen.nri import events
from cdigen.nri.decision import answer
from cdigen.nri.decision.adjustments import apply_adjustment
from cdigen.nri.decision.compat import abilities
from cdigen.nri.decision.policy import needs_decision, requests_devices
from cdigen.nri.pods import container_name, shorten
from cdigen.nri.wire.protobuf import MessageError
from cdigen.nri.wire.session import (
    Configure,
    CreateContainer,
    InvalidCall,
    Registered,
    SessionError,
    Synchronize,
    ValidateAdjustment,
)
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

    from cdigen.nri.decision.answer import Answer
    from cdigen.nri.decision.compat import Abilities
    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.shared_state import SharedState
    from cdigen.nri.wire.messages import SynchronizePart
    from cdigen.nri.wire.session import Session, SessionEvent

    Question = CreateContainer | ValidateAdjustment

# A runtime accepts one plugin after the other, and gives each 5 s to register.
REGISTER_WITHIN_S = 30.0
# plugin_request_timeout of a runtime that does not tell it (NRI up to 0.6).
REQUEST_TIMEOUT_S = 2.0
# Of the runtime's own timeout: the way to us and back takes some of it.
PATIENCE = 0.5
# More than any answers that wait to be read: a runtime that reads nothing is of no use.
_MAX_UNSENT = 64 << 20
# A runtime asks one question at a time (pkg/adaptation holds a lock meanwhile); each may have 4 MiB.
_MAX_WAITING = 256
# Of the runtime's state, each of 4 MiB at most: a node with 5,000 pods has four.
_MAX_PARTS = 16
# Before, a runtime does not call Synchronize of plugins that it starts itself (containerd/nri issue 43).
_TELLS_LAUNCHED = (0, 7)
_READ = 1 << 18
_BEAT_S = 5.0
_LEAVE_S = 0.2
# Notes that a new spec might take back.
_OF_SPECS = frozenset(("none", "no_amd"))
_LEAVING = "the plugin is being stopped"
_LATE = "the devices of this host could not be looked up within {:.2g} s"


@frozen
class _Waiting:
    """A question that came at ``since_s`` and is due at ``due_s``."""

    question: Question
    since_s: float
    due_s: float


class Serving:
    """Serves SESSION on CONNECTION by the SHARED state; ``abilities`` is what the runtime can do.

    IS_LAUNCHED: the runtime has started this process; MAY_VALIDATE: subscribe to validations.
    """

    def __init__(  # noqa: PLR0913 - each is its own thing
        self,
        connection: socket.socket,
        session: Session,
        shared: SharedState,
        *,
        is_launched: bool = False,
        may_validate: bool = True,
        register_within_s: float = REGISTER_WITHIN_S,
    ) -> None:
        self.is_accepted = self.was_told = False
        self._connection = connection
        self._session = session
        self._shared = shared
        self._unsent = bytearray()
        self._waiting: deque[_Waiting] = deque()
        # The context by which those who wait cannot be answered.
        self._outdated: DecisionContext | None = None
        self.abilities: Abilities | None = None
        self._is_launched, self._may_validate = is_launched, may_validate
        self._register_within_s = register_within_s
        self._plugins: tuple[str, ...] = ()
        self._limit_s = REQUEST_TIMEOUT_S
        # The answer to the registration may come before or after the runtime has told its state.
        self._is_registered = self._is_told = False
        self._parts: list[SynchronizePart] = []
        self._has_all_parts = True
        self._is_leaving = False
        self._begun_s = time.monotonic()
        self._poll = select.poll()

    def run(self) -> None:
        """Serve until the runtime closes the connection. OSError, SessionError: it failed."""
        number, wakeup = self._connection.fileno(), self._shared.wakeup
        self._poll.register(number, select.POLLIN)
        self._poll.register(wakeup, select.POLLIN)
        self._send(self._session.start())
        while not self._shared.stopping.is_set():
            ready = dict(self._poll.poll(self._patience_ms()))
            self._shared.alive_s = time.monotonic()
            if wakeup in ready:
                self._shared.clear_wakeup()
            if ready.get(number, 0) & select.POLLOUT:
                self._send(b"")
            if ready.get(number, 0) & ~select.POLLOUT and not self._receive():
                return
            self._settle()
        self._leave()

    def _leave(self) -> None:
        """Answer all open questions: a container whose question stays open starts without its GPU."""
        until_s = time.monotonic() + _LEAVE_S
        self._is_leaving = True
        while time.monotonic() < until_s:
            while self._waiting:
                self._refuse(self._waiting.popleft(), _LEAVING)
            ready = dict(self._poll.poll(0 if not self._unsent else _LEAVE_S * 1000)).get(
                self._connection.fileno(), 0
            )
            if ready & select.POLLOUT:
                self._send(b"")
            elif not ready & select.POLLIN or not self._receive():
                return

    def _patience_ms(self) -> float:
        now = time.monotonic()
        due_s = min((one.due_s for one in self._waiting), default=now + _BEAT_S)
        if not self.is_accepted:
            limit_s = self._register_within_s
            if now >= self._begun_s + limit_s:
                raise SessionError(f"the runtime has not registered the plugin within {limit_s:g} s")
            due_s = min(due_s, self._begun_s + limit_s)
        return max(0.0, min(due_s - now, _BEAT_S)) * 1000

    def _receive(self) -> bool:
        """Read what is there, and answer; returns whether the connection still stands."""
        try:
            data = self._connection.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return True
        if not data:
            return False
        sent, received = self._session.feed(data)
        # First: the runtime waits for it, and not for what is done with what it has sent.
        self._send(sent)
        for event in received:
            self._take(event)
        return True

    def _send(self, data: bytes) -> None:
        """Send DATA after what could not be sent yet, as far as the runtime takes it."""
        had_some = bool(self._unsent)
        self._unsent += data
        with suppress(BlockingIOError, InterruptedError):
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]
        if len(self._unsent) > _MAX_UNSENT:
            raise SessionError("the runtime does not read what it is told")
        if had_some != bool(self._unsent):
            wanted = select.POLLIN | (select.POLLOUT if self._unsent else 0)
            self._poll.modify(self._connection, wanted)

    def _take(self, event: SessionEvent) -> None:
        match event:
            case CreateContainer() | ValidateAdjustment():
                self._ask(event)
            case Configure():
                self._configure(event)
            case Registered():
                self._is_registered = True
                self._accept()
            case Synchronize(part=part):
                self._survey(part)
            case InvalidCall():
                self._shared.add_event(event)

    def _configure(self, event: Configure) -> None:
        told = event.configuration
        self.abilities = abilities(
            told.runtime, told.version, told.nri_version, may_validate=self._may_validate
        )
        self._limit_s = told.request_timeout_ms / 1000 or REQUEST_TIMEOUT_S
        self._send(self._session.subscribe(event.call, self.abilities.events))
        self._shared.tried.set()
        self._shared.add_event(events.RuntimeConfigured(runtime=told, abilities=self.abilities))
        if self._is_launched and self.abilities.nri < _TELLS_LAUNCHED:
            self._is_told = True
            self._accept()

    def _survey(self, part: SynchronizePart) -> None:
        """Keep PART of the runtime's state; the last one makes it whole."""
        self.was_told = True
        if len(self._parts) < _MAX_PARTS:
            self._parts.append(part)
        else:
            self._has_all_parts = False
        if part.more:
            return
        self._shared.add_event(events.Synchronized(parts=tuple(self._parts), is_complete=self._has_all_parts))
        self._parts, self._has_all_parts = [], True
        self._is_told = True
        self._accept()

    def _accept(self) -> None:
        if self._is_registered and self._is_told and not self.is_accepted:
            self.is_accepted = True
            self._shared.metrics.connections += 1
            self._shared.add_event(events.PluginActive())

    # Questions.

    def _ask(self, question: Question) -> None:
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

    def _is_soon_answered(self, one: _Waiting) -> bool:
        """Answer what can be answered now; returns whether that was so."""
        question, shared = one.question, self._shared
        pod, container = question.pod, question.container
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

    def _settle(self) -> None:
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
        """Send the answer FOUND, after it is counted, and add the event."""
        sent = b""
        if found.outcome != "refuse":
            try:
                sent = self._session.adjust(question.call, found.adjustment)
            except MessageError as error:
                found = answer.refused("too_much", f"what the container asks for cannot be given: {error}")
            except Exception as error:  # noqa: BLE001 - likewise
                found = answer.refused("defect", _defect(error))
        duration_s = time.monotonic() - one.since_s
        self._shared.metrics.count(found, duration_s)
        self._send(sent or self._session.refuse(question.call, _signed(found.reason)))
        if found.outcome != "nothing" or found.notes:
            self._shared.add_event(
                events.ContainerDecided(
                    name=container_name(question.pod, question.container),
                    answer=events.summarize(found),
                    duration_s=duration_s,
                )
            )

    def _is_validated(self, question: ValidateAdjustment, one: _Waiting, context: DecisionContext) -> bool:
        if question.plugins != self._plugins:
            self._plugins = question.plugins
            self._shared.add_event(events.PluginsChanged(plugins=question.plugins))
        try:
            problem = answer.validated(
                question.pod, question.container, question.adjustment, context, self._able()
            )
        except Exception as error:  # noqa: BLE001 - likewise
            problem = _defect(error)
        if problem and not _is_new(context, one):
            return False
        self._judge(question, problem)
        return True

    def _judge(self, question: ValidateAdjustment, problem: str) -> None:
        self._shared.metrics.verdicts["rejected" if problem else "passed"] += 1
        self._send(self._session.validate(question.call, _signed(problem) if problem else ""))
        if problem:
            self._shared.add_event(
                events.Validated(
                    name=container_name(question.pod, question.container), reason=shorten(problem)
                )
            )

    def _refuse(self, one: _Waiting, why: str, cause: str = "late") -> None:
        if isinstance(one.question, ValidateAdjustment):
            self._judge(one.question, why)
        else:
            self._finish(one.question, one, answer.refused(cause, why))

    def _able(self) -> Abilities:
        # The session refuses every question before Configure.
        if self.abilities is None:
            raise SessionError("the runtime asks before it has introduced itself")
        return self.abilities


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
