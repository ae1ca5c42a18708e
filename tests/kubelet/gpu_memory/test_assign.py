"""assign finds the container of each request and exchanges reservations, also if other writers interfere."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.gpu_memory_world import CONTEXT, NODE, POD, World
from support.kubernetes.cluster_model import drive

from cdigen.gpushare.ledger import read_ledger
from cdigen.gpushare.names import ASSIGNED, INDEX, ledger_name
from cdigen.kubeapi.calls import configmap_path
from cdigen.kubelet.gpu_memory.allocations import STORED_S
from cdigen.kubelet.gpu_memory.assign import AllocationRefusedError, assign, repair

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cdigen.kubeapi.calls import Call, Reply

LEDGER = configmap_path("kube-system", ledger_name(NODE))


@pytest.fixture
def world() -> World:
    return World((4, 4))


def bound(world: World, units: int) -> str:
    name = world.create(units)
    world.receive()
    return name


def index(world: World, name: str) -> str:
    """Return the GPU of the pod NAME; fail if its annotation and its ledger entry have different GPUs."""
    found = world.cluster.objects[POD + name]["metadata"]["annotations"][INDEX]
    entry = read_ledger(world.cluster.objects[LEDGER]).entry(f"uid-{name}")
    assert entry is not None
    assert [str(gpu) for gpu, _ in entry.on] == [found]
    return str(found)


def assigned(world: World, name: str) -> str:
    return str(world.cluster.objects[POD + name]["metadata"]["annotations"][ASSIGNED])


def drive_with(
    world: World, steps: Generator[Call, Reply, Any], method: str, first: Callable[[], object]
) -> list[str]:
    """Run STEPS and return all methods; before the first METHOD, another writer makes the change FIRST."""
    methods: list[str] = []

    def answer(call: Call) -> Reply:
        if call.method == method and method not in methods:
            first()
        methods.append(call.method)
        return world.answer(call)

    drive(steps, answer)
    return methods


def test_two_pods_exchange_reservations_if_one_gpu_has_too_few_units_for_both_pods(world: World) -> None:
    large, small = bound(world, 3), bound(world, 2)
    assert (index(world, large), index(world, small)) == ("0", "1")
    assignment = world.drive(assign(world.reservations, 1, 3, CONTEXT))
    assert (assignment.bound.pod.name, assignment.moves) == (large, 2)
    assert (index(world, large), index(world, small)) == ("1", "0")


def test_equal_reservations_are_exchanged_after_the_kubelet_has_listed_the_pods(world: World) -> None:
    one, other = bound(world, 4), bound(world, 4)
    assignment = world.drive(assign(world.reservations, 1, 4, CONTEXT))
    assert assignment.bound.pod.name == other
    names = {f"default/{one}", f"default/{other}"}
    world.reservations.apply_pod_list({(f"default/{one}", "c0"): 1}, names, time.monotonic() + 2 * STORED_S)
    world.drive(repair(world.reservations, CONTEXT))
    assert (index(world, one), index(world, other)) == ("1", "0")


def test_a_reservation_that_an_extender_adds_during_a_request_is_exchanged_and_not_lost(world: World) -> None:
    moving = bound(world, 3)
    # GPU 1 has 4 free units when the agent reads the ledger, and only 2 when the agent writes the ledger.
    later = world.create(2, is_bound=False)
    methods = drive_with(world, assign(world.reservations, 1, 3, CONTEXT), "PUT", lambda: world.bind(later))
    assert methods.count("PUT") == 2
    assert (index(world, moving), index(world, later)) == ("1", "0")


def test_a_pod_that_is_changed_during_a_request_is_read_again(world: World) -> None:
    moving = bound(world, 3)

    def change() -> None:
        found = world.cluster.objects[POD + moving]
        annotations = {**found["metadata"]["annotations"], INDEX: "7", "other": "kept"}
        world.cluster.put(
            POD + moving, {**found, "metadata": {**found["metadata"], "annotations": annotations}}
        )

    methods = drive_with(world, assign(world.reservations, 1, 3, CONTEXT), "PATCH", change)
    assert methods.count("GET") > 2
    world.drive(repair(world.reservations, CONTEXT))
    assert index(world, moving) == "1"
    found = world.cluster.objects[POD + moving]["metadata"]["annotations"]
    assert found["other"] == "kept"
    assert json.loads(found["scheduler.framework.gpushare.allocation"]) == {"0": {"1": 3}}


def test_the_units_of_a_pod_that_the_kubelet_does_not_list_yet_stay_assigned(world: World) -> None:
    """After its start, a kubelet first lists no pods, and later the pods that it has read."""
    has, waits = bound(world, 3), bound(world, 3)
    assert world.admit(has)
    for names in ((), (f"default/{waits}",)):
        world.reservations.apply_pod_list({}, names, time.monotonic() + 2 * STORED_S)
        world.drive(repair(world.reservations, CONTEXT))
        assert assigned(world, has) == "true"
        assert world.reservations.preferred_gpu({0: 4, 1: 4}, (), 3) == 1
    assert world.drive(assign(world.reservations, 1, 3, CONTEXT)).bound.pod.name == waits


def test_at_the_start_an_assigned_annotation_is_valid_until_the_kubelet_lists_the_pod(world: World) -> None:
    has, waits = bound(world, 3), bound(world, 3)
    assert world.admit(has)
    world.repair()
    world.restart()
    world.reservations.forget()
    world.reservations.apply_pod_list({}, (f"default/{waits}",), time.monotonic() + 2 * STORED_S)
    world.drive(repair(world.reservations, CONTEXT))
    assert assigned(world, has) == "true"
    assert world.drive(assign(world.reservations, 1, 3, CONTEXT)).bound.pod.name == waits


def test_the_units_of_a_terminating_pod_are_not_assigned_to_another_pod(world: World) -> None:
    """A kubelet lists no terminating pod, and may reuse the pod's units while its containers still start."""
    leaving, other = bound(world, 3), bound(world, 3)
    world.drive(assign(world.reservations, 0, 3, CONTEXT))
    found = world.cluster.objects[POD + leaving]
    metadata = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.cluster.put(POD + leaving, {**found, "metadata": metadata})
    world.receive()
    world.reservations.apply_pod_list({}, {f"default/{other}"}, time.monotonic() + 2 * STORED_S)
    assert world.reservations.preferred_gpu({0: 4, 1: 4}, (), 3) == 1
    with pytest.raises(AllocationRefusedError, match="the units of GPU 0 are reserved for other pods"):
        world.drive(assign(world.reservations, 0, 3, CONTEXT))
    assert world.drive(assign(world.reservations, 1, 3, CONTEXT)).bound.pod.name == other
    assert (index(world, leaving), index(world, other)) == ("0", "1")
    world.run(leaving)
    world.receive()
    world.drive(repair(world.reservations, CONTEXT))
    assert (index(world, leaving), index(world, other)) == ("0", "1")
