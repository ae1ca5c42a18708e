"""How AMD's GPUs are linked: XGMI by KFD's links and hives, of whole and of split GPUs."""

from pathlib import Path

import pytest
from support.hosts import amd_tree
from support.hosts.amd import discover, places
from support.hosts.amd_tree import AmdGpu, link_hive

from cdigen.model.inventory import Inventory
from cdigen.model.inventory_json import from_document, to_document
from cdigen.pipeline.links import refreshed
from cdigen.topology.levels import islands, relation
from cdigen.topology.matrix import devices_of, matrix, text

pytestmark = pytest.mark.usefixtures("real_nodes")


def linked(root: Path, *gpus: AmdGpu) -> Inventory:
    """Return the inventory of a host with GPUS, if any, as the daemon has it, with its links."""
    return refreshed({"amd": discover(root, *gpus)}, lambda: places(root)).inventories["amd"]


def cells(inventory: Inventory) -> list[list[str]]:
    gpus = inventory.accelerators
    return [[relation(one, other).cell for other in gpus] for one in gpus]


def test_eight_mi300x_are_linked_each_with_each(tmp_path: Path) -> None:
    gpus = amd_tree.mi300x(1)
    amd_tree.write(tmp_path, gpus)
    link_hive(tmp_path, gpus, 0x2095)
    found = linked(tmp_path)
    assert cells(found) == [["X" if one == other else "XGMI1" for other in range(8)] for one in range(8)]
    assert {gpu.island for gpu in found.accelerators} == {"xgmi-2095"}
    lines = text(matrix(devices_of({"amd": found}), ())).splitlines()
    assert lines[1].startswith("GPU0\t X \tXGMI1\t")


def test_eight_mi210_are_two_hives_of_four(tmp_path: Path) -> None:
    gpus = amd_tree.mi210(8)
    amd_tree.write(tmp_path, gpus)
    link_hive(tmp_path, gpus[:4], 0xA)
    link_hive(tmp_path, gpus[4:], 0xB)
    found = linked(tmp_path)
    assert islands(found.accelerators) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert [gpu.island for gpu in found.accelerators] == ["xgmi-a"] * 4 + ["xgmi-b"] * 4


def test_gpus_that_are_split_are_linked_as_whole_ones_are(tmp_path: Path) -> None:
    gpus = amd_tree.mi300x(8, count=3)
    amd_tree.write(tmp_path, gpus)
    link_hive(tmp_path, gpus, 0x2095)
    found = linked(tmp_path)
    assert all(len(gpu.partitions) == 8 for gpu in found.accelerators)
    assert cells(found) == [["X" if one == other else "XGMI1" for other in range(3)] for one in range(3)]


def test_links_that_are_joined_are_counted_by_their_bandwidth(tmp_path: Path) -> None:
    """The two dies of an MI250X have four links to each other."""
    gpus = amd_tree.mi210(2)
    amd_tree.write(tmp_path, gpus)
    link_hive(tmp_path, gpus, 0xA, 4)
    assert cells(linked(tmp_path))[0] == ["X", "XGMI4"]


def test_members_of_a_hive_that_are_no_neighbours_have_no_number(tmp_path: Path) -> None:
    gpus = amd_tree.mi210(2)
    amd_tree.write(tmp_path, gpus)
    link_hive(tmp_path, gpus, 0xA, hops=2)
    assert cells(linked(tmp_path))[0] == ["X", "XGMI"]


def test_an_old_kernel_that_tells_no_bandwidth_tells_one_link(tmp_path: Path) -> None:
    gpus = amd_tree.mi210(2)
    amd_tree.write(tmp_path, gpus)
    link_hive(tmp_path, gpus, 0xA, 0)
    assert cells(linked(tmp_path))[0] == ["X", "XGMI1"]


def test_a_number_of_links_that_cannot_be_is_none(tmp_path: Path) -> None:
    gpus = amd_tree.mi210(2)
    amd_tree.write(tmp_path, gpus)
    link_hive(tmp_path, gpus, 0xA, 1 << 40)
    found = linked(tmp_path)
    assert cells(found)[0] == ["X", "XGMI1"]
    assert from_document(to_document({"amd": found})) == {"amd": found}


def test_gpus_without_a_hive_are_joined_by_the_bus_alone(tmp_path: Path) -> None:
    found = linked(tmp_path, *amd_tree.mi210(2))
    assert cells(found)[0] == ["X", "PHB"]
    assert [gpu.island for gpu in found.accelerators] == ["", ""]


@pytest.mark.parametrize(
    "content", [b"", b"type 11\nnode_to 99\n", b"\xff garbage 1 2\n", b"type 11 11\nnode_to -1\n"]
)
def test_a_broken_link_of_one_gpu_costs_no_other_its_links(tmp_path: Path, content: bytes) -> None:
    gpus = amd_tree.mi210(4)
    amd_tree.write(tmp_path, gpus)
    link_hive(tmp_path, gpus, 0xA)
    for file in amd_tree.node_of(tmp_path, gpus[1].render).parent.glob("io_links/*/properties"):
        file.write_bytes(content)
    # What GPU 1 does not tell, the others do: a link has two ends.
    assert cells(linked(tmp_path)) == [
        ["X" if one == other else "XGMI1" for other in range(4)] for one in range(4)
    ]


def test_a_node_of_which_nothing_can_be_read_is_far(tmp_path: Path) -> None:
    gpus = amd_tree.mi210(4)
    amd_tree.write(tmp_path, gpus)
    link_hive(tmp_path, gpus, 0xA)
    found = linked(tmp_path)
    properties = amd_tree.node_of(tmp_path, gpus[1].render)
    properties.unlink()
    assert cells(found)[0] == ["X", "XGMI1", "XGMI1", "XGMI1"]
    lost = linked(tmp_path)
    assert [gpu.usable for gpu in lost.accelerators].count(False) == 1
    assert sorted(row.count("XGMI1") for row in cells(lost)) == [0, 2, 2, 2]
