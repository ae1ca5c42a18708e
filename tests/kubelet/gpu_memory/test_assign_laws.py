"""Laws for any behaviour of pods, kubelet and API server: reservations match the allocated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import example, given
from hypothesis import strategies as st
from support.kubelet.gpu_memory_world import POD, World
from support.law_examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = st.sampled_from([(4, 4), (4, 6, 3), (8,), (5, 5, 5)])
UNITS = st.lists(st.integers(1, 4), min_size=1, max_size=3)
# For each pod: the units of each container, and the units of an init container or 0.
PODS = st.lists(st.tuples(UNITS, st.sampled_from([0, 0, 0, 2])), min_size=1, max_size=8)
# The result of a call to the API server, or the event at that call. Most calls succeed (done).
INTERRUPTIONS = (*["done"] * 12, "no request", "no answer", "bind", "edit", "killed", "delete")


@given(sizes=SIZES, pods=PODS, order=st.randoms(use_true_random=False))
@examples(4)
def test_a_burst_of_pods_with_one_container_each_is_admitted_in_any_order(
    sizes: tuple[int, ...], pods: list[Any], order: Any
) -> None:
    admit_all(sizes, [(units[:1], 0) for units, _ in pods], order.shuffle)


@given(sizes=SIZES, pods=PODS)
@examples(4)
def test_a_burst_of_any_pods_is_admitted_in_the_order_in_which_they_were_bound(
    sizes: tuple[int, ...], pods: list[Any]
) -> None:
    admit_all(sizes, pods, lambda _: None)


def admit_all(sizes: tuple[int, ...], pods: list[Any], order_names: Callable[[list[str]], object]) -> None:
    """Bind PODS, admit them in the order of ORDER_NAMES, and repair at the end; no pod may be refused."""
    world = World(sizes)
    for units, init_units in pods:
        world.create(*units, early=init_units)
    names = world.pending()
    order_names(names)
    for name in names:
        world.receive()
        assert world.admit(name), world.refused
    world.receive()
    world.repair()
    world.check()


@given(
    sizes=SIZES,
    pods=PODS,
    steps=st.lists(st.tuples(st.integers(0, 13), st.integers(0, 400)), min_size=10, max_size=60),
    numbers=st.lists(st.integers(0, 400), max_size=80),
)
# The kubelet allocates a unit to p2 and then to p6, on the GPU whose other units are reserved for p4.
@example(
    sizes=(4, 6, 3),
    pods=[([1], 0), ([3], 0), ([1], 0), ([1], 0)],
    steps=[*[(0, 0)] * 5, *[(0, 9)] * 5],
    numbers=[],
)
# The kubelet allocates units of GPU 1 to p0. Two of the units are assigned to p4, which has 2 containers.
@example(
    sizes=(4, 6, 3),
    pods=[([1], 2), ([2, 2], 0), ([1, 1, 1], 0), ([2, 1], 0)],
    steps=[*[(0, 0)] * 4, (9, 0), (3, 184)],
    numbers=[],
)
# The units of p1 are assigned to p0, but p0 is not annotated. Then p0 gets units of its former GPU.
@example(
    sizes=(4, 6, 3),
    pods=[([1], 0), ([2], 0), ([2], 0)],
    steps=[*[(0, 0)] * 3, (7, 0), *[(12, 0)] * 3, (0, 1), (0, 146), (0, 0)],
    numbers=[0, 0, 0, 210],
)
@examples(4)
def test_reservations_match_the_ids_that_the_kubelet_allocates(  # noqa: C901 - a table of events
    sizes: tuple[int, ...], pods: list[Any], steps: list[tuple[int, int]], numbers: list[int]
) -> None:
    world = World(sizes)
    drawn: Iterator[int] = iter(numbers)
    waiting = list(pods)

    def interruption() -> str:
        number = next(drawn, 0)
        event = INTERRUPTIONS[number % len(INTERRUPTIONS)]
        if event == "bind" and waiting:
            units, init_units = waiting.pop()
            world.create(*units, early=init_units)
        elif event == "edit" and (names := world.pending()):
            found = world.cluster.objects[POD + names[number % len(names)]]
            found["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"] = str(number % 5)
            found["metadata"]["annotations"].pop("scheduler.framework.gpushare.allocation", None)
            world.cluster.put(POD + found["metadata"]["name"], found)
        elif event == "delete" and len(names := world.pending()) > 1:
            world.delete(names[number % len(names)])
        return event if event in {"no request", "no answer", "killed"} else "done"

    for event, choice in steps:
        names = world.pending()
        if event <= 2 and waiting:
            units, init_units = waiting.pop()
            world.create(*units, early=init_units)
        elif event <= 6 and names:
            world.admit(names[choice % len(names)], interruption, choice)
        elif event <= 8:
            world.receive(1 + choice % 4)
        elif event == 9:
            world.restart()
        elif event == 10:
            world.receive()
            world.repair(interruption)
        elif event == 11 and (running := world.answer_list()):
            world.delete(running[choice % len(running)]["metadata"]["name"])
        elif event == 12 and (starting := world.starting()):
            world.run(starting[choice % len(starting)])
        elif event == 13:
            world.apply_pod_list()
    world.receive()
    world.repair()
    world.check()
