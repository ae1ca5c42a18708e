import itertools

from hypothesis import given
from hypothesis import strategies as st
from support.cost import calls

from cdigen.extender.placement import place, score
from cdigen.gpushare.free_capacity import FreeCapacity
from cdigen.gpushare.pods import MemoryRequest
from cdigen.gpushare.reservations import reservation_of


def capacity(*free: int, used: int = 0) -> FreeCapacity:
    return FreeCapacity(
        free=tuple(enumerate(free)), left=sum(free), used=((0, used),), largest=max(free), most=max(free)
    )


def request(*units: int, on_one_gpu: int = 0) -> MemoryRequest:
    return MemoryRequest(by_container=tuple(enumerate(units)), on_one_gpu=on_one_gpu)


def gpus(found: object) -> tuple[int, ...]:
    return tuple(gpu for _, gpu in getattr(found, "containers", ()))


def test_binpack_chooses_the_fullest_gpu_that_fits_and_spread_chooses_the_emptiest_gpu() -> None:
    assert gpus(place(request(3), capacity(8, 3, 5))) == (1,)
    assert gpus(place(request(3), capacity(8, 3, 5), "spread")) == (0,)


def test_containers_are_on_one_gpu_if_possible() -> None:
    assert gpus(place(request(3, 2), capacity(4, 8))) == (1, 1)
    assert gpus(place(request(3, 2), capacity(4, 4))) == (0, 1)


def test_a_pod_that_needs_one_gpu_is_not_divided() -> None:
    assert place(request(3, 2, on_one_gpu=5), capacity(4, 4)) is None
    found = place(request(on_one_gpu=4), capacity(4, 6))
    assert found is not None
    assert found.gpu == 0


def test_the_search_finds_a_division_that_a_greedy_search_misses() -> None:
    assert place(request(3, 3, 2, 2, 2), capacity(6, 6)) is not None


def test_an_empty_or_invalid_request_has_no_placement() -> None:
    assert place(request(), capacity(4)) is None
    assert place(MemoryRequest(problem="-1"), capacity(4)) is None
    assert place(request(1 << 53), capacity(4)) is None


def test_the_search_for_hundreds_of_containers_ends() -> None:
    assert place(request(*[1] * 300), capacity(*[299] * 8)) is None
    place(request(*[3] * 60), capacity(*[20] * 8, 19))


def test_containers_with_equal_requests_that_cannot_fit_are_refused_without_a_search() -> None:
    sizes = [74, 65, 89, 71, 54, 87, 60, 77]  # without the check for equal containers, 1,000 nodes took 2.9 s

    def place_on_nodes() -> None:
        for more in range(1000):
            assert place(request(*[31] * 16), capacity(*sizes, more % 31)) is None

    assert calls(place_on_nodes) < 500_000  # 90 for each node are needed


def test_fuller_nodes_have_higher_scores_with_binpack() -> None:
    assert [score(capacity(8, used=8), strategy) for strategy in ("binpack", "spread")] == [5, 5]
    assert score(capacity(2, used=8), "binpack") > score(capacity(8, used=2), "binpack")
    assert score(capacity(0, used=0), "binpack") == 0


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4), st.lists(st.integers(0, 8), min_size=1, max_size=4)
)
def test_a_placement_is_found_if_and_only_if_the_containers_fit(units: list[int], free: list[int]) -> None:
    requested = request(*units)
    found = place(requested, capacity(*free))
    placements = itertools.product(range(len(free)), repeat=len(units))
    is_possible = any(
        all(
            sum(each for each, at in zip(units, placement, strict=True) if at == gpu) <= size
            for gpu, size in enumerate(free)
        )
        for placement in placements
    )
    assert (found is not None) == is_possible
    if found is not None:
        assert all(size <= free[gpu] for gpu, size in reservation_of(requested, found).on)
