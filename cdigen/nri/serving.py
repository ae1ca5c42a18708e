"""``SessionServer``: one connection to a runtime, from the registration to the end of the connection."""

from __future__ import annotations

import select
import time
from functools import partial

from cdigen.nri import events
from cdigen.nri.connection import Connection
from cdigen.nri.decision.result.compat import abilities
from cdigen.nri.handover import disconnect
from cdigen.nri.request_queue import REQUEST_TIMEOUT_S, RequestQueue
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

    from cdigen.nri.decision.result.compat import Abilities
    from cdigen.nri.handover import Deregistration
    from cdigen.nri.shared_state import SharedState
    from cdigen.nri.wire.messages import SynchronizePart
    from cdigen.nri.wire.session import Session, SessionEvent

# Seconds. A runtime registers the plugins one after the other, and waits at most 5 s for each plugin.
REGISTER_WITHIN_S = 30.0
# The runtime sends its pods and containers in parts of at most 4 MiB. The plugin stores at most _MAX_PARTS
# parts. A node with 5,000 pods has 4 parts.
_MAX_PARTS = 16
# Before this version, NRI does not call Synchronize of plugins that the runtime launches (containerd/nri
# issue 43).
_SYNCHRONIZES_LAUNCHED = (0, 7)
_BEAT_S = 5.0


class _SynchronizedParts:
    """The parts of the runtime's state; ``has_begun`` is set after the first part."""

    def __init__(self) -> None:
        self.has_begun = False
        self._parts: list[SynchronizePart] = []
        self._is_complete = True

    def add(self, part: SynchronizePart) -> events.Synchronized | None:
        """Store PART; return the event with all parts if PART is the last part."""
        self.has_begun = True
        if len(self._parts) < _MAX_PARTS:
            self._parts.append(part)
        else:
            self._is_complete = False
        if part.more:
            return None
        found = events.Synchronized(parts=tuple(self._parts), is_complete=self._is_complete)
        self._parts, self._is_complete = [], True
        return found


class SessionServer:
    """Serves SESSION on CONNECTION with the inputs in SHARED.

    IS_LAUNCHED is true if the runtime launched this process. If MAY_VALIDATE is true, the plugin subscribes
    to validations. DEREGISTER opens a second connection to the runtime, for the deregistration.
    ``abilities`` are the abilities of the runtime.
    """

    def __init__(  # noqa: PLR0913 - the arguments are independent
        self,
        connection: socket.socket,
        session: Session,
        shared: SharedState,
        *,
        is_launched: bool = False,
        may_validate: bool = True,
        register_within_s: float = REGISTER_WITHIN_S,
        deregister: Callable[[select.poll], Deregistration] | None = None,
    ) -> None:
        self.is_accepted = False
        self._poll = select.poll()
        self._connection = Connection(connection, self._poll)
        self._deregister = deregister
        self._session = session
        self._shared = shared
        self._requests = RequestQueue(session, shared, self._connection.send)
        self.abilities: Abilities | None = None
        self._is_launched, self._may_validate = is_launched, may_validate
        self._register_within_s = register_within_s
        # The response to the registration may come before or after Synchronize.
        self._is_registered = self._is_synchronized = False
        self._parts = _SynchronizedParts()
        self._begun_s = time.monotonic()

    @property
    def was_synchronized(self) -> bool:
        """Whether the runtime has sent a part of its state."""
        return self._parts.has_begun

    def run(self) -> None:
        """Serve until the connection or the plugin ends; raise OSError or SessionError on a failure."""
        self._poll.register(self._shared.wakeup, select.POLLIN)
        self._connection.send(self._session.start())
        while not self._shared.stopping.is_set():
            if self._turn(_BEAT_S) is None:
                return
        self._requests.close()
        if not self._is_synchronized:
            # The runtime sends requests only after the response to Synchronize, so no request is pending.
            # ``disconnect`` could still send this response, and the runtime would then add the plugin.
            return
        deregister = None
        if self._deregister is not None and self.abilities is not None and self.abilities.validates:
            # The runtime calls a validator once more after the end of the validator's connection.
            deregister = partial(self._deregister, self._poll)
        if why := disconnect(self._turn, self._connection, deregister):
            self._shared.add_event(events.DeregistrationFailed(reason=why))

    def _turn(self, most_s: float) -> dict[int, int] | None:
        """Wait at most MOST_S seconds, and respond to the requests.

        Return the poll events, or None at the end of the connection.
        """
        descriptor, wakeup = self._connection.fileno(), self._shared.wakeup
        ready = dict(self._poll.poll(self._timeout_ms(most_s)))
        self._shared.liveness.beat()
        if wakeup in ready:
            self._shared.clear_wakeup()
        if ready.get(descriptor, 0) & select.POLLOUT:
            self._connection.send(b"")
        if ready.get(descriptor, 0) & ~select.POLLOUT and not self._receive():
            return None
        self._requests.process()
        return ready

    def _timeout_ms(self, most_s: float) -> float:
        now = time.monotonic()
        due_s = self._requests.next_due_s()
        if due_s is None:
            due_s = now + most_s
        if not self.is_accepted:
            limit_s = self._register_within_s
            if now >= self._begun_s + limit_s:
                raise SessionError(f"the runtime has not registered the plugin within {limit_s:g} s")
            due_s = min(due_s, self._begun_s + limit_s)
        return max(0.0, min(due_s - now, most_s)) * 1000

    def _receive(self) -> bool:
        """Read and process the received bytes; return whether the connection is open."""
        data = self._connection.receive()
        if data is None:
            return True
        if not data:
            return False
        sent, received = self._session.feed(data)
        # These bytes are sent before the events are processed, because the runtime waits for the bytes.
        self._connection.send(sent)
        for event in received:
            self._take(event)
        return True

    def _take(self, event: SessionEvent) -> None:
        match event:
            case CreateContainer() | ValidateAdjustment():
                self._requests.add(event)
            case Configure():
                self._configure(event)
            case Registered():
                self._is_registered = True
                self._accept()
            case Synchronize(part=part):
                self._synchronize(part)
            case ContainerRemoved(container=container):
                if self._shared.injected.remove(container):
                    self._shared.add_event(events.InjectedContainersChanged())
            case InvalidCall():
                self._shared.add_event(event)

    def _configure(self, event: Configure) -> None:
        info = event.configuration
        self.abilities = abilities(
            info.runtime, info.version, info.nri_version, may_validate=self._may_validate
        )
        self._requests.configure(self.abilities, info.request_timeout_ms / 1000 or REQUEST_TIMEOUT_S)
        self._connection.send(self._session.subscribe(event.call, self.abilities.events))
        self._shared.attempted.set()
        self._shared.add_event(events.RuntimeConfigured(runtime=info, abilities=self.abilities))
        if self._is_launched and self.abilities.nri < _SYNCHRONIZES_LAUNCHED:
            self._is_synchronized = True
            self._accept()

    def _synchronize(self, part: SynchronizePart) -> None:
        """Store PART of the runtime's state; with the last part, the plugin is synchronized."""
        found = self._parts.add(part)
        if found is None:
            return
        # The main thread adds the containers from the parts. CreateContainer comes only after Synchronize, so
        # ``clear`` removes no new container.
        self._shared.injected.clear()
        self._shared.add_event(found)
        self._is_synchronized = True
        self._accept()

    def _accept(self) -> None:
        if self._is_registered and self._is_synchronized and not self.is_accepted:
            self.is_accepted = True
            self._shared.metrics.connections += 1
            self._shared.add_event(events.PluginActive())
