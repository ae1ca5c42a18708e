from hypothesis import given
from hypothesis import strategies as st

from cdigen.gpushare.claims import Claim
from cdigen.gpushare.nodes import Gpu, Offer
from cdigen.gpushare.room import Room, counted, room_of

NOBODY: frozenset[int] = frozenset()


def offer(*sizes: int, capacity: int | None = None) -> Offer:
    gpus = tuple(Gpu(index=index, units=units) for index, units in enumerate(sizes))
    return Offer(node="node1", capacity=sum(sizes) if capacity is None else capacity, gpus=gpus)


def test_free_is_what_nobody_has() -> None:
    room = room_of(offer(8, 4), NOBODY, [Claim(on=((0, 3),)), Claim(on=((0, 1), (1, 4)))])
    assert room.free == ((0, 4), (1, 0))
    assert (room.left, room.most, room.largest) == (4, 4, 8)


def test_a_gpu_that_is_used_too_much_takes_nothing_and_is_no_debt_of_others() -> None:
    assert dict(room_of(offer(8, 4), NOBODY, [Claim(on=((1, 9),))]).free)[1] == 0


def test_what_floats_or_is_on_a_gpu_that_is_gone_counts_on_each() -> None:
    assert room_of(offer(8, 4), NOBODY, [Claim(floating=3)]).free == ((0, 5), (1, 1))
    assert room_of(offer(8, 4), NOBODY, [Claim(on=((7, 3),))]).free == ((0, 5), (1, 1))


def test_sick_gpus_take_nothing_and_their_pods_still_count() -> None:
    room = room_of(offer(8, 4), frozenset({0}), [Claim(on=((0, 3),))])
    assert room.free == ((1, 4),)
    assert room.used == ((0, 3), (1, 0))


def test_no_more_is_free_than_the_capacity_that_the_kubelet_says() -> None:
    assert room_of(offer(8, 4, capacity=6), NOBODY, [Claim(on=((0, 4),))]).free == ((0, 2), (1, 2))


def test_where_ledger_and_annotation_differ_both_count() -> None:
    here, there = Claim(on=((0, 3),)), Claim(on=((1, 3),))
    assert counted(here, there) == Claim(on=((0, 3), (1, 3)))
    assert counted(here, Claim(floating=3)) == counted(here, None) == counted(None, here) == here
    assert counted(None, None) == Claim()


CLAIMS = st.lists(
    st.builds(
        lambda on, floating: Claim(on=tuple(on.items()), floating=floating),
        st.dictionaries(st.integers(0, 5), st.integers(0, 9)),
        st.integers(0, 4),
    ),
    max_size=6,
)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), CLAIMS)
def test_free_is_never_more_than_there_is_and_shrinks_with_each_claim(
    sizes: list[int], claims: list[Claim]
) -> None:
    before: Room | None = None
    for number in range(len(claims) + 1):
        room = room_of(offer(*sizes), NOBODY, claims[:number])
        for gpu, units in room.free:
            assert 0 <= units <= sizes[gpu]
            assert before is None or units <= dict(before.free)[gpu]
        before = room
