import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from cdigen.extender.placement import place, score
from cdigen.gpushare.claims import claim_of
from cdigen.gpushare.pods import Ask
from cdigen.gpushare.room import Room


def room(*free: int, used: int = 0) -> Room:
    return Room(
        free=tuple(enumerate(free)), left=sum(free), used=((0, used),), largest=max(free), most=max(free)
    )


def ask(*units: int, together: int = 0) -> Ask:
    return Ask(shares=tuple(enumerate(units)), together=together)


def gpus(found: object) -> tuple[int, ...]:
    return tuple(gpu for _, gpu in getattr(found, "containers", ()))


def test_binpack_takes_the_fullest_gpu_that_suffices_and_spread_the_emptiest() -> None:
    assert gpus(place(ask(3), room(8, 3, 5))) == (1,)
    assert gpus(place(ask(3), room(8, 3, 5), "spread")) == (0,)


def test_containers_stay_together_where_they_can() -> None:
    assert gpus(place(ask(3, 2), room(4, 8))) == (1, 1)
    assert gpus(place(ask(3, 2), room(4, 4))) == (0, 1)


def test_a_pod_that_has_to_be_on_one_gpu_is_not_divided() -> None:
    assert place(ask(3, 2, together=5), room(4, 4)) is None
    found = place(ask(together=4), room(4, 6))
    assert found is not None
    assert found.gpu == 0


def test_a_division_is_found_that_greed_misses() -> None:
    assert place(ask(3, 3, 2, 2, 2), room(6, 6)) is not None


def test_nothing_and_what_cannot_be_served_has_no_place() -> None:
    assert place(ask(), room(4)) is None
    assert place(Ask(problem="-1"), room(4)) is None
    assert place(ask(1 << 53), room(4)) is None


def test_hundreds_of_containers_end() -> None:
    assert place(ask(*[1] * 300), room(*[299] * 8)) is None
    place(ask(*[3] * 60), room(*[20] * 8, 19))


def test_equal_containers_that_cannot_fit_are_refused_at_once() -> None:
    sizes = [74, 65, 89, 71, 54, 87, 60, 77]  # a thousand such nodes took 2.9 s of one request
    begun_s = time.process_time()
    for more in range(1000):
        assert place(ask(*[31] * 16), room(*sizes, more % 31)) is None
    assert time.process_time() - begun_s < 0.5


def test_fuller_nodes_are_better_unless_spread() -> None:
    assert [score(room(8, used=8), way) for way in ("binpack", "spread")] == [5, 5]
    assert score(room(2, used=8), "binpack") > score(room(8, used=2), "binpack")
    assert score(room(0, used=0), "binpack") == 0


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4), st.lists(st.integers(0, 8), min_size=1, max_size=4)
)
def test_a_place_is_found_exactly_where_there_is_one(units: list[int], free: list[int]) -> None:
    asked = ask(*units)
    found = place(asked, room(*free))
    ways = itertools.product(range(len(free)), repeat=len(units))
    is_possible = any(
        all(
            sum(each for each, at in zip(units, way, strict=True) if at == gpu) <= size
            for gpu, size in enumerate(free)
        )
        for way in ways
    )
    assert (found is not None) == is_possible
    if found is not None:
        assert all(size <= free[gpu] for gpu, size in claim_of(asked, found).on)
