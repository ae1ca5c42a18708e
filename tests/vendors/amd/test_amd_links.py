"""The XGMI links of AMD's GPUs, from the links and hives in KFD, for whole and for partitioned GPUs."""

from pathlib import Path

import pytest
from support.hosts import amd_tree
from support.hosts.amd import discover, places
from support.hosts.amd_tree import AmdGpu, link_hive

from cdigen.model.inventory import Inventory
from cdigen.model.inventory_json import from_document, to_document
from cdigen.pipeline.driver.links import refresh_links
from cdigen.topology.levels import islands, relation
from cdigen.topology.matrix import devices_of, matrix, text

pytestmark = pytest.mark.usefixtures("real_nodes")


def linked(root: Path, *gpus: AmdGpu) -> Inventory:
    """Return the inventory, with links, of the host at ROOT. If there are GPUS, write the host first."""
    return refresh_links({"amd": discover(root, *gpus)}, lambda: places(root))[0]["amd"]


def hive(root: Path, gpus: tuple[AmdGpu, ...], count: int = 1, *, hops: int = 1) -> tuple[AmdGpu, ...]:
    """Write a host whose GPUS are one hive; return GPUS."""
    amd_tree.write(root, gpus)
    link_hive(root, gpus, 0x2095, count, hops=hops)
    return gpus


def every_pair(count: int) -> list[list[str]]:
    """Return the cells of the matrix for COUNT GPUs with a link between any two GPUs."""
    return [["X" if one == other else "XGMI1" for other in range(count)] for one in range(count)]


def cells(inventory: Inventory) -> list[list[str]]:
    gpus = inventory.accelerators
    return [[relation(one, other).cell for other in gpus] for one in gpus]


def test_any_two_of_eight_mi300x_are_linked(tmp_path: Path) -> None:
    hive(tmp_path, amd_tree.mi300x(1))
    found = linked(tmp_path)
    assert cells(found) == every_pair(8)
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


def test_partitioned_gpus_are_linked_like_whole_gpus(tmp_path: Path) -> None:
    hive(tmp_path, amd_tree.mi300x(8, count=3))
    found = linked(tmp_path)
    assert all(len(gpu.partitions) == 8 for gpu in found.accelerators)
    assert cells(found) == every_pair(3)


@pytest.mark.parametrize(
    ("count", "hops", "cell"),
    [
        # The two dies of an MI250X.
        pytest.param(4, 1, "XGMI4", id="joined links are counted by their bandwidth"),
        pytest.param(1, 2, "XGMI", id="members of a hive that are not adjacent have no number"),
        pytest.param(0, 1, "XGMI1", id="an old kernel without bandwidths reports one link"),
    ],
)
def test_the_number_of_links_is_calculated_from_kfds_values(
    tmp_path: Path, count: int, hops: int, cell: str
) -> None:
    hive(tmp_path, amd_tree.mi210(2), count, hops=hops)
    assert cells(linked(tmp_path))[0] == ["X", cell]


def test_an_invalid_number_of_links_is_replaced_by_the_number_1(tmp_path: Path) -> None:
    hive(tmp_path, amd_tree.mi210(2), 1 << 40)
    found = linked(tmp_path)
    assert cells(found)[0] == ["X", "XGMI1"]
    assert from_document(to_document({"amd": found})) == {"amd": found}


def test_gpus_without_a_hive_are_connected_by_the_bus_only(tmp_path: Path) -> None:
    found = linked(tmp_path, *amd_tree.mi210(2))
    assert cells(found)[0] == ["X", "PHB"]
    assert [gpu.island for gpu in found.accelerators] == ["", ""]


@pytest.mark.parametrize(
    "content", [b"", b"type 11\nnode_to 99\n", b"\xff garbage 1 2\n", b"type 11 11\nnode_to -1\n"]
)
def test_a_gpu_with_invalid_link_files_does_not_affect_other_gpus(tmp_path: Path, content: bytes) -> None:
    gpus = hive(tmp_path, amd_tree.mi210(4))
    for file in amd_tree.node_of(tmp_path, gpus[1].render).parent.glob("io_links/*/properties"):
        file.write_bytes(content)
    # Both GPUs of a link report the link. The other GPUs report the links that GPU 1 does not report.
    assert cells(linked(tmp_path)) == every_pair(4)


def test_a_gpu_whose_kfd_node_cannot_be_read_has_no_links(tmp_path: Path) -> None:
    gpus = hive(tmp_path, amd_tree.mi210(4))
    found = linked(tmp_path)
    properties = amd_tree.node_of(tmp_path, gpus[1].render)
    properties.unlink()
    assert cells(found)[0] == ["X", "XGMI1", "XGMI1", "XGMI1"]
    lost = linked(tmp_path)
    assert [gpu.usable for gpu in lost.accelerators].count(False) == 1
    assert sorted(row.count("XGMI1") for row in cells(lost)) == [0, 2, 2, 2]
