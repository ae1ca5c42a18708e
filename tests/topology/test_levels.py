"""The relation of two devices by their folders in /sys, their NUMA nodes and their links."""

import pytest
from support.values.topology_places import gpu, links

from cdigen.topology.levels import Relation, islands, path, relation

# The upstream ports of a switch below a root port, and of a second switch below the first switch.
UPPER = "pci0000:40/0000:40:01.1/0000:41:00.0"
LOWER = f"{UPPER}/0000:42:00.0/0000:43:00.0"
PATHS = [
    (
        "two functions of one card",
        f"{UPPER}/0000:42:08.0/0000:48:00.0",
        f"{UPPER}/0000:42:08.0/0000:48:00.1",
        "PIX",
    ),
    ("one switch", f"{UPPER}/0000:42:08.0/0000:48:00.0", f"{UPPER}/0000:42:09.0/0000:49:00.0", "PIX"),
    (
        "a switch below the other",
        f"{UPPER}/0000:42:08.0/0000:48:00.0",
        f"{LOWER}/0000:44:00.0/0000:45:00.0",
        "PXB",
    ),
    (
        "two ports of a host bridge",
        "pci0000:40/0000:40:01.1/0000:41:00.0",
        "pci0000:40/0000:40:03.1/0000:61:00.0",
        "PHB",
    ),
    ("a virtual machine", "pci0000:00/0000:00:05.0", "pci0000:00/0000:00:06.0", "PHB"),
    (
        "behind Intel's VMD",
        "pci0000:00/0000:00:0e.0/pci10000:00/10000:00:01.0/10000:01:00.0",
        "pci0000:00/0000:00:0e.0/pci10000:00/10000:00:03.0/10000:02:00.0",
        "PHB",
    ),
]


@pytest.mark.parametrize(("one", "other", "level"), [row[1:] for row in PATHS], ids=[row[0] for row in PATHS])
def test_the_last_folder_of_both_pci_paths_determines_the_level(one: str, other: str, level: str) -> None:
    assert path(gpu(0, one), gpu(1, other)) == path(gpu(1, other), gpu(0, one)) == level


@pytest.mark.parametrize(
    ("one", "other", "level"),
    [(0, 0, "NODE"), (1, 1, "NODE"), (0, 1, "SYS"), (None, None, "SYS"), (None, 0, "SYS")],
)
def test_numa_nodes_decide_between_two_host_bridges(one: int | None, other: int | None, level: str) -> None:
    first = gpu(0, "pci0000:40/0000:40:01.1/0000:41:00.0", numa_node=one)
    second = gpu(1, "pci0000:80/0000:80:01.1/0000:81:00.0", numa_node=other)
    assert path(first, second) == level


def test_a_device_without_a_pci_path_is_far_from_other_devices_and_its_own_cell_is_x() -> None:
    first, second = gpu(0), gpu(1)
    assert relation(first, second) == Relation(path="SYS")
    assert relation(first, first).cell == "X"


def test_linked_devices_show_their_links_and_are_nearer_than_devices_without_links() -> None:
    one = gpu(0, "pci0000:40/0000:41:00.0", links=links("nvlink", at_81=2, at_91=1))
    other = gpu(1, "pci0000:80/0000:81:00.0", links=links("nvlink", at_41=2))
    assert relation(one, other) == Relation(path="SYS", technology="nvlink", count=2)
    assert relation(one, other).cell == "NV2"
    assert relation(one, other).nearness > Relation(path="PIX").nearness


def test_a_link_that_only_one_of_the_two_devices_reports_is_used() -> None:
    one = gpu(0, "pci0000:40/0000:41:00.0")
    other = gpu(1, "pci0000:80/0000:81:00.0", links=links("nvlink", at_41=4))
    assert relation(one, other).cell == relation(other, one).cell == "NV4"


def test_the_device_with_fewer_links_to_a_switch_determines_the_number_of_links() -> None:
    one = gpu(0, "pci0000:40/0000:41:00.0", links=links("nvlink", switch=18), island="f")
    other = gpu(1, "pci0000:80/0000:81:00.0", links=links("nvlink", switch=16), island="f")
    foreign = gpu(2, "pci0000:90/0000:91:00.0", links=links("nvlink", switch=18), island="g")
    unlinked = gpu(3, "pci0000:a0/0000:a1:00.0", island="f")
    assert [relation(one, each).cell for each in (one, other, foreign, unlinked)] == [
        "X",
        "NV16",
        "SYS",
        "SYS",
    ]


def test_devices_without_addresses_are_not_linked_if_they_are_in_different_islands() -> None:
    one, other = gpu(0, links=links("nvlink", switch=18), island="f"), gpu(1, island="g")
    assert relation(one, other).cell == "SYS"


def test_gpus_of_a_hive_without_a_direct_link_are_nearer_than_gpus_with_pcie_only() -> None:
    one = gpu(0, "pci0000:40/0000:41:00.0", links=links("xgmi", at_81=0))
    other = gpu(1, "pci0000:80/0000:81:00.0", links=links("xgmi", at_41=0))
    assert relation(one, other).cell == "XGMI"
    assert Relation(path="PIX").nearness < relation(one, other).nearness
    assert relation(one, other).nearness < Relation(path="SYS", technology="xgmi", count=1).nearness


def test_devices_that_are_linked_through_other_devices_are_one_island() -> None:
    chain = (
        gpu(0, "pci0000:40/0000:41:00.0", links=links("nvlink", at_61=2)),
        gpu(1, "pci0000:50/0000:51:00.0"),
        gpu(2, "pci0000:60/0000:61:00.0", links=links("nvlink", at_41=2, at_71=2)),
        gpu(3, "pci0000:70/0000:71:00.0", links=links("nvlink", at_61=2)),
    )
    assert islands(chain) == ((0, 2, 3), (1,))
