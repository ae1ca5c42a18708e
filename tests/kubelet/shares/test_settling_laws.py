"""However pods, kubelet and API server behave: containers get their ids' GPU, and promises follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import example, given
from hypothesis import strategies as st
from support.kubelet.shares_world import POD, World
from support.law_examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = st.sampled_from([(4, 4), (4, 6, 3), (8,), (5, 5, 5)])
UNITS = st.lists(st.integers(1, 4), min_size=1, max_size=3)
# Units of containers, and of an init container.
ASKS = st.lists(st.tuples(UNITS, st.sampled_from([0, 0, 0, 2])), min_size=1, max_size=8)
FATES = (*["done"] * 12, "no request", "no answer", "bind", "edit", "killed", "delete")


@given(sizes=SIZES, asks=ASKS, order=st.randoms(use_true_random=False))
@examples(4)
def test_a_burst_of_pods_with_one_container_each_is_admitted_in_any_order(
    sizes: tuple[int, ...], asks: list[Any], order: Any
) -> None:
    admit_all(sizes, [(units[:1], 0) for units, _ in asks], order.shuffle)


@given(sizes=SIZES, asks=ASKS)
@examples(4)
def test_a_burst_of_any_pods_is_admitted_in_the_order_in_which_they_were_bound(
    sizes: tuple[int, ...], asks: list[Any]
) -> None:
    admit_all(sizes, asks, lambda _: None)


def admit_all(sizes: tuple[int, ...], asks: list[Any], arrange: Callable[[list[str]], object]) -> None:
    """Bind pods, admit them as ARRANGE has them, and repair after the last one; none may be refused."""
    world = World(sizes)
    for units, early in asks:
        world.create(*units, early=early)
    names = world.pending()
    arrange(names)
    for name in names:
        world.hear()
        assert world.admit(name), world.refused
    world.hear()
    world.repair()
    world.check()


@given(
    sizes=SIZES,
    asks=ASKS,
    happenings=st.lists(st.tuples(st.integers(0, 13), st.integers(0, 400)), min_size=10, max_size=60),
    fates=st.lists(st.integers(0, 400), max_size=80),
)
# The kubelet gives p2 and then p6 a unit of the GPU on which p4 was promised all others.
@example(
    sizes=(4, 6, 3),
    asks=[([1], 0), ([3], 0), ([1], 0), ([1], 0)],
    happenings=[*[(0, 0)] * 5, *[(0, 9)] * 5],
    fates=[],
)
# The kubelet gives p0 units of GPU 1, two of which are taken for those of p4, which has two containers.
@example(
    sizes=(4, 6, 3),
    asks=[([1], 2), ([2, 2], 0), ([1, 1, 1], 0), ([2, 1], 0)],
    happenings=[*[(0, 0)] * 4, (9, 0), (3, 184)],
    fates=[],
)
@examples(4)
def test_promises_follow_the_ids(  # noqa: C901 - a table of what may happen
    sizes: tuple[int, ...], asks: list[Any], happenings: list[tuple[int, int]], fates: list[int]
) -> None:
    world = World(sizes)
    drawn: Iterator[int] = iter(fates)
    waiting = list(asks)

    def fate() -> str:
        number = next(drawn, 0)
        what = FATES[number % len(FATES)]
        if what == "bind" and waiting:
            units, early = waiting.pop()
            world.create(*units, early=early)
        elif what == "edit" and (names := world.pending()):
            found = world.cluster.objects[POD + names[number % len(names)]]
            found["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"] = str(number % 5)
            found["metadata"]["annotations"].pop("scheduler.framework.gpushare.allocation", None)
            world.cluster.put(POD + found["metadata"]["name"], found)
        elif what == "delete" and len(names := world.pending()) > 1:
            world.delete(names[number % len(names)])
        return what if what in {"no request", "no answer", "killed"} else "done"

    for what, which in happenings:
        names = world.pending()
        if what <= 2 and waiting:
            units, early = waiting.pop()
            world.create(*units, early=early)
        elif what <= 6 and names:
            world.admit(names[which % len(names)], fate, which)
        elif what <= 8:
            world.hear(1 + which % 4)
        elif what == 9:
            world.restart()
        elif what == 10:
            world.hear()
            world.repair(fate)
        elif what == 11 and (running := world.answer_list()):
            world.delete(running[which % len(running)]["metadata"]["name"])
        elif what == 12 and (starting := world.starting()):
            world.run(starting[which % len(starting)])
        elif what == 13:
            world.learn()
    world.hear()
    world.repair()
    world.check()
