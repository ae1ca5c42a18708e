"""The choice of devices for one container: the test cases of NVIDIA and AMD, and a test of each rule."""

import pytest
from support.values.topology_choice import choose
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
from cdigen.topology.choose import AcceleratorPart

DGX1_PASCAL = dgx1(PASCAL, PASCAL_SWITCHES)
DGX1_VOLTA = dgx1(VOLTA, VOLTA_SWITCHES)
MI210 = hives(8, 4, per_socket=4)
ALL = tuple(range(8))
Machine = tuple[Accelerator, ...]
Places = tuple[int, ...]


def indices(machine: Machine, available: Places, count: int, must: Places = ()) -> list[int]:
    chosen = choose([machine[n] for n in available], [machine[n] for n in must], count, every=machine)
    return [device.index for device in chosen]


def choices_in_turn(machine: Machine, count: int) -> list[list[int]]:
    """Return the devices of each container. Containers request COUNT devices each until too few are free."""
    free, choices = list(machine), []
    while len(free) >= count:
        chosen = choose(free, [], count, every=machine)
        choices.append([device.index for device in chosen])
        free = [device for device in free if device not in chosen]
    return choices


# The test cases of NVIDIA's go-gpuallocator (gpuallocator/besteffort_test.go). The ids are its descriptions.
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
def test_gpus_of_a_dgx1_with_voltas_are_chosen_as_in_nvidias_cases(
    available: Places, must: Places, count: int, expected: list[int]
) -> None:
    assert indices(DGX1_VOLTA, available, count, must) == expected


# Cases from the same file. For containers with one GPU, NVIDIA's policy chooses GPUs in the order of their
# indices (0, 1, 2, 3). Therefore, the first two choices break two pairs of linked GPUs. cdigen chooses the
# second GPU from the pair that the first choice has broken.
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
def test_several_containers_get_the_expected_gpus_on_the_machines_of_nvidias_test_cases(
    machine: Machine, count: int, expected: list[list[int]]
) -> None:
    assert choices_in_turn(machine, count) == expected


# Cases that neither NVIDIA nor AMD has published. NVSwitches link all GPUs, so that the PCIe switch and the
# socket decide.
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
def test_pcie_decides_for_gpus_on_nvswitches(machine: Machine, count: int, expected: list[list[int]]) -> None:
    assert choices_in_turn(machine, count) == expected


def test_the_best_pair_is_chosen_even_if_it_is_the_last_as_in_nvidias_test_case() -> None:
    assert indices(pairs([2, 2, 2, 2, 2, 2, 4]), tuple(range(14)), 2) == [12, 13]


# In these cases, not all required GPUs can be chosen. NVIDIA's policy returns nothing, and the pod fails.
# cdigen returns the best possible choice.
@pytest.mark.parametrize(
    ("available", "must", "count", "expected"),
    [
        pytest.param((1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3), 4, [1, 2, 3], id="unavailable"),
        pytest.param(ALL, (1, 2, 3, 4, 5, 6), 4, [1, 2, 3, 4], id="too many"),
        pytest.param((1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6), 1, [1], id="more than there are"),
    ],
)
def test_impossible_requests_get_the_best_possible_choice(
    available: Places, must: Places, count: int, expected: list[int]
) -> None:
    assert set(expected) <= set(indices(DGX1_VOLTA, available, count, must))
    assert len(indices(DGX1_VOLTA, available, count, must)) == count


# Cases of AMD's k8s-device-plugin (internal/pkg/allocator/besteffort_policy_test.go): 8 MI210 in two hives.
@pytest.mark.parametrize(
    ("available", "count", "expected"),
    [
        pytest.param(ALL, 1, [0], id="1"),
        pytest.param(ALL, 3, [0, 1, 2], id="3"),
        pytest.param(ALL, 5, [0, 1, 2, 3, 4], id="5"),
        pytest.param((2, 3, 4, 5, 6, 7), 3, [4, 5, 6], id="3 on one NUMA node"),
    ],
)
def test_whole_gpus_are_chosen_as_in_amds_cases(available: Places, count: int, expected: list[int]) -> None:
    assert indices(MI210, available, count) == expected


# Cases from the same file, for 8 MI300X in CPX mode. The last GPU has 7 partitions. In the file, the first
# partitions have the names test1 to test8, and the other partitions have names such as amdgpu_xcp_57.
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
def test_partitions_are_chosen_as_in_amds_cases(
    available: tuple[str, ...], must: tuple[str, ...], count: int, expected: list[str]
) -> None:
    free = [part for part in CPX if part.name in available or not available]
    assert names(choose(free, [part for part in CPX if part.name in must], count, every=CPX)) == expected


@pytest.mark.parametrize("count", [30, 12])
def test_many_partitions_come_from_as_few_gpus_as_possible(count: int) -> None:
    chosen = choose(CPX, [], count, every=CPX)
    assert len(chosen) == count
    assert len({part.accelerator.index for part in chosen}) == -(-count // 8)


def names(parts: tuple[AcceleratorPart, ...]) -> list[str]:
    return [part.name for part in parts]


# Each rule separately.


def test_a_single_gpu_comes_from_an_island_that_is_partly_in_use() -> None:
    machine = nvswitch(8, 12, island=4)
    assert indices(machine, (0, 1, 2, 3, 5, 6, 7), 1) == [5]
    # Another choice would break the pair 0 and 3.
    assert indices((*rtx8000(), *others(4)), (0, 3, 5, 6, 7), 1) == [5]


def others(first: int) -> Machine:
    """Return four GPUs that one NVSwitch links. The index of the first GPU is FIRST."""
    return tuple(
        gpu(first + n, address(first + n), links=nvswitch(4, 6)[0].links, island="board") for n in range(4)
    )


def test_the_smallest_island_with_enough_free_gpus_is_chosen() -> None:
    machine = nvswitch(16, 18, island=4)
    free = (0, 1, 2, 3, 4, 5, 6, 8, 9, 12)
    assert indices(machine, free, 1) == [12]
    assert indices(machine, free, 2) == [8, 9]
    assert indices(machine, free, 3) == [4, 5, 6]
    assert indices(machine, free, 4) == [0, 1, 2, 3]
    assert indices(machine, free, 5) == [0, 1, 2, 3, 12]


def test_without_links_the_pcie_switch_and_then_the_socket_decide() -> None:
    machine = pcie(8, per_socket=4, per_switch=2)
    assert indices(machine, (0, 1, 2, 3, 4, 5, 6, 7), 2) == [0, 1]
    assert indices(machine, (0, 2, 3, 5, 6), 2) == [2, 3]
    assert indices(machine, (0, 2, 5), 2) == [0, 2]
    assert indices(machine, (1, 2, 3, 4, 5, 6, 7), 1) == [1]


def test_devices_with_unknown_positions_are_chosen_last() -> None:
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


def test_partitions_come_from_the_fullest_gpu_with_enough_free_partitions() -> None:
    every = partitioned(pcie(3, per_socket=3), 7)
    free = [part for part in every if part.name not in {"1:0", "1:1", "2:0", "2:1", "2:2", "2:3"}]
    assert names(choose(free, [], 1, every=every)) == ["2:4"]
    assert names(choose(free, [], 4, every=every)) == ["1:2", "1:3", "1:4", "1:5"]
    assert names(choose(free, [], 7, every=every)) == [f"0:{n}" for n in range(7)]


def test_partitions_come_from_the_gpu_of_the_required_partitions() -> None:
    every = partitioned(pcie(2, per_socket=2), 4)
    free = [part for part in every if part.name != "0:0"]
    required = [part for part in every if part.name == "1:2"]
    assert names(choose(free, required, 3, every=every)) == ["1:0", "1:1", "1:2"]


def test_replicas_come_from_one_gpu_or_with_spread_from_the_least_used_gpus() -> None:
    every = replicas(pcie(2, per_socket=2), 12)
    used = {"GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-1::0"}
    free = [part for part in every if part.name not in used]
    assert names(choose(free, [], 2, every=every)) == ["GPU-0::3", "GPU-0::4"]
    assert names(choose(free, [], 2, every=every, spread=True)) == ["GPU-1::1", "GPU-1::2"]
    assert names(choose(free, [], 4, every=every, spread=True)) == [
        "GPU-0::3",
        "GPU-1::1",
        "GPU-1::2",
        "GPU-1::3",
    ]


def test_replicas_with_spread_come_from_gpus_that_are_near_to_each_other() -> None:
    every = replicas(nvswitch(8, 12, island=4), 3)
    free = [part for part in every if part.accelerator.index not in {0, 1}]
    assert names(choose(free, [], 3, every=every, spread=True)) == ["GPU-2::0", "GPU-3::0", "GPU-4::0"]
    last = [part for part in every if part.name == "GPU-7::1"]
    assert names(choose(free, last, 3, every=every, spread=True)) == ["GPU-4::0", "GPU-6::0", "GPU-7::1"]


@pytest.mark.parametrize("count", [-1, 0])
def test_a_request_for_zero_or_fewer_devices_gets_no_device(count: int) -> None:
    assert choose(DGX1_VOLTA, [], count) == ()
    assert choose(DGX1_VOLTA, DGX1_VOLTA[:1], count) == ()


def test_all_available_devices_are_chosen_if_a_container_requests_more_devices() -> None:
    assert choose(DGX1_VOLTA[:2], [], 3) == DGX1_VOLTA[:2]
    assert choose((), DGX1_VOLTA, 3) == ()
