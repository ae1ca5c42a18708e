"""Which devices one container gets: cases that NVIDIA and AMD published, and each rule by itself."""

import pytest
from support.values.topology_machines import (
    PASCAL,
    PASCAL_SWITCHES,
    VOLTA,
    VOLTA_SWITCHES,
    address,
    dgx1,
    dgx_a100,
    hives,
    nvswitch,
    pairs,
    partitioned,
    pcie,
    replicas,
    rtx8000,
)
from support.values.topology_places import gpu

from cdigen.model.inventory import Accelerator
from cdigen.topology.choose import Share, choose

DGX1_PASCAL = dgx1(PASCAL, PASCAL_SWITCHES)
DGX1_VOLTA = dgx1(VOLTA, VOLTA_SWITCHES)
MI210 = hives(8, 4, per_socket=4)
ALL = tuple(range(8))
Machine = tuple[Accelerator, ...]
Places = tuple[int, ...]


def indices(machine: Machine, available: Places, count: int, must: Places = ()) -> list[int]:
    chosen = choose([machine[n] for n in available], [machine[n] for n in must], count, every=machine)
    return [device.index for device in chosen]


def in_turn(machine: Machine, count: int) -> list[list[int]]:
    """Return what containers get that ask for COUNT one after the other, until too few are free."""
    free, given = list(machine), []
    while len(free) >= count:
        chosen = choose(free, [], count, every=machine)
        given.append([device.index for device in chosen])
        free = [device for device in free if device not in chosen]
    return given


# NVIDIA's go-gpuallocator, gpuallocator/besteffort_test.go, with its descriptions.
@pytest.mark.parametrize(
    ("available", "must", "count", "expected"),
    [
        pytest.param((0, 2, 4, 5), (), 2, [4, 5], id="single NVLink, same switch"),
        pytest.param((0, 4, 5, 6), (), 2, [5, 6], id="single NVLink, same socket"),
        pytest.param((0, 3, 1), (), 2, [0, 3], id="dual NVLink, same socket"),
        pytest.param((0, 1, 4), (), 2, [0, 4], id="dual NVLink, other socket"),
        pytest.param(ALL, (4,), 1, [4], id="must include, 1"),
        pytest.param(ALL, (4,), 2, [4, 7], id="must include, 2"),
        pytest.param(ALL, (4,), 4, [4, 5, 6, 7], id="must include, 4"),
        pytest.param(ALL, (0, 2, 4, 6), 4, [0, 2, 4, 6], id="must include, all of them"),
    ],
)
def test_cases_of_nvidia_on_a_dgx1_with_voltas(
    available: Places, must: Places, count: int, expected: list[int]
) -> None:
    assert indices(DGX1_VOLTA, available, count, must) == expected


# The same file. NVIDIA's takes single GPUs in the order of their indices, 0, 1, 2, 3: that breaks a pair with
# each of the first two. Here the second comes from the pair that is broken.
@pytest.mark.parametrize(
    ("machine", "count", "expected"),
    [
        pytest.param(rtx8000(), 1, [[0], [3], [1], [2]], id="4 RTX 8000, 1"),
        pytest.param(rtx8000(), 2, [[0, 3], [1, 2]], id="4 RTX 8000, 2"),
        pytest.param(rtx8000(), 4, [[0, 1, 2, 3]], id="4 RTX 8000, 4"),
        pytest.param(DGX1_PASCAL, 1, [[0], [2], [1], [3], [4], [6], [5], [7]], id="DGX-1 Pascal, 1"),
        pytest.param(DGX1_PASCAL, 2, [[0, 2], [1, 3], [4, 6], [5, 7]], id="DGX-1 Pascal, 2"),
        pytest.param(DGX1_PASCAL, 4, [[0, 1, 2, 3], [4, 5, 6, 7]], id="DGX-1 Pascal, 4"),
        pytest.param(DGX1_PASCAL, 8, [[0, 1, 2, 3, 4, 5, 6, 7]], id="DGX-1 Pascal, 8"),
        pytest.param(DGX1_VOLTA, 1, [[0], [3], [2], [1], [4], [5], [6], [7]], id="DGX-1 Volta, 1"),
        pytest.param(DGX1_VOLTA, 2, [[0, 3], [1, 2], [4, 7], [5, 6]], id="DGX-1 Volta, 2"),
        pytest.param(DGX1_VOLTA, 4, [[0, 1, 2, 3], [4, 5, 6, 7]], id="DGX-1 Volta, 4"),
        pytest.param(DGX1_VOLTA, 8, [[0, 1, 2, 3, 4, 5, 6, 7]], id="DGX-1 Volta, 8"),
    ],
)
def test_cases_of_nvidia_one_container_after_the_other(
    machine: Machine, count: int, expected: list[list[int]]
) -> None:
    assert in_turn(machine, count) == expected


# What neither publishes: all GPUs joined by switches, so that the PCIe switch and the socket decide.
@pytest.mark.parametrize(
    ("machine", "count", "expected"),
    [
        pytest.param(dgx_a100(), 1, [[0], [1], [2], [3], [4], [5], [6], [7]], id="DGX A100, 1"),
        pytest.param(dgx_a100(), 2, [[0, 1], [2, 3], [4, 5], [6, 7]], id="DGX A100, 2"),
        pytest.param(dgx_a100(), 3, [[0, 1, 2], [3, 4, 5]], id="DGX A100, 3"),
        pytest.param(dgx_a100(), 4, [[0, 1, 2, 3], [4, 5, 6, 7]], id="DGX A100, 4"),
        pytest.param(nvswitch(8, 18), 3, [[0, 1, 2], [4, 5, 6]], id="DGX H100, 3"),
        pytest.param(nvswitch(8, 18), 4, [[0, 1, 2, 3], [4, 5, 6, 7]], id="DGX H100, 4"),
        pytest.param(nvswitch(16, 6), 8, [[*range(8)], [*range(8, 16)]], id="DGX-2, 8"),
        pytest.param(
            nvswitch(16, 6), 5, [[0, 1, 2, 3, 4], [8, 9, 10, 11, 12], [5, 6, 7, 14, 15]], id="DGX-2, 5"
        ),
        pytest.param(nvswitch(4, 4), 2, [[0, 1], [2, 3]], id="HGX with 4 GPUs, 2"),
    ],
)
def test_machines_with_nvswitches(machine: Machine, count: int, expected: list[list[int]]) -> None:
    assert in_turn(machine, count) == expected


def test_the_case_of_nvidia_whose_best_pair_is_the_last_of_seven() -> None:
    assert indices(pairs([2, 2, 2, 2, 2, 2, 4]), tuple(range(14)), 2) == [12, 13]


# NVIDIA's returns nothing in these cases, which fails the pod; a preference has nothing to refuse.
@pytest.mark.parametrize(
    ("available", "must", "count", "expected"),
    [
        pytest.param((1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3), 4, [1, 2, 3], id="unavailable"),
        pytest.param(ALL, (1, 2, 3, 4, 5, 6), 4, [1, 2, 3, 4], id="too many"),
        pytest.param((1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6), 1, [1], id="more than there are"),
    ],
)
def test_what_cannot_be_done_is_done_as_far_as_can_be(
    available: Places, must: Places, count: int, expected: list[int]
) -> None:
    assert set(expected) <= set(indices(DGX1_VOLTA, available, count, must))
    assert len(indices(DGX1_VOLTA, available, count, must)) == count


# AMD's k8s-device-plugin, internal/pkg/allocator/besteffort_policy_test.go, on 8 MI210 in two hives.
@pytest.mark.parametrize(
    ("available", "count", "expected"),
    [
        pytest.param(ALL, 1, [0], id="1"),
        pytest.param(ALL, 3, [0, 1, 2], id="3"),
        pytest.param(ALL, 5, [0, 1, 2, 3, 4], id="5"),
        pytest.param((2, 3, 4, 5, 6, 7), 3, [4, 5, 6], id="3 on one NUMA node"),
    ],
)
def test_cases_of_amd_on_whole_gpus(available: Places, count: int, expected: list[int]) -> None:
    assert indices(MI210, available, count) == expected


# The same file, on 8 MI300X in CPX mode, the last of which has 7 partitions; its first partitions are named
# test1 to test8, the others amdgpu_xcp_57 and so on.
CPX = partitioned(hives(8, 8, per_socket=4), 8)[:-1]
FIRST = tuple(f"{n}:0" for n in range(2, 8))


@pytest.mark.parametrize(
    ("available", "must", "count", "expected"),
    [
        pytest.param((), (), 1, ["7:0"], id="1"),
        pytest.param((), (), 3, ["7:0", "7:1", "7:2"], id="3"),
        pytest.param((), (), 5, ["7:0", "7:1", "7:2", "7:3", "7:4"], id="5"),
        pytest.param((), (), 8, [f"0:{n}" for n in range(8)], id="8"),
        pytest.param(FIRST, (), 3, ["4:0", "5:0", "6:0"], id="3 on one NUMA node"),
        pytest.param(FIRST, ("4:0",), 3, ["4:0", "5:0", "6:0"], id="3 with a required one"),
    ],
)
def test_cases_of_amd_on_partitions(
    available: tuple[str, ...], must: tuple[str, ...], count: int, expected: list[str]
) -> None:
    free = [share for share in CPX if share.name in available or not available]
    assert names(choose(free, [share for share in CPX if share.name in must], count, every=CPX)) == expected


@pytest.mark.parametrize("count", [30, 12])
def test_many_partitions_come_from_as_few_gpus_as_possible(count: int) -> None:
    chosen = choose(CPX, [], count, every=CPX)
    assert len(chosen) == count
    assert len({share.accelerator.index for share in chosen}) == -(-count // 8)


def names(shares: tuple[Share, ...]) -> list[str]:
    return [share.name for share in shares]


# Each rule by itself.


def test_a_single_gpu_comes_from_the_island_that_is_broken_already() -> None:
    machine = nvswitch(8, 12, island=4)
    assert indices(machine, (0, 1, 2, 3, 5, 6, 7), 1) == [5]
    # Without it the pair 0 and 1 would have to be broken, though fewer are free of it.
    assert indices((*rtx8000(), *others(4)), (0, 3, 5, 6, 7), 1) == [5]


def others(first: int) -> Machine:
    """Return four GPUs joined by a switch, counted from FIRST."""
    return tuple(
        gpu(first + n, address(first + n), links=nvswitch(4, 6)[0].links, island="board") for n in range(4)
    )


def test_the_smallest_island_that_fits_is_filled() -> None:
    machine = nvswitch(16, 18, island=4)
    free = (0, 1, 2, 3, 4, 5, 6, 8, 9, 12)
    assert indices(machine, free, 1) == [12]
    assert indices(machine, free, 2) == [8, 9]
    assert indices(machine, free, 3) == [4, 5, 6]
    assert indices(machine, free, 4) == [0, 1, 2, 3]
    assert indices(machine, free, 5) == [0, 1, 2, 3, 12]


def test_without_links_the_switch_counts_then_the_socket() -> None:
    machine = pcie(8, per_socket=4, per_switch=2)
    assert indices(machine, (0, 1, 2, 3, 4, 5, 6, 7), 2) == [0, 1]
    assert indices(machine, (0, 2, 3, 5, 6), 2) == [2, 3]
    assert indices(machine, (0, 2, 5), 2) == [0, 2]
    assert indices(machine, (1, 2, 3, 4, 5, 6, 7), 1) == [1]


def test_what_is_not_known_counts_as_far() -> None:
    unknown = tuple(gpu(n, "") for n in range(4))
    assert indices(unknown, (0, 1, 2, 3), 2) == [0, 1]
    known = pcie(2, per_socket=2)
    machine = (*(gpu(n, address(n)) for n in range(2)), *(move(device, 2) for device in known))
    assert indices(machine, (0, 1, 2, 3), 2) == [2, 3]


def move(device: Accelerator, by: int) -> Accelerator:
    return gpu(
        device.index + by,
        "/".join((*device.pci_path, address(device.index + by))),
        numa_node=device.numa_node,
    )


def test_of_partitions_the_gpu_with_the_fewest_free_is_taken_first() -> None:
    every = partitioned(pcie(3, per_socket=3), 7)
    free = [share for share in every if share.name not in {"1:0", "1:1", "2:0", "2:1", "2:2", "2:3"}]
    assert names(choose(free, [], 1, every=every)) == ["2:4"]
    assert names(choose(free, [], 4, every=every)) == ["1:2", "1:3", "1:4", "1:5"]
    assert names(choose(free, [], 7, every=every)) == [f"0:{n}" for n in range(7)]


def test_partitions_join_what_is_required() -> None:
    every = partitioned(pcie(2, per_socket=2), 4)
    free = [share for share in every if share.name != "0:0"]
    required = [share for share in every if share.name == "1:2"]
    assert names(choose(free, required, 3, every=every)) == ["1:0", "1:1", "1:2"]


def test_replicas_come_from_one_gpu_or_are_spread() -> None:
    every = replicas(pcie(2, per_socket=2), 12)
    used = {"GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-1::0"}
    free = [share for share in every if share.name not in used]
    assert names(choose(free, [], 2, every=every)) == ["GPU-0::3", "GPU-0::4"]
    assert names(choose(free, [], 2, every=every, spread=True)) == ["GPU-1::1", "GPU-1::2"]
    assert names(choose(free, [], 4, every=every, spread=True)) == [
        "GPU-0::3",
        "GPU-1::1",
        "GPU-1::2",
        "GPU-1::3",
    ]


def test_replicas_that_are_spread_come_from_near_gpus() -> None:
    every = replicas(nvswitch(8, 12, island=4), 3)
    free = [share for share in every if share.accelerator.index not in {0, 1}]
    assert names(choose(free, [], 3, every=every, spread=True)) == ["GPU-2::0", "GPU-3::0", "GPU-4::0"]
    last = [share for share in every if share.name == "GPU-7::1"]
    assert names(choose(free, last, 3, every=every, spread=True)) == ["GPU-4::0", "GPU-6::0", "GPU-7::1"]


@pytest.mark.parametrize("count", [-1, 0])
def test_none_are_chosen_where_none_are_wanted(count: int) -> None:
    assert choose(DGX1_VOLTA, [], count) == ()
    assert choose(DGX1_VOLTA, DGX1_VOLTA[:1], count) == ()


def test_all_come_back_where_too_few_are_available() -> None:
    assert choose(DGX1_VOLTA[:2], [], 3) == DGX1_VOLTA[:2]
    assert choose((), DGX1_VOLTA, 3) == ()
