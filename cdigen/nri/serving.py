"""One connection to a runtime, from the registration to its end: ``Serving``."""

from __future__ import annotations

import select
import time
from functools import partial

from cdigen.nri import events
from cdigen.nri.connection import Connection
from cdigen.nri.decision.compat import abilities
from cdigen.nri.leaving import leave
from cdigen.nri.questions import REQUEST_TIMEOUT_S, Questions
from cdigen.nri.wire.session import (
    Configure,
    ContainerRemoved,
    CreateContainer,
    InvalidCall,
    Registered,
    SessionError,
    Synchronize,
    ValidateAdjustment,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cdigen.nri.decision.compat import Abilities
    from cdigen.nri.shared_state import SharedState
    from cdigen.nri.wire.messages import SynchronizePart
    from cdigen.nri.wire.session import Session, SessionEvent
    from cdigen.nri.withdrawal import Withdrawal

# A runtime accepts one plugin after the other, and gives each 5 s to register.
REGISTER_WITHIN_S = 30.0
# Of the runtime's state, each of 4 MiB at most: a node with 5,000 pods has four.
_MAX_PARTS = 16
# Before, a runtime does not call Synchronize of plugins that it starts itself (containerd/nri issue 43).
_TELLS_LAUNCHED = (0, 7)
_BEAT_S = 5.0


class Serving:
    """Serves SESSION on CONNECTION by the SHARED state; ``abilities`` is what the runtime can do.

    IS_LAUNCHED: the runtime has started this process; MAY_VALIDATE: subscribe to validations. WITHDRAW
    connects to the runtime once more, for an orderly end.
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
        withdraw: Callable[[select.poll], Withdrawal] | None = None,
    ) -> None:
        self.is_accepted = self.was_told = False
        self._poll = select.poll()
        self._connection = Connection(connection, self._poll)
        self._withdraw = withdraw
        self._session = session
        self._shared = shared
        self._questions = Questions(session, shared, self._connection.send)
        self.abilities: Abilities | None = None
        self._is_launched, self._may_validate = is_launched, may_validate
        self._register_within_s = register_within_s
        # The answer to the registration may come before or after the runtime has told its state.
        self._is_registered = self._is_told = False
        self._parts: list[SynchronizePart] = []
        self._has_all_parts = True
        self._begun_s = time.monotonic()

    def run(self) -> None:
        """Serve until the runtime closes the connection. OSError, SessionError: it failed."""
        self._poll.register(self._shared.wakeup, select.POLLIN)
        self._connection.send(self._session.start())
        while not self._shared.stopping.is_set():
            if self._turn(_BEAT_S) is None:
                return
        self._questions.leave()
        if not self._is_told:
            # It asks nothing yet, and whoever answers Synchronize now is added for having done so.
            return
        withdraw = None
        if self._withdraw is not None and self.abilities is not None and self.abilities.validates:
            # Of those whose connection has ended, a runtime calls a validator once more.
            withdraw = partial(self._withdraw, self._poll)
        if why := leave(self._turn, self._connection, withdraw):
            self._shared.add_event(events.NotWithdrawn(reason=why))

    def _turn(self, most_s: float) -> dict[int, int] | None:
        """Wait for MOST_S at most, and answer; returns what has come where, None at the connection's end."""
        number, wakeup = self._connection.fileno(), self._shared.wakeup
        ready = dict(self._poll.poll(self._patience_ms(most_s)))
        self._shared.alive_s = time.monotonic()
        if wakeup in ready:
            self._shared.clear_wakeup()
        if ready.get(number, 0) & select.POLLOUT:
            self._connection.send(b"")
        if ready.get(number, 0) & ~select.POLLOUT and not self._receive():
            return None
        self._questions.settle()
        return ready

    def _patience_ms(self, most_s: float) -> float:
        now = time.monotonic()
        due_s = self._questions.next_due_s()
        if due_s is None:
            due_s = now + most_s
        if not self.is_accepted:
            limit_s = self._register_within_s
            if now >= self._begun_s + limit_s:
                raise SessionError(f"the runtime has not registered the plugin within {limit_s:g} s")
            due_s = min(due_s, self._begun_s + limit_s)
        return max(0.0, min(due_s - now, most_s)) * 1000

    def _receive(self) -> bool:
        """Read what is there, and answer; returns whether the connection still stands."""
        data = self._connection.receive()
        if data is None:
            return True
        if not data:
            return False
        sent, received = self._session.feed(data)
        # First: the runtime waits for it, and not for what is done with what it has sent.
        self._connection.send(sent)
        for event in received:
            self._take(event)
        return True

    def _take(self, event: SessionEvent) -> None:
        match event:
            case CreateContainer() | ValidateAdjustment():
                self._questions.ask(event)
            case Configure():
                self._configure(event)
            case Registered():
                self._is_registered = True
                self._accept()
            case Synchronize(part=part):
                self._survey(part)
            case ContainerRemoved(container=container):
                if self._shared.book.forget(container):
                    self._shared.add_event(events.BookChanged())
            case InvalidCall():
                self._shared.add_event(event)

    def _configure(self, event: Configure) -> None:
        told = event.configuration
        self.abilities = abilities(
            told.runtime, told.version, told.nri_version, may_validate=self._may_validate
        )
        self._questions.begin(self.abilities, told.request_timeout_ms / 1000 or REQUEST_TIMEOUT_S)
        self._connection.send(self._session.subscribe(event.call, self.abilities.events))
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
        # The main thread adds those that it finds in the parts; none is created before this is answered.
        self._shared.book.clear()
        self._shared.add_event(events.Synchronized(parts=tuple(self._parts), is_complete=self._has_all_parts))
        self._parts, self._has_all_parts = [], True
        self._is_told = True
        self._accept()

    def _accept(self) -> None:
        if self._is_registered and self._is_told and not self.is_accepted:
            self.is_accepted = True
            self._shared.metrics.connections += 1
            self._shared.add_event(events.PluginActive())
