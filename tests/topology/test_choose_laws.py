"""Properties of every choice on any machine; for up to 8 GPUs, a comparison with an exhaustive search."""

import time
from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values.topology_choice import choose
from support.values.topology_machines import any_machine, hives, nvswitch, partitioned, pcie, replicas

from cdigen.model.inventory import Accelerator
from cdigen.topology.choose import AcceleratorPart
from cdigen.topology.levels import relation


@st.composite
def requests(
    draw: st.DrawFn, most: int = 12
) -> tuple[list[AcceleratorPart], list[AcceleratorPart], list[AcceleratorPart], int]:
    """Draw all units, the free units, the required units (some of the free units), and a count."""
    machine = draw(any_machine(most))
    make = draw(st.sampled_from((partitioned, replicas)))
    each = draw(st.integers(1, 4))
    every = list(make(machine, each))
    free = draw(st.lists(st.sampled_from(every), unique_by=id))
    required = draw(st.lists(st.sampled_from(free), unique_by=id, max_size=4)) if free else []
    return every, free, required, draw(st.integers(-1, len(free) + 2))


@given(requests(), st.booleans())
def test_a_choice_has_the_requested_number_of_free_units_with_the_required_units(
    request: tuple[list[AcceleratorPart], list[AcceleratorPart], list[AcceleratorPart], int],
    spread: bool,  # noqa: FBT001
) -> None:
    every, free, required, count = request
    chosen = [part.name for part in choose(free, required, count, every=every, spread=spread)]
    assert len(chosen) == len(set(chosen)) == max(min(count, len(free)), 0)
    assert set(chosen) <= {part.name for part in free}
    names = {part.name for part in required}
    assert names <= set(chosen) or set(chosen) <= names


@given(requests(), st.booleans(), st.data())
def test_the_choice_does_not_depend_on_the_order_of_the_input(
    request: tuple[list[AcceleratorPart], list[AcceleratorPart], list[AcceleratorPart], int],
    spread: bool,  # noqa: FBT001
    data: st.DataObject,
) -> None:
    every, free, required, count = request
    mixed = (data.draw(st.permutations(units)) for units in (free, required, every))
    first = choose(free, required, count, every=every, spread=spread)
    mixed_free, mixed_required, mixed_every = mixed
    assert choose(mixed_free, mixed_required, count, every=mixed_every, spread=spread) == first


@given(requests())
def test_parts_come_from_as_few_gpus_as_possible(
    request: tuple[list[AcceleratorPart], list[AcceleratorPart], list[AcceleratorPart], int],
) -> None:
    every, free, required, count = request
    used = {part.accelerator.index for part in choose(free, required, count, every=every)}
    needed = {part.accelerator.index for part in required}
    others = {part.accelerator.index for part in free} - needed
    if count >= len(required):
        enough = (
            set(more) | needed
            for size in range(len(others) + 1)
            for more in combinations(sorted(others), size)
            if sum(part.accelerator.index in {*more, *needed} for part in free) >= min(count, len(free))
        )
        assert len(used) <= len(next(enough))


def divisions(devices: tuple[int, ...], size: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield every division of DEVICES into sets of SIZE; only the last set may be smaller."""
    short = len(devices) % size
    for last in combinations(devices, short):
        yield from (
            (*sets, *([last] if short else []))
            for sets in equal_sets(tuple(device for device in devices if device not in last), size)
        )


def equal_sets(devices: tuple[int, ...], size: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not devices:
        yield ()
    for more in combinations(devices[1:], size - 1) if devices else ():
        rest = tuple(device for device in devices[1:] if device not in more)
        yield from (((devices[0], *more), *others) for others in equal_sets(rest, size))


@given(any_machine(8), st.data())
def test_for_up_to_eight_gpus_the_chosen_set_belongs_to_a_best_division_into_sets(
    machine: tuple[Accelerator, ...], data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, len(machine)))
    required = data.draw(st.lists(st.sampled_from(machine), unique_by=id, max_size=size))
    chosen = {device.index for device in choose(machine, required, size)}
    near = {
        (one.index, other.index): relation(one, other).nearness for one, other in combinations(machine, 2)
    }
    best, of_choice = (-1, -1), (-1, -1)
    for division in divisions(tuple(range(len(machine))), size):
        scores = [sum(near[pair] for pair in combinations(sorted(each), 2)) for each in division]
        whole = [set(each) for each in division if len(each) == size]
        rank = sum(scores), min(scores[: len(whole)])
        if any({device.index for device in required} <= each for each in whole):
            best = max(best, rank)
        if chosen in whole:
            of_choice = max(of_choice, rank)
    assert of_choice == best


@given(any_machine(16), st.integers(1, 15), st.data())
def test_choices_from_more_than_eight_gpus_use_the_fewest_and_smallest_islands(
    machine: tuple[Accelerator, ...], count: int, data: st.DataObject
) -> None:
    island = nvswitch(16, 4, island=4)
    free = data.draw(st.lists(st.sampled_from(island), unique_by=id, min_size=9))
    chosen = choose(free, [], count, every=island)
    sizes = [sum(device.island == f"nvswitch-{n}" for device in free) for n in range(4)]
    used = {device.island for device in chosen}
    together = [several for n in range(1, 5) for several in combinations(sizes, n) if sum(several) >= count]
    if together:
        assert len(used) == len(together[0])
        fitting = [sum(several) for several in together if len(several) == len(used)]
        # If an island is entirely free, a choice that fills this island has precedence.
        if 4 not in sizes:
            assert sum(device.island in used for device in free) == min(fitting)
    assert len(choose(machine, [], count)) == min(count, len(machine))


# The time limit of a choice, in milliseconds. docs/reference/benchmarks/topology.md has the measurements.
MOST_MS = 5


@pytest.mark.wall_clock
@pytest.mark.parametrize(
    "every",
    [
        pytest.param(nvswitch(16, 6), id="16 GPUs of one island"),
        pytest.param(nvswitch(16, 6, island=4), id="16 GPUs of four islands"),
        pytest.param(pcie(16, per_socket=8, per_switch=4), id="16 GPUs without links"),
        pytest.param(partitioned(hives(8, 8, per_socket=4), 8), id="64 partitions of 8 GPUs"),
        pytest.param(partitioned(nvswitch(16, 18), 4), id="64 partitions of 16 GPUs"),
        pytest.param(replicas(nvswitch(16, 18), 10), id="160 replicas of 16 GPUs"),
    ],
)
def test_no_choice_takes_longer_than_five_milliseconds(
    every: tuple[Accelerator, ...] | tuple[AcceleratorPart, ...],
) -> None:
    free = every[1:]
    slowest = max(
        min(timed(free, count, every, spread=spread) for _ in range(3))
        for count in range(1, len(free))
        for spread in (False, True)
    )
    assert slowest <= MOST_MS


def timed(free: tuple[object, ...], count: int, every: tuple[object, ...], *, spread: bool) -> float:
    begun = time.perf_counter()
    choose(free, free[5:6], count, every=every, spread=spread)  # type: ignore[type-var]
    return (time.perf_counter() - begun) * 1000
