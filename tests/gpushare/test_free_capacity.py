from hypothesis import given
from hypothesis import strategies as st

from cdigen.gpushare.free_capacity import FreeCapacity, combine_reservations, free_capacity
from cdigen.gpushare.nodes import NodeCapacity, NodeGpu
from cdigen.gpushare.reservations import Reservation

NONE: frozenset[int] = frozenset()


def node(*sizes: int, capacity: int | None = None) -> NodeCapacity:
    gpus = tuple(NodeGpu(index=index, units=units) for index, units in enumerate(sizes))
    return NodeCapacity(name="node1", capacity=sum(sizes) if capacity is None else capacity, gpus=gpus)


def test_units_without_a_reservation_are_free() -> None:
    free = free_capacity(node(8, 4), NONE, [Reservation(on=((0, 3),)), Reservation(on=((0, 1), (1, 4)))])
    assert free.free == ((0, 4), (1, 0))
    assert (free.left, free.most, free.largest) == (4, 4, 8)


def test_an_overcommitted_gpu_has_no_free_units() -> None:
    assert dict(free_capacity(node(8, 4), NONE, [Reservation(on=((1, 9),))]).free)[1] == 0


def test_units_on_an_unknown_or_removed_gpu_reduce_the_free_units_of_each_gpu() -> None:
    assert free_capacity(node(8, 4), NONE, [Reservation(unplaced=3)]).free == ((0, 5), (1, 1))
    assert free_capacity(node(8, 4), NONE, [Reservation(on=((7, 3),))]).free == ((0, 5), (1, 1))


def test_unhealthy_gpus_have_no_free_units_and_their_pods_keep_their_units() -> None:
    free = free_capacity(node(8, 4), frozenset({0}), [Reservation(on=((0, 3),))])
    assert free.free == ((1, 4),)
    assert free.used == ((0, 3), (1, 0))


def test_the_nodes_capacity_limits_the_free_units() -> None:
    assert free_capacity(node(8, 4, capacity=6), NONE, [Reservation(on=((0, 4),))]).free == (
        (0, 2),
        (1, 2),
    )


def test_if_ledger_and_annotation_name_different_gpus_both_gpus_are_reserved() -> None:
    in_ledger, annotated = Reservation(on=((0, 3),)), Reservation(on=((1, 3),))
    assert combine_reservations(in_ledger, annotated) == Reservation(on=((0, 3), (1, 3)))
    assert (
        combine_reservations(in_ledger, Reservation(unplaced=3))
        == combine_reservations(in_ledger, None)
        == combine_reservations(None, in_ledger)
        == in_ledger
    )
    assert combine_reservations(None, None) == Reservation()


RESERVATIONS = st.lists(
    st.builds(
        lambda on, unplaced: Reservation(on=tuple(on.items()), unplaced=unplaced),
        st.dictionaries(st.integers(0, 5), st.integers(0, 9)),
        st.integers(0, 4),
    ),
    max_size=6,
)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), RESERVATIONS)
def test_free_units_never_exceed_the_size_of_a_gpu_and_no_reservation_increases_them(
    sizes: list[int], reservations: list[Reservation]
) -> None:
    before: FreeCapacity | None = None
    for number in range(len(reservations) + 1):
        free = free_capacity(node(*sizes), NONE, reservations[:number])
        for gpu, units in free.free:
            assert 0 <= units <= sizes[gpu]
            assert before is None or units <= dict(before.free)[gpu]
        before = free
