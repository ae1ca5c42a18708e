"""The registration of a resource that another device plugin may have registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.kubelet.registration import AGAIN_S, ANSWER_S, ONE, OTHERS, due, registered

from cdigen.kubelet.registration.events import (
    AllocatableReported,
    GetAllocatable,
    KubeletSocketChanged,
    OtherPluginsDetected,
    Register,
    ServerStarted,
    SocketRemoved,
    StartServer,
    StopServer,
    StreamEnded,
    Tick,
)
from cdigen.kubelet.registration.state_machine import CLAIMED_RECHECK_S, Registration, allocatable_owner

if TYPE_CHECKING:
    from cdigen.kubelet.registration.events import Action, AllocatableOwner


def still_shown(machine: Registration, shown: AllocatableOwner, now: float) -> tuple[Action, ...]:
    """Report the owner SHOWN for 3 s (the limit for a former process); return the actions after this time."""
    until_s = now + 3.0
    while now < until_s:
        assert machine.apply(AllocatableReported(owner=shown), now) == ()
        now += 0.25
        assert machine.due_s == now
        assert machine.apply(Tick(), now) == (GetAllocatable(),)
    return machine.apply(AllocatableReported(owner=shown), now)


@pytest.mark.parametrize("shown", ["ours", "others"])
def test_a_later_plugin_with_equal_or_different_ids_keeps_the_resource(shown: AllocatableOwner) -> None:
    machine = registered()
    machine.apply(OTHERS, 99.0)
    machine.apply(StreamEnded(server=1), 100.0)
    machine.apply(Tick(), 102.0)
    machine.apply(ServerStarted(server=2), 102.0)
    assert still_shown(machine, shown, 102.0) == (StopServer(server=2),)
    assert (machine.state, machine.reason) == (
        "claimed-by-other",
        "another device plugin has registered the resource",
    )


@pytest.mark.parametrize("shown", ["ours", "others"])
def test_an_earlier_plugin_with_equal_or_different_ids_keeps_the_resource_until_it_ends(
    shown: AllocatableOwner,
) -> None:
    machine = Registration()
    machine.apply(OTHERS, 0.0)
    assert machine.apply(KubeletSocketChanged(identity=ONE), 0.0) == (StartServer(server=1),)
    assert machine.apply(ServerStarted(server=1), 0.0) == (GetAllocatable(),)
    assert still_shown(machine, shown, 0.0) == (StopServer(server=1),)
    now = 3.0
    for _ in range(20):
        assert machine.state == "claimed-by-other"
        assert machine.due_s == now + CLAIMED_RECHECK_S
        now = due(machine)
        assert machine.apply(Tick(), now) == (GetAllocatable(),)
        assert machine.apply(AllocatableReported(owner=shown), now) == ()
    assert machine.apply(AllocatableReported(owner="none"), now + 1) == (StartServer(server=2),)
    assert machine.apply(ServerStarted(server=2), now + 1) == (GetAllocatable(),)
    assert machine.apply(AllocatableReported(owner="none"), now + 1) == (Register(server=2),)


@pytest.mark.parametrize("shown", ["none", "unknown"])
def test_register_is_called_if_a_repeated_query_shows_no_owner(shown: AllocatableOwner) -> None:
    # The kubelet may still show the devices of a process that was just killed, so the query is repeated.
    machine = Registration()
    machine.apply(KubeletSocketChanged(identity=ONE), 0.0)
    machine.apply(ServerStarted(server=1), 0.0)
    machine.apply(AllocatableReported(owner="ours"), 0.0)
    assert machine.apply(Tick(), 1.0) == (GetAllocatable(),)
    assert machine.apply(AllocatableReported(owner=shown), 1.0) == (Register(server=1),)


def test_register_is_called_if_devices_are_shown_but_no_other_plugin_has_a_socket() -> None:
    # Kubelets may show the list of a former plugin permanently (kubernetes/kubernetes#121994).
    machine = Registration()
    machine.apply(KubeletSocketChanged(identity=ONE), 0.0)
    machine.apply(ServerStarted(server=1), 0.0)
    assert still_shown(machine, "ours", 0.0) == (Register(server=1),)


def test_a_resource_is_registered_after_the_last_other_plugin_has_gone() -> None:
    machine = registered()
    machine.apply(OTHERS, 0.0)
    for now in (2.0, 4.0):
        machine.apply(Tick(), now)
        machine.apply(AllocatableReported(owner="others"), now)
    assert machine.state == "claimed-by-other"
    machine.apply(OtherPluginsDetected(names=frozenset()), 10.0)
    assert machine.apply(AllocatableReported(owner="others"), 10.0) == (StopServer(server=1),)
    assert machine.reason == "the other device plugin is gone"


def test_an_open_stream_stays_open_while_another_plugin_has_the_resource() -> None:
    machine = registered()
    machine.apply(OTHERS, 0.0)
    for now in (2.0, 4.0):
        assert machine.apply(Tick(), now) == (GetAllocatable(),)
        assert machine.apply(AllocatableReported(owner="others"), now) == ()
    assert machine.state == "claimed-by-other"
    assert machine.apply(SocketRemoved(server=1), 5.0) == ()
    assert machine.apply(StreamEnded(server=1), 6.0) == (StopServer(server=1),)
    assert machine.state == "claimed-by-other"


def test_allocatable_devices_are_queried_soon_after_another_plugin_appears() -> None:
    machine = registered()
    for now in (2.0, 10.0):
        machine.apply(Tick(), now)
        machine.apply(AllocatableReported(owner="ours"), now)
    assert machine.due_s == 70.0
    machine.apply(OTHERS, 20.0)
    assert machine.due_s == 22.0
    assert machine.apply(Tick(), 22.0) == (GetAllocatable(),)


def test_a_busy_kubelet_is_queried_again_before_the_register_call() -> None:
    machine = registered()
    machine.apply(OTHERS, 0.0)
    machine.apply(StreamEnded(server=1), 100.0)
    assert machine.apply(Tick(), 102.0) == (StartServer(server=2),)
    assert machine.apply(ServerStarted(server=2), 102.0) == (GetAllocatable(),)
    now = 102.0 + ANSWER_S
    assert machine.apply(AllocatableReported(owner="late"), now) == ()
    while machine.state != "claimed-by-other":
        assert machine.due_s == now + AGAIN_S
        now = due(machine)
        assert machine.apply(Tick(), now) == (GetAllocatable(),)
        assert Register(server=2) not in machine.apply(AllocatableReported(owner="others"), now)


def test_cdigen_owns_shown_devices_if_they_include_a_healthy_device_of_cdigen() -> None:
    shown = {"a/b": frozenset({"x", "y"}), "a/c": frozenset()}
    assert allocatable_owner(shown, "a/b", frozenset({"y", "z"})) == "ours"
    assert allocatable_owner(shown, "a/b", frozenset({"z"})) == "others"
    assert allocatable_owner(shown, "a/b", frozenset()) == "others"
    assert allocatable_owner(shown, "a/c", frozenset({"z"})) == "none"
    assert allocatable_owner(shown, "a/d", frozenset()) == "unknown"
