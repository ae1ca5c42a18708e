"""Registrations in the states in which tests begin."""

from __future__ import annotations

from cdigen.kubelet.registration.events import (
    KubeletSocketChanged,
    OtherPluginsDetected,
    Register,
    RegistrationAccepted,
    ServerStarted,
    StartServer,
    StreamOpened,
)
from cdigen.kubelet.registration.state_machine import Registration

ONE, OTHER = (1, 10, 100), (1, 11, 200)
# The duration of a query to a busy kubelet, and the delay before the next query.
ANSWER_S, AGAIN_S = 1.5, 0.25
OTHERS = OtherPluginsDetected(names=frozenset({"nvidia-gpu.sock"}))


def begun() -> Registration:
    """Return a registration that begins without a kubelet, so that no other plugin can be registered."""
    machine = Registration()
    assert machine.apply(KubeletSocketChanged(identity=None), 0.0) == ()
    return machine


def served() -> Registration:
    """Return a registration whose server listens, and whose Register call to the kubelet ONE has begun."""
    machine = begun()
    assert machine.apply(KubeletSocketChanged(identity=ONE), 0.0) == (StartServer(server=1),)
    assert machine.apply(ServerStarted(server=1), 0.0) == (Register(server=1),)
    return machine


def registered() -> Registration:
    """Return a registration with the kubelet ONE, in the state `registered` since the time 0."""
    machine = served()
    assert machine.apply(StreamOpened(server=1), 0.0) == ()
    assert machine.apply(RegistrationAccepted(server=1), 0.0) == ()
    assert machine.state == "registered"
    return machine


def due(machine: Registration) -> float:
    """Return the time of the next tick of MACHINE; fail if there is no next tick."""
    assert machine.due_s is not None
    return machine.due_s
