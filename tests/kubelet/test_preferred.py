"""Which units the kubelet is told to take."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from support.kubelet.resources import GPU, ids, migs, replicas, resource, unit
from support.values.topology_machines import PASCAL, PASCAL_SWITCHES, dgx1

from cdigen.kubelet.preferred import Preferences
from cdigen.kubelet.resources.model import Resource


def prefer(
    of: Resource, available: Iterable[str], must: Iterable[str], count: int, *, spread: bool = False
) -> tuple[str, ...]:
    return Preferences(of, spread=spread).prefer(available, must, count)


def test_gpus_with_links_are_preferred() -> None:
    of = Resource(name=GPU, units=tuple(unit(one) for one in dgx1(PASCAL, PASCAL_SWITCHES)))

    # Of these, 2 and 6 are linked across the sockets, 5 and 6 on one, and 2 and 5 are not.
    assert prefer(of, ["GPU-2", "GPU-5", "GPU-6"], (), 2) == ("GPU-5", "GPU-6")
    assert prefer(of, ["GPU-2", "GPU-5", "GPU-6"], ["GPU-2"], 2) == ("GPU-2", "GPU-6")


def test_what_must_be_included_comes_first() -> None:
    of = resource(8)

    assert prefer(of, ids(of, range(8)), ["GPU-7"], 3)[0] == "GPU-7"


def test_replicas_are_packed_on_one_gpu_or_spread_over_all() -> None:
    of = replicas(3, 4)
    every = ids(of, range(12))

    assert {one.split("::")[0] for one in prefer(of, every, (), 3)} == {"GPU-0"}
    assert {one.split("::")[0] for one in prefer(of, every, (), 3, spread=True)} == {
        "GPU-0",
        "GPU-1",
        "GPU-2",
    }


def test_spreading_counts_the_replicas_that_are_in_use() -> None:
    of = replicas(2, 4)
    # Two of the first GPU's are in use.
    free = ids(of, [2, 3, 4, 5, 6, 7])

    assert prefer(of, free, (), 2, spread=True) == ("GPU-1::0", "GPU-1::1")


def test_mig_instances_come_from_as_few_gpus_as_possible() -> None:
    of = migs(2, 3)

    assert prefer(of, ids(of, [0, 3, 4, 5]), (), 3) == ("MIG-1-0", "MIG-1-1", "MIG-1-2")


def test_ids_that_are_not_ours_are_taken_last_and_cost_no_error() -> None:
    of = resource(2)

    assert prefer(of, ["GPU-8", "GPU-1"], (), 1) == ("GPU-1",)
    assert prefer(of, ["GPU-8", "GPU-1"], (), 2) == ("GPU-1", "GPU-8")
    assert prefer(of, ["GPU-0", "GPU-1"], ["GPU-9"], 2) == ("GPU-9", "GPU-0")


def test_a_required_id_that_is_not_ours_takes_one_place() -> None:
    of = replicas(2, 4)
    free = ids(of, [0, 1, 2, 3, 7])

    # For one share the GPU that is in use already is better, for two the other.
    assert prefer(of, free, ["GPU-9"], 2) == ("GPU-9", "GPU-1::3")


ANY = st.sampled_from([*(f"GPU-{n}::{m}" for n in range(3) for m in range(3)), "", "GPU-9", "x"])


@given(st.lists(ANY), st.lists(ANY), st.integers(-2, 12), st.booleans())
def test_a_preference_has_as_many_of_what_was_offered_as_asked(
    available: list[str],
    must: list[str],
    count: int,
    spread: bool,  # noqa: FBT001 - hypothesis gives it
) -> None:
    found = prefer(replicas(3, 3), available, must, count, spread=spread)

    offered = {*available, *must}
    assert len(found) == len(set(found)) == min(max(count, 0), len(offered))
    assert {*found} <= offered
    assert {*list(dict.fromkeys(must))[: max(count, 0)]} <= {*found}
