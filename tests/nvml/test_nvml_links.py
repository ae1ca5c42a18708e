"""NVLinks in NVML's reply: links between GPUs, links to NVSwitches, and links after partial failures."""

from pathlib import Path

import pytest
from support.nvml.nvlinks import FIRST_BUS, address, linked, switched
from support.nvml.standin import Gpu, Machine, gpu, install

from cdigen.vendors.nvidia.links import gpu_links
from cdigen.vendors.nvidia.nvml.document import NvmlLinks
from cdigen.vendors.nvidia.nvml.query import query


def links_in_report(folder: Path, *gpus: Gpu, faults: tuple[str, ...] = ()) -> dict[str, NvmlLinks]:
    library = str(install(folder, Machine(gpus=gpus, faults=faults)))
    answer = query(library, what=("links",), addresses=tuple(address(number) for number in range(len(gpus))))
    assert answer.report is not None, answer.findings
    return {each.address: each.links for each in answer.report.gpus if each.address and each.links}


def number_of(address: str) -> int:
    return int(address[5:7], 16) - FIRST_BUS


def links_of(found: dict[str, NvmlLinks]) -> dict[int, dict[str, int]]:
    """Return a mapping: a GPU's index -> another GPU's index or an island's name -> the count of links."""
    return {
        number_of(each.address): {
            str(number_of(link.peer)) if link.peer else each.island: link.count for link in each.links
        }
        for each in gpu_links(found)
    }


def test_direct_links_are_counted_separately_for_each_gpu_at_the_other_end(folder: Path) -> None:
    found = links_in_report(folder, linked(0, 1, 1, 2, -1), linked(1, 0, 0), linked(2, 0))
    assert links_of(found) == {0: {"1": 2, "2": 1}, 1: {"0": 2}, 2: {"0": 1}}
    assert all(each.error is None for each in found.values())


def test_gpus_that_are_connected_by_nvswitches_are_one_island(folder: Path) -> None:
    found = links_in_report(folder, *(switched(number, 4, 18) for number in range(4)))
    island = f"nvlink-{address(0)}"
    assert links_of(found) == {number: {island: 18} for number in range(4)}


def test_sixteen_gpus_on_nvswitches_are_queried_before_the_deadline(folder: Path) -> None:
    found = links_in_report(folder, *(switched(number, 16, 6) for number in range(16)))
    assert links_of(found) == {number: {f"nvlink-{address(0)}": 6} for number in range(16)}


def test_links_to_switches_that_connect_no_gpus_are_not_counted(folder: Path) -> None:
    """The switches connect no GPUs before the fabric manager has started."""
    found = links_in_report(folder, *(switched(number, 2, 18, reached=False) for number in range(2)))
    assert links_of(found) == {0: {}, 1: {}}
    assert [each.switched for each in found.values()] == [18, 18]


def test_gpus_without_nvlinks_have_no_links_and_no_error(folder: Path) -> None:
    found = links_in_report(folder, gpu(0), gpu(1))
    assert links_of(found) == {0: {}, 1: {}}
    assert all(each.error is None for each in found.values())


def test_a_gpu_whose_links_cannot_be_read_does_not_affect_the_links_of_other_gpus(folder: Path) -> None:
    broken = linked(1, 0, 0, faults=("nvmlDeviceGetNvLinkState error 999",))
    found = links_in_report(folder, linked(0, 1, 1, 2), broken, linked(2, 0))
    assert links_of(found) == {0: {"1": 2, "2": 1}, 1: {}, 2: {"0": 1}}
    assert [each.error is not None for each in found.values()] == [False, True, False]


def test_a_lost_gpu_does_not_affect_the_links_of_other_gpus(folder: Path) -> None:
    gpus = [switched(number, 4, 12) for number in range(4)]
    gpus[2] = switched(2, 4, 12, faults=("* error 15",))
    found = links_in_report(folder, *gpus)
    island = {f"nvlink-{address(0)}": 12}
    assert links_of(found) == {0: island, 1: island, 2: {}, 3: island}


def test_links_are_counted_even_if_the_driver_does_not_report_the_type_of_the_peers(folder: Path) -> None:
    fault = ("nvmlDeviceGetNvLinkRemoteDeviceType error 3",)
    found = links_in_report(folder, linked(0, 1), linked(1, 0), faults=fault)
    assert links_of(found) == {0: {"1": 1}, 1: {"0": 1}}
    found = links_in_report(folder, *(switched(number, 2, 6) for number in range(2)), faults=fault)
    assert links_of(found) == {number: {f"nvlink-{address(0)}": 6} for number in range(2)}


@pytest.mark.parametrize("fabric", ["", "ab00.7"])
def test_gpus_in_two_partitions_of_a_fabric_are_two_islands(fabric: str) -> None:
    found = gpu_links(
        {
            address(number): NvmlLinks(
                error=None,
                peers={},
                down=0,
                switched=18,
                fabric=fabric,
                is_joining=False,
                reached=tuple(address(other) for other in group if other > number),
            )
            for group in ((0, 1), (2, 3))
            for number in group
        }
    )
    first, second = f"nvlink-{fabric or address(0)}", f"nvlink-{address(2)}"
    assert [each.island for each in found] == [first, first, second, second]


def test_an_island_of_a_cluster_has_the_name_of_the_fabric(folder: Path) -> None:
    clique = ("nvmlDeviceGetGpuFabricInfoV 0 3 0", "fabric-clique 0 171 7")
    found = links_in_report(folder, *(switched(number, 2, 18, results=clique) for number in range(2)))
    assert {each.island for each in gpu_links(found)} == {f"nvlink-ab{'0' * 30}.7"}


def test_an_island_of_a_single_machine_has_the_address_of_its_first_gpu(folder: Path) -> None:
    joined = ("nvmlDeviceGetGpuFabricInfoV 0 3 0",)
    found = links_in_report(folder, *(switched(number, 2, 18, results=joined) for number in range(2)))
    assert {each.island for each in gpu_links(found)} == {f"nvlink-{address(0)}"}


def test_a_gpu_that_is_still_joining_its_fabric_is_reported(folder: Path) -> None:
    joining = ("nvmlDeviceGetGpuFabricInfoV 0 2 0",)
    found = links_in_report(folder, *(switched(number, 2, 18, results=joining) for number in range(2)))
    assert [each.is_joining for each in found.values()] == [True, True]
