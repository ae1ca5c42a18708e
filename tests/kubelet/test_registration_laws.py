"""Laws of a registration for any order of events: no rule is violated, and registration succeeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from cdigen.kubelet.registration.events import (
    AllocatableReported,
    GetAllocatable,
    KubeletSocketChanged,
    OtherPluginsDetected,
    Register,
    RegistrationAccepted,
    RegistrationFailed,
    ServerFailed,
    ServerStarted,
    SocketRemoved,
    StartServer,
    StopServer,
    StreamEnded,
    StreamOpened,
    Tick,
)
from cdigen.kubelet.registration.state_machine import ACTION_TIMEOUT_S, BACKOFF, RECHECK_S, Registration
from cdigen.kubelet.registration.timing import GRACE_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.kubelet.registration.events import Action, Event

SERVERS = st.integers(0, 6)
KUBELETS = st.none() | st.tuples(st.just(1), st.integers(1, 4), st.integers(1, 2))
EVENTS = st.one_of(
    st.builds(KubeletSocketChanged, identity=KUBELETS),
    *(
        st.builds(kind, server=SERVERS)
        for kind in (ServerStarted, RegistrationAccepted, StreamOpened, StreamEnded, SocketRemoved)
    ),
    st.builds(ServerFailed, server=SERVERS, reason=st.just("full")),
    st.builds(RegistrationFailed, server=SERVERS, reason=st.just("no"), was_reached=st.booleans()),
    st.builds(AllocatableReported, owner=st.sampled_from(("ours", "others", "none", "late", "unknown"))),
    st.builds(OtherPluginsDetected, names=st.sampled_from((frozenset(), frozenset({"a.sock"})))),
    st.builds(Tick),
)
STEPS_S = st.sampled_from((0.0, 0.01, 0.3, 1.0, 2.5, 5.0, 20.0, 61.0))
HISTORIES = st.lists(st.tuples(EVENTS, STEPS_S), max_size=60)


class Watched:
    """A registration with the history of its actions; an action that violates a rule fails the test."""

    def __init__(self) -> None:
        self.machine = Registration()
        self.now = 0.0
        self.alive: set[int] = set()
        self.served: set[int] = set()
        self.registered_s: float | None = None
        self.former_s: float | None = None
        self.last_server = 0

    def apply(self, event: Event) -> tuple[Action, ...]:
        if isinstance(event, ServerStarted) and event.server in self.alive:
            self.served.add(event.server)
        if isinstance(event, ServerFailed) and event.server not in self.served:
            self.alive.discard(event.server)
        before = self.machine.state, self.machine.server
        actions = self.machine.apply(event, self.now)
        if (
            isinstance(event, RegistrationFailed)
            and not event.was_reached
            and before == ("registering", event.server)
            and self.machine.state == "backoff"
        ):
            # No kubelet has received the Register call.
            self.registered_s = self.former_s
        self.check(actions)
        return actions

    def check(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case StartServer():
                    assert action.server > self.last_server, "a server's number is used again"
                    self.last_server = action.server
                    self.alive.add(action.server)
                case StopServer():
                    assert action.server in self.alive, "a server that does not run is stopped"
                    self.alive.remove(action.server)
                case Register():
                    assert action.server in self.alive & self.served, (
                        "a server is registered before it listens"
                    )
                    gap_s = GRACE_S if self.registered_s is None else self.now - self.registered_s
                    assert gap_s >= GRACE_S, "Register is called twice within GRACE_S"
                    self.former_s, self.registered_s = self.registered_s, self.now
        assert len(self.alive) <= 1, "two servers of one resource"
        state, due_s = self.machine.state, self.machine.due_s
        assert due_s is not None or state == "waiting", "no tick follows, and the registration waits forever"
        if due_s is not None:
            assert due_s <= self.now + max(BACKOFF.most_s, ACTION_TIMEOUT_S, RECHECK_S) + GRACE_S


@given(HISTORIES)
def test_no_order_of_events_violates_a_rule(history: list[tuple[Event, float]]) -> None:
    watched = Watched()
    for event, step_s in history:
        watched.now += step_s
        watched.apply(event)


@given(HISTORIES)
def test_after_any_events_the_resource_is_registered_with_a_new_kubelet(
    history: list[tuple[Event, float]],
) -> None:
    watched = Watched()
    for event, step_s in history:
        watched.now += step_s
        watched.apply(event)
    pending = list(watched.apply(KubeletSocketChanged(identity=(9, 9, 9))))
    machine = watched.machine
    since_s = watched.now
    for _ in range(30):
        while pending:
            match pending.pop(0):
                case StartServer() as action:
                    pending += watched.apply(ServerStarted(server=action.server))
                case Register() as action:
                    pending += watched.apply(StreamOpened(server=action.server))
                    pending += watched.apply(RegistrationAccepted(server=action.server))
                case GetAllocatable():
                    pending += watched.apply(
                        AllocatableReported(owner="ours" if machine.state == "registered" else "none")
                    )
        if machine.state == "registered":
            break
        assert machine.due_s is not None
        watched.now = max(watched.now, machine.due_s)
        pending += watched.apply(Tick())
    assert machine.state == "registered"
    # The registration waits only after a recent end of a stream or a recent Register call.
    assert watched.now - since_s <= 2 * GRACE_S
    for _ in range(5):
        assert machine.due_s is not None
        watched.now = machine.due_s
        assert watched.apply(Tick()) == (GetAllocatable(),)
        assert watched.apply(AllocatableReported(owner="ours")) == ()
    assert machine.is_confirmed
