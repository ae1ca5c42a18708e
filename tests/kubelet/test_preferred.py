"""Preferences.choose returns the preferred units of a container."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from support.kubelet.resources import GPU, ids, migs, replicas, resource, unit
from support.values.topology_machines import PASCAL, PASCAL_SWITCHES, dgx1

from cdigen.kubelet.allocation.preferred import Preferences
from cdigen.kubelet.resources.model import Resource


def prefer(
    advertised: Resource, available: Iterable[str], must: Iterable[str], count: int, *, spread: bool = False
) -> tuple[str, ...]:
    return Preferences(advertised, spread=spread).choose(available, must, count)


def test_gpus_that_are_linked_to_each_other_are_preferred() -> None:
    advertised = Resource(name=GPU, units=tuple(unit(one) for one in dgx1(PASCAL, PASCAL_SWITCHES)))

    # GPUs 5 and 6 are linked on one CPU socket, GPUs 2 and 6 across sockets. GPUs 2 and 5 are not linked.
    assert prefer(advertised, ["GPU-2", "GPU-5", "GPU-6"], (), 2) == ("GPU-5", "GPU-6")
    assert prefer(advertised, ["GPU-2", "GPU-5", "GPU-6"], ["GPU-2"], 2) == ("GPU-2", "GPU-6")


def test_ids_that_must_be_included_come_first() -> None:
    advertised = resource(8)

    assert prefer(advertised, ids(advertised, range(8)), ["GPU-7"], 3)[0] == "GPU-7"


def test_replicas_are_packed_on_one_gpu_or_spread_over_all_gpus() -> None:
    advertised = replicas(3, 4)
    every = ids(advertised, range(12))

    assert {one.split("::")[0] for one in prefer(advertised, every, (), 3)} == {"GPU-0"}
    assert {one.split("::")[0] for one in prefer(advertised, every, (), 3, spread=True)} == {
        "GPU-0",
        "GPU-1",
        "GPU-2",
    }


def test_spread_replicas_are_on_the_gpu_with_fewer_replicas_in_use() -> None:
    advertised = replicas(2, 4)
    # Two replicas of the first GPU are in use.
    free = ids(advertised, [2, 3, 4, 5, 6, 7])

    assert prefer(advertised, free, (), 2, spread=True) == ("GPU-1::0", "GPU-1::1")


def test_mig_instances_come_from_as_few_gpus_as_possible() -> None:
    advertised = migs(2, 3)

    assert prefer(advertised, ids(advertised, [0, 3, 4, 5]), (), 3) == ("MIG-1-0", "MIG-1-1", "MIG-1-2")


def test_unknown_ids_come_last_and_are_no_error() -> None:
    advertised = resource(2)

    assert prefer(advertised, ["GPU-8", "GPU-1"], (), 1) == ("GPU-1",)
    assert prefer(advertised, ["GPU-8", "GPU-1"], (), 2) == ("GPU-1", "GPU-8")
    assert prefer(advertised, ["GPU-0", "GPU-1"], ["GPU-9"], 2) == ("GPU-9", "GPU-0")


def test_a_required_id_that_is_unknown_is_part_of_the_requested_number() -> None:
    advertised = replicas(2, 4)
    free = ids(advertised, [0, 1, 2, 3, 7])

    # Beside GPU-9, one replica is chosen, on GPU-1 (in use). Two replicas would be chosen on GPU-0.
    assert prefer(advertised, free, ["GPU-9"], 2) == ("GPU-9", "GPU-1::3")


ANY = st.sampled_from([*(f"GPU-{n}::{m}" for n in range(3) for m in range(3)), "", "GPU-9", "x"])


@given(st.lists(ANY), st.lists(ANY), st.integers(-2, 12), st.booleans())
def test_a_preference_has_the_requested_number_of_available_ids(
    available: list[str],
    must: list[str],
    count: int,
    spread: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    found = prefer(replicas(3, 3), available, must, count, spread=spread)

    offered = {*available, *must}
    assert len(found) == len(set(found)) == min(max(count, 0), len(offered))
    assert {*found} <= offered
    assert {*list(dict.fromkeys(must))[: max(count, 0)]} <= {*found}
