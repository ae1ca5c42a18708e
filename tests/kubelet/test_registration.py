"""The registration of a resource: the order of its steps, and the delays between them."""

from __future__ import annotations

from support.kubelet.registration import AGAIN_S, ANSWER_S, ONE, OTHER, begun, due, registered, served

from cdigen.kubelet.registration.events import (
    AllocatableReported,
    GetAllocatable,
    KubeletSocketChanged,
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
from cdigen.kubelet.registration.state_machine import LIST_REQUEST_S, SERVE_BACKOFF, STREAM_END_DELAY_S
from cdigen.kubelet.registration.timing import GRACE_S, NEW_SOCKET_GRACE_S

UNREACHED = RegistrationFailed(server=1, reason="connection refused", was_reached=False)


def test_the_steps_are_the_start_of_the_server_a_register_call_and_a_list_request() -> None:
    machine = begun()
    assert machine.apply(Tick(), 0.0) == ()
    assert machine.apply(KubeletSocketChanged(identity=ONE), 5.0) == (StartServer(server=1),)
    assert machine.apply(ServerStarted(server=1), 5.1) == (Register(server=1),)
    assert machine.apply(RegistrationAccepted(server=1), 5.2) == ()
    assert machine.due_s == 5.2 + LIST_REQUEST_S
    machine.apply(StreamOpened(server=1), 5.3)
    assert machine.state == "registered"


def test_without_a_list_request_in_time_the_resource_is_registered_on_another_socket() -> None:
    machine = begun()
    for event in (
        KubeletSocketChanged(identity=ONE),
        ServerStarted(server=1),
        RegistrationAccepted(server=1),
    ):
        machine.apply(event, 0.0)
    assert machine.due_s == LIST_REQUEST_S
    assert machine.apply(Tick(), LIST_REQUEST_S - 0.1) == ()
    assert machine.apply(Tick(), LIST_REQUEST_S) == (StopServer(server=1),)
    assert machine.apply(Tick(), due(machine)) == (StartServer(server=2),)


def test_the_resource_is_registered_with_a_new_kubelet_at_once() -> None:
    machine = registered()
    machine.apply(StreamEnded(server=1), 100.0)
    actions = machine.apply(KubeletSocketChanged(identity=OTHER), 103.0)
    assert actions == (StartServer(server=2),)
    assert machine.apply(ServerStarted(server=2), 103.01) == (Register(server=2),)


def test_a_new_registration_waits_for_the_end_of_the_old_connection() -> None:
    machine = registered()
    assert machine.apply(KubeletSocketChanged(identity=OTHER), 100.0) == (StopServer(server=1),)
    assert machine.due_s == 100.0 + NEW_SOCKET_GRACE_S
    # The old stream ends late (at 100.2), and the kubelet handles its end only then.
    machine.apply(StreamEnded(server=1), 100.2)
    assert machine.apply(Tick(), 100.0 + NEW_SOCKET_GRACE_S) == ()
    assert machine.apply(Tick(), 100.2 + NEW_SOCKET_GRACE_S) == (StartServer(server=2),)


def test_an_end_of_the_old_stream_while_the_new_server_starts_delays_the_register_call() -> None:
    machine = registered()
    machine.apply(KubeletSocketChanged(identity=OTHER), 100.0)
    assert machine.apply(Tick(), 100.3) == (StartServer(server=2),)
    machine.apply(StreamEnded(server=1), 100.4)
    assert machine.apply(ServerStarted(server=2), 100.5) == ()
    assert machine.apply(Tick(), 100.4 + NEW_SOCKET_GRACE_S) == (Register(server=2),)


def test_a_kubelet_that_restarts_quickly_gets_a_registration_within_half_a_second() -> None:
    machine = registered()
    machine.apply(StreamEnded(server=1), 100.0)
    assert machine.apply(KubeletSocketChanged(identity=OTHER), 100.01) == ()
    assert due(machine) <= 100.01 + NEW_SOCKET_GRACE_S
    assert machine.apply(Tick(), due(machine)) == (StartServer(server=2),)
    assert machine.apply(ServerStarted(server=2), due(machine) + 0.01) == (Register(server=2),)


def test_quickly_replaced_sockets_of_the_kubelet_cause_no_register_calls() -> None:
    machine = registered()
    registers = 0
    for step in range(100):
        now = 0.01 * step
        actions = machine.apply(KubeletSocketChanged(identity=(1, step + 50, step)), now)
        for action in actions:
            if isinstance(action, StartServer):
                registers += Register(server=action.server) in machine.apply(
                    ServerStarted(server=action.server), now
                )
    assert registers == 0
    assert due(machine) <= 2 * GRACE_S


def test_attempts_to_make_a_socket_have_a_short_backoff() -> None:
    machine = begun()
    machine.apply(KubeletSocketChanged(identity=ONE), 0.0)
    now = 0.0
    for number in range(1, 100):
        machine.apply(ServerFailed(server=number, reason="No space left on device"), now)
        assert 0.0 < due(machine) - now <= SERVE_BACKOFF.most_s
        now = due(machine)
        assert machine.apply(Tick(), now) == (StartServer(server=number + 1),)
    machine.apply(ServerStarted(server=100), now)
    assert machine.state == "registering"


def test_a_removed_socket_of_the_server_causes_a_new_registration() -> None:
    machine = registered()
    assert machine.apply(SocketRemoved(server=1), 50.0) == (StopServer(server=1),)
    assert machine.apply(Tick(), 50.0 + GRACE_S) == (StartServer(server=2),)


def test_register_is_called_after_the_end_of_a_stream_if_the_kubelet_shows_no_devices() -> None:
    machine = registered()
    assert machine.apply(StreamEnded(server=1), 100.0) == (StopServer(server=1),)
    assert machine.apply(Tick(), due(machine)) == (StartServer(server=2),)
    assert machine.apply(ServerStarted(server=2), 103.0) == (GetAllocatable(),)
    assert machine.apply(AllocatableReported(owner="none"), 103.0) == (Register(server=2),)


def test_a_resource_that_two_queries_do_not_show_is_registered_again() -> None:
    # The kubelet removes the endpoint while the stream continues (kubernetes/kubernetes#121994).
    machine = registered()
    assert machine.due_s == 2.0
    assert machine.apply(Tick(), 2.0) == (GetAllocatable(),)
    assert machine.apply(AllocatableReported(owner="none"), 2.1) == ()
    assert machine.apply(Tick(), due(machine)) == (GetAllocatable(),)
    assert machine.apply(AllocatableReported(owner="none"), due(machine)) == (StopServer(server=1),)
    assert machine.state == "backoff"


def test_a_shown_resource_is_confirmed_and_queried_again_later() -> None:
    machine = registered()
    machine.apply(Tick(), 2.0)
    machine.apply(AllocatableReported(owner="ours"), 2.1)
    assert machine.is_confirmed
    assert machine.due_s == 10.0
    machine.apply(Tick(), 10.0)
    assert machine.due_s == 70.0


def test_a_confirmed_registration_resets_the_backoff() -> None:
    machine = served()
    now = 0.0
    for _ in range(5):
        machine.apply(UNREACHED, now)
        now = due(machine)
        machine.apply(Tick(), now)
    machine.apply(StreamOpened(server=1), now)
    machine.apply(RegistrationAccepted(server=1), now)
    machine.apply(Tick(), now + 2.0)
    machine.apply(AllocatableReported(owner="ours"), now + 2.0)
    machine.apply(StreamEnded(server=1), now + 3.0)
    assert machine.due_s == now + 3.0 + STREAM_END_DELAY_S


def test_an_unreachable_kubelet_causes_a_growing_backoff_on_the_same_socket() -> None:
    machine = begun()
    machine.apply(KubeletSocketChanged(identity=ONE), 0.0)
    now, waits = 0.0, []
    actions = machine.apply(ServerStarted(server=1), now)
    for _ in range(9):
        assert actions == (Register(server=1),)
        assert machine.apply(UNREACHED, now) == ()
        waits.append(due(machine) - now)
        now = due(machine)
        actions = machine.apply(Tick(), now)
    assert waits == [1, 2, 4, 8, 15, 15, 15, 15, 15]


def test_a_new_kubelet_gets_a_new_socket_even_if_the_old_socket_was_not_registered() -> None:
    # The starting kubelet has removed the socket.
    machine = served()
    machine.apply(UNREACHED, 0.1)
    assert machine.apply(KubeletSocketChanged(identity=OTHER), 5.0) == (
        StopServer(server=1),
        StartServer(server=2),
    )


def test_a_socket_that_the_kubelet_has_accepted_late_is_not_registered_twice() -> None:
    machine = served()
    machine.apply(UNREACHED, 0.1)
    machine.apply(RegistrationAccepted(server=1), 0.2)
    assert machine.apply(Tick(), 5.0) == (StopServer(server=1), StartServer(server=2))


def test_a_list_request_after_a_failed_register_completes_the_registration() -> None:
    machine = served()
    machine.apply(UNREACHED, 0.1)
    machine.apply(StreamOpened(server=1), 0.2)
    assert machine.state == "registered"


def test_a_kubelet_that_starts_after_a_refused_connection_gets_a_registration_at_once() -> None:
    machine = registered()
    machine.apply(StreamEnded(server=1), 100.0)
    assert machine.apply(Tick(), 102.0) == (StartServer(server=2),)
    machine.apply(ServerStarted(server=2), 102.0)
    assert machine.apply(AllocatableReported(owner="unknown"), 102.0) == (Register(server=2),)
    machine.apply(RegistrationFailed(server=2, reason="connection refused", was_reached=False), 102.0)
    assert machine.apply(KubeletSocketChanged(identity=OTHER), 102.1) == (
        StopServer(server=2),
        StartServer(server=3),
    )
    assert machine.apply(ServerStarted(server=3), 102.1) == (Register(server=3),)


def test_a_refused_registration_is_repeated_on_another_socket() -> None:
    machine = served()
    failure = RegistrationFailed(server=1, reason="INTERNAL: bad", was_reached=True)
    assert machine.apply(failure, 0.1) == (StopServer(server=1),)
    assert machine.reason == "INTERNAL: bad"
    assert machine.apply(Tick(), 1.1) == (StartServer(server=2),)


def test_a_failed_attempt_to_make_a_socket_is_repeated() -> None:
    machine = begun()
    machine.apply(KubeletSocketChanged(identity=ONE), 0.0)
    assert machine.apply(ServerFailed(server=1, reason="no space"), 0.1) == ()
    assert (machine.state, machine.reason) == ("backoff", "no space")
    assert machine.apply(Tick(), 1.1) == (StartServer(server=2),)


def test_an_open_stream_keeps_the_registration_after_kubelet_sock_is_removed() -> None:
    machine = registered()
    assert machine.apply(KubeletSocketChanged(identity=None), 1.0) == ()
    machine.apply(StreamEnded(server=1), 2.0)
    assert machine.apply(Tick(), due(machine)) == ()
    assert machine.state == "waiting"


def test_stop_ends_the_server_of_a_registered_resource() -> None:
    machine = registered()
    assert machine.stop() == (StopServer(server=1),)
    assert machine.due_s is None


def test_register_is_called_if_the_kubelet_never_responds_to_queries_in_time() -> None:
    machine = registered()
    machine.apply(StreamEnded(server=1), 100.0)
    machine.apply(Tick(), 102.0)
    now = 102.0
    actions = machine.apply(ServerStarted(server=2), now)
    while actions == (GetAllocatable(),):
        now += ANSWER_S
        actions = machine.apply(AllocatableReported(owner="late"), now) or machine.apply(
            Tick(), now := now + AGAIN_S
        )
    assert actions == (Register(server=2),)
    assert now < 110.0


def test_late_responses_to_queries_do_not_end_the_registration() -> None:
    machine = registered()
    for now in (2.0, 10.0, 70.0):
        assert machine.apply(Tick(), now) == (GetAllocatable(),)
        assert machine.apply(AllocatableReported(owner="late"), now) == ()
    assert machine.state == "registered"
