"""``Registration``: the registration of a resource with the kubelet, as a state machine without I/O.

``Registration`` receives events with their time (``events``) and returns actions. The caller
runs the actions and reports the results as events. A registration has three steps. First, a server starts on
a socket with a fresh name. Then cdigen calls Register, and the kubelet connects to the server before Register
returns. Then the kubelet calls ListAndWatch. The resource is registered as long as this stream is open and
the kubelet shows the devices of cdigen in its pod resources API. Not every kubelet can show devices.

Two properties of the kubelet define the order and the delays. First, a starting kubelet removes all sockets
in the folder. So a new kubelet.sock means that no registration exists any more. Second, kubelets identify an
endpoint only by its resource name (tried up to 1.36.2). If an old connection ends late, the kubelet removes
the endpoint of the new connection (kubernetes/kubernetes#121994). So the old server stops first, then
``Registration`` waits GRACE_S. The time between two Register calls is at least GRACE_S. A new kubelet.sock
usually belongs to a new kubelet, which has no old connections. In this case the wait is NEW_SOCKET_GRACE_S.

cdigen does not compete with another plugin for a resource. The kubelet uses the plugin that registers last,
and continues to read the list of the former plugin. So ``Registration`` queries the allocatable devices
before Register if the kubelet already runs when cdigen starts, or if the kubelet has ended the stream. Device
ids do not identify the plugin, because other plugins use the same ids. While no server of this process is
registered, the kubelet shows devices of another plugin, or of a former process of cdigen whose endpoint
remains. So the query is repeated until the kubelet shows no device, for at most 3 s.
"""

from __future__ import annotations

from cdigen.kubelet.registration import events
from cdigen.kubelet.registration.timing import GRACE_S, RegisterTiming
from cdigen.model.times.backoff import Backoff

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.kubelet.registration.events import Action, AllocatableOwner, Event, Identity

    # waiting: there is no kubelet.sock. backoff: the next attempt is not due yet. serving: the server starts,
    # or the kubelet is queried before Register. registering: Register is in progress. unconfirmed: the
    # kubelet has not called ListAndWatch yet. claimed-by-other: another plugin has the resource.
    State = Literal[
        "waiting", "backoff", "serving", "registering", "unconfirmed", "registered", "claimed-by-other"
    ]

# The limit for the call of ListAndWatch after Register. Usually the kubelet calls ListAndWatch at once.
LIST_REQUEST_S = 5.0
# Each action has its own deadline. This limit applies if the result of an action is not reported.
ACTION_TIMEOUT_S = 20.0
# The delay after the end of a stream. If the kubelet restarts, cdigen registers when the new socket appears.
STREAM_END_DELAY_S = 2.0
BACKOFF = Backoff(first_s=GRACE_S, most_s=15.0)
# The limit if no socket can be made. An attempt affects no other program, and freed space causes no event.
SERVE_BACKOFF = Backoff(first_s=GRACE_S, most_s=5.0)
# A registration that has lasted for this time, or that the kubelet has confirmed, resets the failure count.
STEADY_S = 10.0
# The first queries of allocatable devices after a stream's start. Later queries follow every RECHECK_S.
FIRST_CHECKS_S = (2.0, 10.0)
RECHECK_S = 60.0
# The interval of queries while another plugin has the resource. After the end of that plugin, pods get no
# devices until the next query.
CLAIMED_RECHECK_S = 5.0
# The interval and the largest number of repeated queries before Register while the kubelet shows devices.
_REPEAT_S = 0.25
_MAX_SHOWN = 12
# The largest number of these queries if the kubelet is too busy to answer. Each takes clients.QUERY_S.
_MAX_LATE = 3
_MAX_REPEATS = {"ours": _MAX_SHOWN, "others": _MAX_SHOWN, "late": _MAX_LATE}
# A kubelet shows the old list while it processes a new list, so cdigen acts only on two equal results.
_TWICE = 2
_CONFIRM_S = 2.0


class _Server:
    """The present server; ``number`` counts the servers from 1, and is 0 if there is no server.

    ``is_known`` means that the next registration needs a new server, because the kubelet may have received
    Register or may have removed the socket. ``streams`` counts the open calls of ListAndWatch; the first call
    began at ``opened_s``.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.is_listening = self.is_known = False
        self.streams = 0
        self.opened_s = 0.0


class Registration:
    """The registration of one resource.

    ``state`` and ``reason`` are for status and log. ``due_s`` is the latest time of the next ``Tick``, or
    None if no tick is needed. ``is_confirmed`` is set if the kubelet has shown the devices of cdigen.
    """

    def __init__(self) -> None:
        self.state: State = "waiting"
        self.reason = ""
        self.is_confirmed = False
        self.due_s: float | None = None
        self._server = _Server()
        self._servers = 0
        self._kubelet: Identity | None = None
        self._has_seen_folder = False
        self._timing = RegisterTiming()
        # The numbers of queries since the registration, and of queries with the result ``_repeated``.
        self._checks = self._repeats = 0
        self._repeated: AllocatableOwner = "ours"
        # Whether another plugin may have the resource, so that a query is needed before Register.
        self._must_query = False
        # The sockets of other plugins. Without such a socket, no other plugin serves the shown devices.
        self._other_plugins: frozenset[str] = frozenset()
        self._actions: list[Action] = []

    @property
    def server(self) -> int:
        """The number of the present server, or 0."""
        return self._server.number

    def apply(self, event: Event, now: float) -> tuple[Action, ...]:
        """Return the actions that follow from EVENT at the monotonic time NOW, in their order."""
        self._actions = []
        match event:
            case events.KubeletSocketChanged():
                self._on_kubelet_socket(event.identity, now)
            case events.AllocatableReported():
                self._on_allocatable(event.owner, now)
            case events.OtherPluginsDetected():
                self._on_other_plugins(event.names, now)
            case events.Tick():
                if self.due_s is not None and self.due_s <= now:
                    self._on_due(now)
            case events.StreamEnded() if event.server != self.server:
                # At about this time, the kubelet handles the end of the connection to a former server.
                self._hold_off(now)
            case _ if event.server == self.server and self.server:
                self._on_server_event(event, now)
        return tuple(self._actions)

    def stop(self) -> tuple[Action, ...]:
        """Return the actions that end the registration of the resource."""
        self._actions = []
        self._drop()
        self.state, self.due_s, self._kubelet = "waiting", None, None
        return tuple(self._actions)

    # Events.

    def _on_kubelet_socket(self, identity: Identity | None, now: float) -> None:
        # Another plugin may be registered at the first kubelet.sock. A later kubelet.sock has no plugins yet.
        is_first, self._has_seen_folder = not self._has_seen_folder, True
        if identity == self._kubelet:
            return
        self._kubelet = identity
        if identity is None:
            # After the removal of kubelet.sock, the kubelet keeps the list of an open stream.
            if self.state not in {"registered", "waiting"}:
                self._set("waiting", "kubelet.sock was removed", None)
            return
        self._timing.succeeded()
        self._must_query = is_first
        # A starting kubelet removes all sockets, also sockets that are not registered yet.
        self._server.is_known = True
        self._timing.socket_replaced(now)
        self._retry("kubelet.sock was replaced", now)

    def _on_other_plugins(self, names: frozenset[str], now: float) -> None:
        if (
            names != self._other_plugins
            and self.state in {"registered", "claimed-by-other"}
            and self.due_s is not None
        ):
            self.due_s = min(self.due_s, now + _CONFIRM_S)
        self._other_plugins = names

    def _on_server_event(self, event: Event, now: float) -> None:
        """Handle an event of the present server."""
        match event:
            case events.ServerStarted() | events.ServerFailed():
                self._on_server_state(event, now)
            case events.RegistrationAccepted() | events.RegistrationFailed():
                self._on_register_result(event, now)
            case events.StreamOpened():
                self._on_stream_opened(now)
            case events.StreamEnded() if self._server.streams:
                self._server.streams -= 1
                if not self._server.streams:
                    self._on_stream_ended(now)
            case events.SocketRemoved() if self._server.is_listening and self.state != "claimed-by-other":
                self._server.is_known = True
                self._retry("the plugin's socket was removed", now)

    def _on_server_state(self, event: events.ServerStarted | events.ServerFailed, now: float) -> None:
        if isinstance(event, events.ServerStarted):
            self._server.is_listening = True
            if self.state == "serving":
                self._register(now)
        elif not self._server.is_listening:
            self._server.number = 0
            if self.state == "serving":
                self._fail(event.reason, now, backoff=SERVE_BACKOFF)

    def _on_register_result(
        self, event: events.RegistrationAccepted | events.RegistrationFailed, now: float
    ) -> None:
        if isinstance(event, events.RegistrationAccepted) or event.was_reached:
            self._server.is_known = True
        if self.state != "registering":
            return
        if not self._server.is_known:
            self._timing.register_not_received()
        # The registration exists after a request for the list, even if the response to Register is lost.
        if isinstance(event, events.RegistrationAccepted) or self._server.streams:
            self._set_registered(now)
        else:
            self._fail(event.reason, now)

    def _on_stream_opened(self, now: float) -> None:
        self._server.streams += 1
        self._server.is_known = True
        if self._server.streams == 1:
            self._server.opened_s = now
        if self.state not in {"registering", "registered", "claimed-by-other"}:
            self._set_registered(now)

    def _on_stream_ended(self, now: float) -> None:
        self._hold_off(now)
        if self.state == "registered":
            if now - self._server.opened_s >= STEADY_S:
                self._timing.succeeded()
            # The kubelet also ends the stream if another plugin has registered the resource.
            self._must_query, self._repeats = True, 0
            self._fail("the kubelet has ended the stream", now, at_least_s=STREAM_END_DELAY_S)
        elif self.state == "claimed-by-other":
            self._drop()

    def _on_allocatable(self, owner: AllocatableOwner, now: float) -> None:
        if self.state == "claimed-by-other":
            if owner == "none" or not self._other_plugins:
                self._retry("the other device plugin is gone", now)
        elif self.state == "serving" and self._server.is_listening:
            if self._repeats < _MAX_REPEATS.get(owner, 0):
                # The kubelet may still show the devices of a former process, or may be too busy to answer.
                self._repeats, self.due_s = self._repeats + 1, now + _REPEAT_S
            elif owner in {"ours", "others"} and self._other_plugins:
                self._yield_to_other(now)
            else:
                self._must_query = False
                self._register(now)
        elif self.state == "registered":
            self._on_check(owner, now)

    def _on_check(self, owner: AllocatableOwner, now: float) -> None:
        """Handle the result of a query while the resource is registered."""
        if owner in {"ours", "late", "unknown"}:
            self.is_confirmed, self._repeats = owner == "ours", 0
            if self.is_confirmed:
                self._timing.succeeded()
            return
        self._repeats = self._repeats + 1 if owner == self._repeated else 1
        self._repeated = owner
        if self._repeats < _TWICE:
            self.due_s = now + _CONFIRM_S
        elif owner == "others" and self._other_plugins:
            self._yield_to_other(now)
        else:
            self._fail("the kubelet does not show the devices of the resource", now)

    def _on_due(self, now: float) -> None:
        """Do the next step of the present state, after ``due_s`` is reached."""
        match self.state:
            case "backoff":
                self._try(now)
            case "serving" if self._server.is_listening:
                self._register(now)
            case "serving":
                self._fail("the plugin's socket was not made in time", now)
            case "registering":
                self._server.is_known = True
                self._fail("Register was not answered", now)
            case "unconfirmed":
                self._fail(f"the kubelet has not requested the list within {LIST_REQUEST_S:.0f} s", now)
            case "registered":
                self._schedule_check(now)
                self._actions.append(events.GetAllocatable())
            case "claimed-by-other":
                self.due_s = now + CLAIMED_RECHECK_S
                self._actions.append(events.GetAllocatable())
            case "waiting":
                self.due_s = None

    # Transitions.

    def _try(self, now: float) -> None:
        """Register the present server, or start a new server if the registration needs a new server."""
        if self._kubelet is None:
            self._set("waiting", self.reason, None)
        elif self._server.is_listening and not self._server.is_known:
            self._register(now)
        else:
            self._drop()
            self._servers += 1
            self._server = _Server(self._servers)
            self._set("serving", self.reason, now + ACTION_TIMEOUT_S)
            self._actions.append(events.StartServer(server=self.server))

    def _register(self, now: float) -> None:
        if now < self._timing.allowed_s:
            self._set("backoff", self.reason, self._timing.allowed_s)
            return
        if self._must_query:
            self._set("serving", self.reason, now + ACTION_TIMEOUT_S)
            self._actions.append(events.GetAllocatable())
            return
        self._timing.register_called(now)
        self._set("registering", self.reason, now + ACTION_TIMEOUT_S)
        self._actions.append(events.Register(server=self.server))

    def _set_registered(self, now: float) -> None:
        """Set the state to ``registered``, or to ``unconfirmed`` until the kubelet requests the list."""
        if not self._server.streams:
            self._set("unconfirmed", self.reason, now + LIST_REQUEST_S)
            return
        self.is_confirmed, self._checks, self._repeats = False, 0, 0
        self._set("registered", "", None)
        self._schedule_check(self._server.opened_s)

    def _schedule_check(self, now: float) -> None:
        is_first = self._checks < len(FIRST_CHECKS_S)
        self.due_s = self._server.opened_s + FIRST_CHECKS_S[self._checks] if is_first else now + RECHECK_S
        self._checks += 1

    def _fail(self, reason: str, now: float, *, at_least_s: float = 0.0, backoff: Backoff = BACKOFF) -> None:
        """Retry after a backoff that doubles with each consecutive failure."""
        self._retry(reason, now, after_s=max(self._timing.failed(backoff), at_least_s))

    def _retry(self, reason: str, now: float, *, after_s: float = 0.0) -> None:
        """Schedule an attempt in AFTER_S seconds, not before it is allowed; start a due attempt at once."""
        if self._server.is_known or not self._server.is_listening:
            self._drop_at(now)
        self._set("backoff", reason, max(now + after_s, self._timing.allowed_s))
        if self.due_s is not None and self.due_s <= now:
            self._try(now)

    def _yield_to_other(self, now: float) -> None:
        """Leave the resource to the other plugin.

        An open stream stays open. At its end, the kubelet would remove the other plugin's endpoint.
        """
        if not self._server.streams:
            self._drop()
        self.is_confirmed, self._must_query, self._repeats = False, True, 0
        self._set(
            "claimed-by-other", "another device plugin has registered the resource", now + CLAIMED_RECHECK_S
        )

    def _drop_at(self, now: float) -> None:
        if self._server.streams:
            # The connection of the kubelet ends together with the server.
            self._hold_off(now)
        self._drop()

    def _drop(self) -> None:
        if self.server:
            self._actions.append(events.StopServer(server=self.server))
        self._server = _Server()
        self.is_confirmed = False

    def _hold_off(self, now: float) -> None:
        until_s = self._timing.connection_ended(now)
        if self.state == "backoff" and self.due_s is not None:
            self.due_s = max(self.due_s, until_s)

    def _set(self, state: State, reason: str, due_s: float | None) -> None:
        self.state, self.reason, self.due_s = state, reason, due_s


def allocatable_owner(
    allocatable: dict[str, frozenset[str]], resource: str, healthy: frozenset[str]
) -> AllocatableOwner:
    """Return the owner of the ALLOCATABLE devices of RESOURCE; HEALTHY are cdigen's healthy devices."""
    if not healthy:
        # The kubelet shows only healthy devices. cdigen has none, so each device belongs to another plugin.
        return "others" if allocatable.get(resource) else "unknown"
    ids = allocatable.get(resource, frozenset())
    if not ids:
        return "none"
    return "ours" if ids & healthy else "others"
