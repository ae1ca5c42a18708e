"""Whatever happens in whatever order, the rules of a registration hold, and a good kubelet has it at last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from cdigen.kubelet.occurrences import (
    Accepted,
    AskShown,
    KubeletSeen,
    NeighboursSeen,
    Register,
    RegisterFailed,
    Serve,
    Served,
    ServeFailed,
    ShownBy,
    SocketGone,
    Stop,
    StreamEnded,
    StreamOpened,
    Tick,
)
from cdigen.kubelet.registration import LONGEST_PAUSE_S, LOST_S, MOMENT_S, RECHECK_S, Registration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.kubelet.occurrences import Action, Event

SERVERS = st.integers(0, 6)
KUBELETS = st.none() | st.tuples(st.just(1), st.integers(1, 4), st.integers(1, 2))
EVENTS = st.one_of(
    st.builds(KubeletSeen, identity=KUBELETS),
    *(st.builds(kind, server=SERVERS) for kind in (Served, Accepted, StreamOpened, StreamEnded, SocketGone)),
    st.builds(ServeFailed, server=SERVERS, reason=st.just("full")),
    st.builds(RegisterFailed, server=SERVERS, reason=st.just("no"), was_reached=st.booleans()),
    st.builds(ShownBy, shown=st.sampled_from(("ours", "others", "none", "late", "unknown"))),
    st.builds(NeighboursSeen, names=st.sampled_from((frozenset(), frozenset({"a.sock"})))),
    st.builds(Tick),
)
STEPS_S = st.sampled_from((0.0, 0.01, 0.3, 1.0, 2.5, 5.0, 20.0, 61.0))
HISTORIES = st.lists(st.tuples(EVENTS, STEPS_S), max_size=60)


class Watched:
    """A registration, and what it has asked for: breaks where a rule is broken."""

    def __init__(self) -> None:
        self.machine = Registration()
        self.now = 0.0
        self.alive: set[int] = set()
        self.served: set[int] = set()
        self.registered_s: float | None = None
        self.former_s: float | None = None
        self.most = 0

    def take(self, event: Event) -> tuple[Action, ...]:
        if isinstance(event, Served) and event.server in self.alive:
            self.served.add(event.server)
        if isinstance(event, ServeFailed) and event.server not in self.served:
            self.alive.discard(event.server)
        before = self.machine.state, self.machine.server
        actions = self.machine.take(event, self.now)
        if (
            isinstance(event, RegisterFailed)
            and not event.was_reached
            and before == ("registering", event.server)
            and self.machine.state == "paused"
        ):
            # No kubelet has seen it.
            self.registered_s = self.former_s
        self.judge(actions)
        return actions

    def judge(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Serve():
                    assert action.server > self.most, "a server's number is used again"
                    self.most = action.server
                    self.alive.add(action.server)
                case Stop():
                    assert action.server in self.alive, "what does not run is stopped"
                    self.alive.remove(action.server)
                case Register():
                    assert action.server in self.alive & self.served, "registered before it is served"
                    gap_s = MOMENT_S if self.registered_s is None else self.now - self.registered_s
                    assert gap_s >= MOMENT_S, "registered twice within a moment"
                    self.former_s, self.registered_s = self.registered_s, self.now
        assert len(self.alive) <= 1, "two servers of one resource"
        state, due_s = self.machine.state, self.machine.due_s
        assert due_s is not None or state == "waiting", "nothing would ever wake it"
        if due_s is not None:
            assert due_s <= self.now + max(LONGEST_PAUSE_S, LOST_S, RECHECK_S) + MOMENT_S


@given(HISTORIES)
def test_no_order_of_events_breaks_a_rule(history: list[tuple[Event, float]]) -> None:
    watched = Watched()
    for event, step_s in history:
        watched.now += step_s
        watched.take(event)


@given(HISTORIES)
def test_after_any_history_a_new_kubelet_that_answers_has_the_registration(
    history: list[tuple[Event, float]],
) -> None:
    watched = Watched()
    for event, step_s in history:
        watched.now += step_s
        watched.take(event)
    pending = list(watched.take(KubeletSeen(identity=(9, 9, 9))))
    machine = watched.machine
    since_s = watched.now
    for _ in range(30):
        while pending:
            match pending.pop(0):
                case Serve() as action:
                    pending += watched.take(Served(server=action.server))
                case Register() as action:
                    pending += watched.take(StreamOpened(server=action.server))
                    pending += watched.take(Accepted(server=action.server))
                case AskShown():
                    pending += watched.take(
                        ShownBy(shown="ours" if machine.state == "registered" else "none")
                    )
        if machine.state == "registered":
            break
        assert machine.due_s is not None
        watched.now = max(watched.now, machine.due_s)
        pending += watched.take(Tick())
    assert machine.state == "registered"
    # Unless an earlier end of a stream, or Register, was a moment ago.
    assert watched.now - since_s <= 2 * MOMENT_S
    for _ in range(5):
        assert machine.due_s is not None
        watched.now = machine.due_s
        assert watched.take(Tick()) == (AskShown(),)
        assert watched.take(ShownBy(shown="ours")) == ()
    assert machine.is_confirmed
