"""A kubelet that is too busy to say in time what it shows: asked again, and not for ever."""

from __future__ import annotations

import pytest

from cdigen.kubelet.occurrences import (
    Accepted,
    AskShown,
    KubeletSeen,
    NeighboursSeen,
    Register,
    Serve,
    Served,
    ShownBy,
    StreamEnded,
    StreamOpened,
    Tick,
)
from cdigen.kubelet.registration import Registration

OTHERS = NeighboursSeen(names=frozenset({"nvidia-gpu.sock"}))
ANSWER_S, AGAIN_S = 1.5, 0.25


@pytest.fixture
def machine() -> Registration:
    """Return what has been registered at 0."""
    made = Registration()
    for event in (KubeletSeen(identity=None), KubeletSeen(identity=(1, 10, 100)), Served(server=1)):
        made.take(event, 0.0)
    made.take(StreamOpened(server=1), 0.0)
    made.take(Accepted(server=1), 0.0)
    assert made.state == "registered"
    return made


def test_it_is_asked_again_before_it_is_registered_with(machine: Registration) -> None:
    machine.take(OTHERS, 0.0)
    machine.take(StreamEnded(server=1), 100.0)
    assert machine.take(Tick(), 102.0) == (Serve(server=2),)
    assert machine.take(Served(server=2), 102.0) == (AskShown(),)
    now = 102.0 + ANSWER_S
    assert machine.take(ShownBy(shown="late"), now) == ()
    while machine.state != "taken":
        assert machine.due_s == now + AGAIN_S
        now = machine.due_s
        assert machine.take(Tick(), now) == (AskShown(),)
        assert Register(server=2) not in machine.take(ShownBy(shown="others"), now)


def test_one_that_never_tells_in_time_is_registered_with(machine: Registration) -> None:
    machine.take(StreamEnded(server=1), 100.0)
    machine.take(Tick(), 102.0)
    now = 102.0
    actions = machine.take(Served(server=2), now)
    while actions == (AskShown(),):
        now += ANSWER_S
        actions = machine.take(ShownBy(shown="late"), now) or machine.take(Tick(), now := now + AGAIN_S)
    assert actions == (Register(server=2),)
    assert now < 110.0


def test_it_keeps_its_registration(machine: Registration) -> None:
    for now in (2.0, 10.0, 70.0):
        assert machine.take(Tick(), now) == (AskShown(),)
        assert machine.take(ShownBy(shown="late"), now) == ()
    assert machine.state == "registered"
