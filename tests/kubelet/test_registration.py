"""When a resource is registered: the order of what the kubelet does, and the delays between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
from cdigen.kubelet.registration import (
    ANEW_S,
    ENDED_S,
    LONGEST_SERVE_PAUSE_S,
    MOMENT_S,
    PROVE_S,
    TAKEN_RECHECK_S,
    Registration,
    compared,
)

if TYPE_CHECKING:
    from cdigen.kubelet.occurrences import Action, Shown

ONE, OTHER = (1, 10, 100), (1, 11, 200)
# How long a question to a busy kubelet takes, and when it is asked again.
ANSWER_S, AGAIN_S = 1.5, 0.25
OTHERS = NeighboursSeen(names=frozenset({"nvidia-gpu.sock"}))
UNREACHED = RegisterFailed(server=1, reason="connection refused", was_reached=False)


def begun() -> Registration:
    """Return what was there before the kubelet: nobody else can have registered."""
    machine = Registration()
    assert machine.take(KubeletSeen(identity=None), 0.0) == ()
    return machine


def served() -> Registration:
    """Return what serves, and asks the kubelet ONE to register it."""
    machine = begun()
    assert machine.take(KubeletSeen(identity=ONE), 0.0) == (Serve(server=1),)
    assert machine.take(Served(server=1), 0.0) == (Register(server=1),)
    return machine


def registered() -> Registration:
    """Return what has been registered with the kubelet ONE at 0."""
    machine = served()
    assert machine.take(StreamOpened(server=1), 0.0) == ()
    assert machine.take(Accepted(server=1), 0.0) == ()
    assert machine.state == "registered"
    return machine


def due(machine: Registration) -> float:
    """Return when MACHINE has to be woken; it must not wait for an event alone."""
    assert machine.due_s is not None
    return machine.due_s


def test_it_serves_before_it_registers_and_counts_once_the_list_was_asked_for() -> None:
    machine = begun()
    assert machine.take(Tick(), 0.0) == ()
    assert machine.take(KubeletSeen(identity=ONE), 5.0) == (Serve(server=1),)
    assert machine.take(Served(server=1), 5.1) == (Register(server=1),)
    assert machine.take(Accepted(server=1), 5.2) == ()
    assert machine.due_s == 5.2 + PROVE_S
    machine.take(StreamOpened(server=1), 5.3)
    assert machine.state == "registered"


def test_a_list_that_is_not_asked_for_in_time_is_registered_again_on_another_socket() -> None:
    machine = begun()
    for event in (KubeletSeen(identity=ONE), Served(server=1), Accepted(server=1)):
        machine.take(event, 0.0)
    assert machine.due_s == PROVE_S
    assert machine.take(Tick(), PROVE_S - 0.1) == ()
    assert machine.take(Tick(), PROVE_S) == (Stop(server=1),)
    assert machine.take(Tick(), due(machine)) == (Serve(server=2),)


def test_another_kubelet_is_registered_with_at_once() -> None:
    machine = registered()
    machine.take(StreamEnded(server=1), 100.0)
    actions = machine.take(KubeletSeen(identity=OTHER), 103.0)
    assert actions == (Serve(server=2),)
    assert machine.take(Served(server=2), 103.01) == (Register(server=2),)


def test_a_new_socket_of_a_kubelet_that_is_still_connected_waits_for_the_end_of_the_old_connection() -> None:
    machine = registered()
    assert machine.take(KubeletSeen(identity=OTHER), 100.0) == (Stop(server=1),)
    assert machine.due_s == 100.0 + ANEW_S
    # The end of the old stream comes late: the kubelet notices it then.
    machine.take(StreamEnded(server=1), 100.2)
    assert machine.take(Tick(), 100.0 + ANEW_S) == ()
    assert machine.take(Tick(), 100.2 + ANEW_S) == (Serve(server=2),)


def test_an_end_of_the_old_stream_while_the_new_server_starts_delays_its_registration() -> None:
    machine = registered()
    machine.take(KubeletSeen(identity=OTHER), 100.0)
    assert machine.take(Tick(), 100.3) == (Serve(server=2),)
    machine.take(StreamEnded(server=1), 100.4)
    assert machine.take(Served(server=2), 100.5) == ()
    assert machine.take(Tick(), 100.4 + ANEW_S) == (Register(server=2),)


def test_a_kubelet_that_is_there_again_at_once_is_registered_with_within_half_a_second() -> None:
    machine = registered()
    machine.take(StreamEnded(server=1), 100.0)
    assert machine.take(KubeletSeen(identity=OTHER), 100.01) == ()
    assert due(machine) <= 100.01 + ANEW_S
    assert machine.take(Tick(), due(machine)) == (Serve(server=2),)
    assert machine.take(Served(server=2), due(machine) + 0.01) == (Register(server=2),)


def test_sockets_that_follow_each_other_quickly_are_not_all_registered_with() -> None:
    machine = registered()
    registers = 0
    for step in range(100):
        now = 0.01 * step
        actions = machine.take(KubeletSeen(identity=(1, step + 50, step)), now)
        for action in actions:
            if isinstance(action, Serve):
                registers += Register(server=action.server) in machine.take(Served(server=action.server), now)
    assert registers == 0
    assert due(machine) <= 2 * MOMENT_S


def test_a_socket_that_can_be_made_after_a_long_time_is_made_soon() -> None:
    machine = begun()
    machine.take(KubeletSeen(identity=ONE), 0.0)
    now = 0.0
    for number in range(1, 100):
        machine.take(ServeFailed(server=number, reason="No space left on device"), now)
        assert 0.0 < due(machine) - now <= LONGEST_SERVE_PAUSE_S
        now = due(machine)
        assert machine.take(Tick(), now) == (Serve(server=number + 1),)
    machine.take(Served(server=100), now)
    assert machine.state == "registering"


def test_its_own_socket_gone_is_registered_anew() -> None:
    machine = registered()
    assert machine.take(SocketGone(server=1), 50.0) == (Stop(server=1),)
    assert machine.take(Tick(), 50.0 + MOMENT_S) == (Serve(server=2),)


def test_a_stream_that_the_kubelet_ends_is_registered_again_once_nobody_is_shown() -> None:
    machine = registered()
    assert machine.take(StreamEnded(server=1), 100.0) == (Stop(server=1),)
    assert machine.take(Tick(), due(machine)) == (Serve(server=2),)
    assert machine.take(Served(server=2), 103.0) == (AskShown(),)
    assert machine.take(ShownBy(shown="none"), 103.0) == (Register(server=2),)


def still_shown(machine: Registration, shown: Shown, now: float) -> tuple[Action, ...]:
    """Return what is done once the kubelet has shown SHOWN for the 3 s in which a former process's may go."""
    until_s = now + 3.0
    while now < until_s:
        assert machine.take(ShownBy(shown=shown), now) == ()
        now += 0.25
        assert machine.due_s == now
        assert machine.take(Tick(), now) == (AskShown(),)
    return machine.take(ShownBy(shown=shown), now)


@pytest.mark.parametrize("shown", ["ours", "others"])
def test_another_plugin_that_has_come_is_not_fought_whatever_its_ids_are(shown: Shown) -> None:
    machine = registered()
    machine.take(OTHERS, 99.0)
    machine.take(StreamEnded(server=1), 100.0)
    machine.take(Tick(), 102.0)
    machine.take(Served(server=2), 102.0)
    assert still_shown(machine, shown, 102.0) == (Stop(server=2),)
    assert (machine.state, machine.reason) == ("taken", "another device plugin has registered it")


@pytest.mark.parametrize("shown", ["ours", "others"])
def test_another_plugin_that_was_there_first_is_left_alone_and_followed_once_it_has_gone(
    shown: Shown,
) -> None:
    machine = Registration()
    machine.take(OTHERS, 0.0)
    assert machine.take(KubeletSeen(identity=ONE), 0.0) == (Serve(server=1),)
    assert machine.take(Served(server=1), 0.0) == (AskShown(),)
    assert still_shown(machine, shown, 0.0) == (Stop(server=1),)
    now = 3.0
    for _ in range(20):
        assert machine.state == "taken"
        assert machine.due_s == now + TAKEN_RECHECK_S
        now = due(machine)
        assert machine.take(Tick(), now) == (AskShown(),)
        assert machine.take(ShownBy(shown=shown), now) == ()
    assert machine.take(ShownBy(shown="none"), now + 1) == (Serve(server=2),)
    assert machine.take(Served(server=2), now + 1) == (AskShown(),)
    assert machine.take(ShownBy(shown="none"), now + 1) == (Register(server=2),)


@pytest.mark.parametrize("shown", ["none", "unknown"])
def test_a_kubelet_that_shows_nobody_is_registered_with(shown: Shown) -> None:
    # A process that was killed a moment ago may still be shown: asked twice.
    machine = Registration()
    machine.take(KubeletSeen(identity=ONE), 0.0)
    machine.take(Served(server=1), 0.0)
    machine.take(ShownBy(shown="ours"), 0.0)
    assert machine.take(Tick(), 1.0) == (AskShown(),)
    assert machine.take(ShownBy(shown=shown), 1.0) == (Register(server=1),)


def test_what_the_kubelet_shows_without_another_socket_is_nobodys() -> None:
    # Up to 1.35 a former plugin's list may be shown for good, kubernetes/kubernetes#121994.
    machine = Registration()
    machine.take(KubeletSeen(identity=ONE), 0.0)
    machine.take(Served(server=1), 0.0)
    assert still_shown(machine, "ours", 0.0) == (Register(server=1),)


def test_a_resource_whose_last_neighbour_has_gone_is_registered_whatever_is_shown() -> None:
    machine = registered()
    machine.take(OTHERS, 0.0)
    for now in (2.0, 4.0):
        machine.take(Tick(), now)
        machine.take(ShownBy(shown="others"), now)
    assert machine.state == "taken"
    machine.take(NeighboursSeen(names=frozenset()), 10.0)
    assert machine.take(ShownBy(shown="others"), 10.0) == (Stop(server=1),)
    assert machine.reason == "nobody else has it any more"


def test_a_stream_beside_that_of_another_plugin_stays_until_it_ends() -> None:
    machine = registered()
    machine.take(OTHERS, 0.0)
    for now in (2.0, 4.0):
        assert machine.take(Tick(), now) == (AskShown(),)
        assert machine.take(ShownBy(shown="others"), now) == ()
    assert machine.state == "taken"
    assert machine.take(SocketGone(server=1), 5.0) == ()
    assert machine.take(StreamEnded(server=1), 6.0) == (Stop(server=1),)
    assert machine.state == "taken"


def test_what_the_kubelet_shows_is_asked_soon_after_another_plugin_has_come_or_gone() -> None:
    machine = registered()
    for now in (2.0, 10.0):
        machine.take(Tick(), now)
        machine.take(ShownBy(shown="ours"), now)
    assert machine.due_s == 70.0
    machine.take(OTHERS, 20.0)
    assert machine.due_s == 22.0
    assert machine.take(Tick(), 22.0) == (AskShown(),)


def test_what_the_kubelet_does_not_show_twice_is_registered_again() -> None:
    # kubernetes/kubernetes#121994: the endpoint is gone while the stream goes on.
    machine = registered()
    assert machine.due_s == 2.0
    assert machine.take(Tick(), 2.0) == (AskShown(),)
    assert machine.take(ShownBy(shown="none"), 2.1) == ()
    assert machine.take(Tick(), due(machine)) == (AskShown(),)
    assert machine.take(ShownBy(shown="none"), due(machine)) == (Stop(server=1),)
    assert machine.state == "paused"


def test_what_the_kubelet_shows_is_confirmed_and_asked_again_later() -> None:
    machine = registered()
    machine.take(Tick(), 2.0)
    machine.take(ShownBy(shown="ours"), 2.1)
    assert machine.is_confirmed
    assert machine.due_s == 10.0
    machine.take(Tick(), 10.0)
    assert machine.due_s == 70.0


def test_a_registration_that_the_kubelet_has_shown_is_no_failure_like_those_before() -> None:
    machine = served()
    now = 0.0
    for _ in range(5):
        machine.take(UNREACHED, now)
        now = due(machine)
        machine.take(Tick(), now)
    machine.take(StreamOpened(server=1), now)
    machine.take(Accepted(server=1), now)
    machine.take(Tick(), now + 2.0)
    machine.take(ShownBy(shown="ours"), now + 2.0)
    machine.take(StreamEnded(server=1), now + 3.0)
    assert machine.due_s == now + 3.0 + ENDED_S


def test_a_kubelet_that_is_not_there_is_asked_less_and_less_with_the_same_socket() -> None:
    machine = begun()
    machine.take(KubeletSeen(identity=ONE), 0.0)
    now, waits = 0.0, []
    actions = machine.take(Served(server=1), now)
    for _ in range(9):
        assert actions == (Register(server=1),)
        assert machine.take(UNREACHED, now) == ()
        waits.append(due(machine) - now)
        now = due(machine)
        actions = machine.take(Tick(), now)
    assert waits == [1, 2, 4, 8, 15, 15, 15, 15, 15]


def test_a_socket_that_no_kubelet_knows_yet_is_not_registered_with_another_kubelet() -> None:
    # A kubelet that starts has removed it.
    machine = served()
    machine.take(UNREACHED, 0.1)
    assert machine.take(KubeletSeen(identity=OTHER), 5.0) == (Stop(server=1), Serve(server=2))


def test_a_socket_that_the_kubelet_has_taken_after_all_is_not_registered_twice() -> None:
    machine = served()
    machine.take(UNREACHED, 0.1)
    machine.take(Accepted(server=1), 0.2)
    assert machine.take(Tick(), 5.0) == (Stop(server=1), Serve(server=2))


def test_a_list_that_is_asked_for_after_all_is_a_registration() -> None:
    machine = served()
    machine.take(UNREACHED, 0.1)
    machine.take(StreamOpened(server=1), 0.2)
    assert machine.state == "registered"


def test_a_kubelet_that_comes_just_after_a_try_that_reached_nobody_is_registered_with_at_once() -> None:
    machine = registered()
    machine.take(StreamEnded(server=1), 100.0)
    assert machine.take(Tick(), 102.0) == (Serve(server=2),)
    machine.take(Served(server=2), 102.0)
    assert machine.take(ShownBy(shown="unknown"), 102.0) == (Register(server=2),)
    machine.take(RegisterFailed(server=2, reason="connection refused", was_reached=False), 102.0)
    assert machine.take(KubeletSeen(identity=OTHER), 102.1) == (Stop(server=2), Serve(server=3))
    assert machine.take(Served(server=3), 102.1) == (Register(server=3),)


def test_a_refused_registration_is_tried_with_another_socket() -> None:
    machine = served()
    failure = RegisterFailed(server=1, reason="INTERNAL: bad", was_reached=True)
    assert machine.take(failure, 0.1) == (Stop(server=1),)
    assert machine.reason == "INTERNAL: bad"
    assert machine.take(Tick(), 1.1) == (Serve(server=2),)


def test_a_socket_that_cannot_be_made_is_tried_again() -> None:
    machine = begun()
    machine.take(KubeletSeen(identity=ONE), 0.0)
    assert machine.take(ServeFailed(server=1, reason="no space"), 0.1) == ()
    assert (machine.state, machine.reason) == ("paused", "no space")
    assert machine.take(Tick(), 1.1) == (Serve(server=2),)


def test_without_its_socket_a_kubelet_that_watches_keeps_the_registration() -> None:
    machine = registered()
    assert machine.take(KubeletSeen(identity=None), 1.0) == ()
    machine.take(StreamEnded(server=1), 2.0)
    assert machine.take(Tick(), due(machine)) == ()
    assert machine.state == "waiting"


def test_what_is_no_longer_offered_is_stopped() -> None:
    machine = registered()
    assert machine.stop() == (Stop(server=1),)
    assert machine.due_s is None


def test_a_busy_kubelet_is_asked_again_what_it_shows_before_it_is_registered_with() -> None:
    machine = registered()
    machine.take(OTHERS, 0.0)
    machine.take(StreamEnded(server=1), 100.0)
    assert machine.take(Tick(), 102.0) == (Serve(server=2),)
    assert machine.take(Served(server=2), 102.0) == (AskShown(),)
    now = 102.0 + ANSWER_S
    assert machine.take(ShownBy(shown="late"), now) == ()
    while machine.state != "taken":
        assert machine.due_s == now + AGAIN_S
        now = due(machine)
        assert machine.take(Tick(), now) == (AskShown(),)
        assert Register(server=2) not in machine.take(ShownBy(shown="others"), now)


def test_a_kubelet_that_never_shows_in_time_is_registered_with() -> None:
    machine = registered()
    machine.take(StreamEnded(server=1), 100.0)
    machine.take(Tick(), 102.0)
    now = 102.0
    actions = machine.take(Served(server=2), now)
    while actions == (AskShown(),):
        now += ANSWER_S
        actions = machine.take(ShownBy(shown="late"), now) or machine.take(Tick(), now := now + AGAIN_S)
    assert actions == (Register(server=2),)
    assert now < 110.0


def test_a_kubelet_that_is_late_to_show_keeps_the_registration() -> None:
    machine = registered()
    for now in (2.0, 10.0, 70.0):
        assert machine.take(Tick(), now) == (AskShown(),)
        assert machine.take(ShownBy(shown="late"), now) == ()
    assert machine.state == "registered"


def test_what_the_kubelet_shows_is_compared_with_the_healthy_devices() -> None:
    shown = {"a/b": frozenset({"x", "y"}), "a/c": frozenset()}
    assert compared(shown, "a/b", frozenset({"y", "z"})) == "ours"
    assert compared(shown, "a/b", frozenset({"z"})) == "others"
    assert compared(shown, "a/b", frozenset()) == "others"
    assert compared(shown, "a/c", frozenset({"z"})) == "none"
    assert compared(shown, "a/d", frozenset()) == "unknown"
