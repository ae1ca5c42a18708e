"""Whose units the kubelet asks for, request by request: exchanges, and who is first in between."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.shares_world import NODE, POD, TERMS, World
from support.kubernetes.cluster_model import drive

from cdigen.gpushare.ledger import read_ledger
from cdigen.gpushare.names import ASSIGNED, INDEX, ledger_name
from cdigen.kubeapi.calls import configmap_path
from cdigen.kubelet.shares.given import STORED_S
from cdigen.kubelet.shares.settling import ShareRefused, repair, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cdigen.kubeapi.calls import Call, Reply

LEDGER = configmap_path("kube-system", ledger_name(NODE))


@pytest.fixture
def world() -> World:
    return World((4, 4))


def bound(world: World, units: int) -> str:
    name = world.create(units)
    world.hear()
    return name


def index(world: World, name: str) -> str:
    """Return the GPU that the annotations of a pod and its ledger name alike."""
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
    """Run STEPS; once, just before a request of METHOD, somebody else is FIRST. Returns all methods."""
    asked: list[str] = []

    def answer(call: Call) -> Reply:
        if call.method == method and method not in asked:
            first()
        asked.append(call.method)
        return world.answer(call)

    drive(steps, answer)
    return asked


def test_two_pods_change_places_where_there_is_no_room_for_both(world: World) -> None:
    large, small = bound(world, 3), bound(world, 2)
    assert (index(world, large), index(world, small)) == ("0", "1")
    settled = world.drive(settle(world.books, 1, 3, TERMS))
    assert (settled.bound.pod.name, settled.moves) == (large, 2)
    assert (index(world, large), index(world, small)) == ("1", "0")


def test_equal_sums_are_exchanged_once_the_kubelet_tells_who_has_which(world: World) -> None:
    one, other = bound(world, 4), bound(world, 4)
    settled = world.drive(settle(world.books, 1, 4, TERMS))
    assert settled.bound.pod.name == other
    names = {f"default/{one}", f"default/{other}"}
    world.books.learn({(f"default/{one}", "c0"): 1}, names, time.monotonic() + 2 * STORED_S)
    world.drive(repair(world.books, TERMS))
    assert (index(world, one), index(world, other)) == ("1", "0")


def test_what_an_extender_promises_in_between_stays_promised(world: World) -> None:
    moving = bound(world, 3)
    # GPU 1 has room when the ledger is read, and none when it is written.
    later = world.create(2, is_bound=False)
    asked = drive_with(world, settle(world.books, 1, 3, TERMS), "PUT", lambda: world.bind(later))
    assert asked.count("PUT") == 2
    assert (index(world, moving), index(world, later)) == ("1", "0")


def test_a_pod_that_was_changed_in_between_is_read_anew(world: World) -> None:
    moving = bound(world, 3)

    def change() -> None:
        found = world.cluster.objects[POD + moving]
        annotations = {**found["metadata"]["annotations"], INDEX: "7", "other": "kept"}
        world.cluster.put(
            POD + moving, {**found, "metadata": {**found["metadata"], "annotations": annotations}}
        )

    asked = drive_with(world, settle(world.books, 1, 3, TERMS), "PATCH", change)
    assert asked.count("GET") > 2
    world.drive(repair(world.books, TERMS))
    assert index(world, moving) == "1"
    found = world.cluster.objects[POD + moving]["metadata"]["annotations"]
    assert found["other"] == "kept"
    assert json.loads(found["scheduler.framework.gpushare.allocation"]) == {"0": {"1": 3}}


def test_what_a_pod_has_of_which_a_kubelet_does_not_know_yet_stays_its_own(world: World) -> None:
    """It lists no pods after its start, and then those that it has come to."""
    has, waits = bound(world, 3), bound(world, 3)
    assert world.admit(has)
    for names in ((), (f"default/{waits}",)):
        world.books.learn({}, names, time.monotonic() + 2 * STORED_S)
        world.drive(repair(world.books, TERMS))
        assert assigned(world, has) == "true"
        assert world.books.prefer({0: 4, 1: 4}, (), 3) == 1
    assert world.drive(settle(world.books, 1, 3, TERMS)).bound.pod.name == waits


def test_what_is_said_of_a_pod_counts_at_our_start_until_its_kubelet_knows_it(world: World) -> None:
    has, waits = bound(world, 3), bound(world, 3)
    assert world.admit(has)
    world.repair()
    world.restart()
    world.books.forget()
    world.books.learn({}, (f"default/{waits}",), time.monotonic() + 2 * STORED_S)
    world.drive(repair(world.books, TERMS))
    assert assigned(world, has) == "true"
    assert world.drive(settle(world.books, 1, 3, TERMS)).bound.pod.name == waits


def test_what_a_pod_that_leaves_was_given_is_given_to_nobody_else(world: World) -> None:
    """A kubelet gives it away while the pod's containers still start, and tells of it no more."""
    leaving, other = bound(world, 3), bound(world, 3)
    world.drive(settle(world.books, 0, 3, TERMS))
    found = world.cluster.objects[POD + leaving]
    metadata = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.cluster.put(POD + leaving, {**found, "metadata": metadata})
    world.hear()
    world.books.learn({}, {f"default/{other}"}, time.monotonic() + 2 * STORED_S)
    assert world.books.prefer({0: 4, 1: 4}, (), 3) == 1
    with pytest.raises(ShareRefused, match="those of GPU 0 are promised to others"):
        world.drive(settle(world.books, 0, 3, TERMS))
    assert world.drive(settle(world.books, 1, 3, TERMS)).bound.pod.name == other
    assert (index(world, leaving), index(world, other)) == ("0", "1")
    world.run(leaving)
    world.hear()
    world.drive(repair(world.books, TERMS))
    assert (index(world, leaving), index(world, other)) == ("0", "1")
