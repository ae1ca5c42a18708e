"""What is offered where KFD is old, knows less than amdgpu has, or cannot be asked."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree
from support.hosts.amd import discover, numbered, offered, refusal, rules
from support.hosts.amd_tree import edit_properties, make_unreadable, mi210, mi300x, node_of
from support.hosts.driver_files import put

from cdigen.vendors.amd import kfd

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")

PCI = "sys/devices/pci0000:00"
FIRST = f"{PCI}/0000:05:00.0"


def take_domains(root: Path, *renders: int) -> None:
    """Let KFD tell no domain of the nodes with RENDERS, or of none, as kernels once did."""
    files = [node_of(root, render) for render in renders] or (root / amd_tree.NODES).glob("*/properties")
    for file in files:
        file.write_text(re.sub(r"^domain .*\n", "", file.read_text(), flags=re.MULTILINE))


# GPUs that KFD does not know.


@pytest.mark.parametrize("split", [1, 2, 4, 8])
def test_where_kfd_knows_no_gpu_one_that_is_there_to_compute_is_an_error(tmp_path: Path, split: int) -> None:
    amd_tree.write(tmp_path, (replace(mi300x(split, count=1)[0], kfd=False),))
    error = refusal(tmp_path)
    assert (error.kind, "KFD knows no GPU that computes" in error.message) == ("no-gpu", True)
    assert "HSA_AMD" in error.hint


def test_of_split_gpus_the_one_that_kfd_does_not_know_gets_no_device(tmp_path: Path) -> None:
    first, second = mi300x(2, count=2)
    inventory = discover(tmp_path, replace(first, kfd=False), second)
    assert rules(inventory) == [("error", "partition-contradiction")]
    offers = offered(tmp_path, inventory)
    assert numbered(offers) == amd_tree.counted_by_amd(tmp_path)
    assert "0000:05:00.0" not in offers


def test_a_partition_that_kfd_does_not_know_gets_no_device(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(2, count=1))
    shutil.rmtree(node_of(tmp_path, 128).parent)
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "partition-without-kfd")]
    assert "KFD does not know this partition" in inventory.findings[0].message
    assert offered(tmp_path, inventory)["0"] == ["/dev/dri/card2", "/dev/dri/renderD129", "/dev/kfd"]


def test_gpus_whose_only_card_nobody_made_are_an_error_of_one_line(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, (replace(mi210(1)[0], pci_class=0x030000),))
    shutil.rmtree(tmp_path / FIRST / "drm/renderD128")
    (tmp_path / "dev/dri/card1").unlink()
    error = refusal(tmp_path)
    assert (error.kind, "/dev/dri/card1 does not exist" in error.message) == ("no-nodes", True)


def test_a_gpu_whose_only_card_nobody_made_is_one_finding(tmp_path: Path) -> None:
    first, second = mi210(2)
    amd_tree.write(tmp_path, (replace(first, pci_class=0x030000), second))
    shutil.rmtree(tmp_path / FIRST / "drm/renderD128")
    (tmp_path / "dev/dri/card1").unlink()
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "gpu-node-missing")]
    assert numbered(offered(tmp_path, inventory)) == ["/dev/dri/renderD129"]


# KFD that cannot be asked.


def test_a_gpu_whose_properties_cannot_be_read_is_not_said_to_be_unknown(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(2))
    make_unreadable(node_of(tmp_path, 128))
    told = discover(tmp_path).findings[-1]
    assert told.rule == "gpu-without-kfd"
    assert "KFD could not be asked about renderD128" in told.message


def test_where_no_properties_can_be_read_kfd_is_not_said_to_know_no_gpu(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(1))
    make_unreadable(node_of(tmp_path, 128))
    assert "KFD could not be asked about any GPU" in refusal(tmp_path).message


def test_many_broken_nodes_are_told_by_the_first_few_and_their_number(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(1))
    for node in range(100, 200):
        put(tmp_path / amd_tree.NODES / str(node) / "properties", b"")
    found = discover(tmp_path).findings
    assert len(found) == kfd.MAX_TOLD + 1
    assert {finding.rule for finding in found} == {"kfd-node-unusable"}
    assert f"{100 - kfd.MAX_TOLD} more" in found[-1].message


def test_nodes_beyond_what_is_read_are_told(tmp_path: Path) -> None:
    first, second = mi210(2)
    amd_tree.write(tmp_path, (replace(first, pci_class=0x030000), second))
    for node in range(10_000, 10_000 + kfd.MAX_NODES):
        (tmp_path / amd_tree.NODES / str(node)).mkdir()
    assert ("warning", "kfd-nodes-unread") in rules(discover(tmp_path))


# KFD of old kernels, which tells no domains.


def test_a_kernel_too_old_to_tell_domains_is_one_warning(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(3))
    take_domains(tmp_path)
    inventory = discover(tmp_path)
    assert rules(inventory) == [("warning", "kfd-without-domain")]
    assert "kernel is old" in inventory.findings[0].hint
    offers = offered(tmp_path, inventory)
    assert numbered(offers) == [f"/dev/dri/renderD{render}" for render in (128, 129, 130)]
    assert all("/dev/kfd" in offers[number] for number in "012")


def test_a_gpu_without_a_domain_comes_after_those_that_amd_counts(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(3))
    take_domains(tmp_path, 128)
    offers = offered(tmp_path, discover(tmp_path))
    assert numbered(offers) == [*amd_tree.counted_by_amd(tmp_path), "/dev/dri/renderD128"]


def test_partitions_without_a_domain_are_those_of_the_gpu_at_their_bus_and_device(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(8, count=2))
    take_domains(tmp_path)
    inventory = discover(tmp_path)
    assert rules(inventory) == [("warning", "kfd-without-domain")]
    assert [len(gpu.partitions) for gpu in inventory.accelerators] == [8, 8]
    offers = offered(tmp_path, inventory)
    assert sorted(numbered(offers)) == [f"/dev/dri/renderD{128 + place}" for place in range(16)]
    assert [path for path in offers["0000:05:00.0"] if "renderD" in path] == [
        f"/dev/dri/renderD{128 + place}" for place in range(8)
    ]


def test_partitions_without_a_domain_that_could_be_of_two_gpus_are_listed_and_unusable(
    tmp_path: Path,
) -> None:
    first, second = mi300x(2, count=2)
    amd_tree.write(tmp_path, (first, replace(second, bdf="0001:05:00.0")))
    take_domains(tmp_path, 129)
    inventory = discover(tmp_path)
    assert rules(inventory) == [
        ("warning", "kfd-without-domain"),
        ("error", "partition-contradiction"),
        ("error", "partition-without-gpu"),
    ]
    lost = inventory.accelerators[-1]
    assert [(part.address, part.usable) for part in lost.partitions] == [("amdgpu_xcp_0", False)]
    assert numbered(offered(tmp_path, inventory)) == amd_tree.counted_by_amd(tmp_path)


def test_a_gpu_that_is_not_on_the_bus_is_told_nothing_by_files_of_the_hosts_root(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(2, count=2))
    (tmp_path / "sys/bus/pci/drivers/amdgpu/0000:05:00.0").unlink()
    put(tmp_path / "device", b"0xdead\n")
    put(tmp_path / "product_name", b"evil\n")
    gpu = discover(tmp_path).accelerators[-1]
    assert (gpu.address, gpu.model, gpu.device_id) == ("0000:05:00.0", "AMD GPU", "")


# Unique ids.


def test_a_unique_id_that_partitions_share_in_pairs_names_the_pairs(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(4, count=1))
    for place in range(4):
        edit_properties(tmp_path, 128 + place, r"unique_id \d+", f"unique_id {0xA0 + place // 2}")
    inventory = discover(tmp_path)
    assert inventory.findings == ()
    offers = offered(tmp_path, inventory)
    for name, numbers in (("0xA0", (128, 129)), ("0xA1", (130, 131))):
        renders = [path for path in offers[name] if "renderD" in path]
        assert renders == [f"/dev/dri/renderD{number}" for number in numbers]


@pytest.mark.parametrize("line", ["", "unique_id 0\n"])
def test_a_unique_id_that_kfd_does_not_tell_is_that_of_sysfs(tmp_path: Path, line: str) -> None:
    amd_tree.write(tmp_path, mi210(1))
    edit_properties(tmp_path, 128, r"unique_id .*\n", line)
    assert discover(tmp_path).accelerators[0].uuid == f"0x{amd_tree.UNIQUE_IDS[0]:X}"


@pytest.mark.parametrize("text", ["084CAFEAE17E7696", "0x084cafeae17e7696", "0X84CAFEAE17E7696"])
def test_a_unique_id_is_understood_in_either_case_and_with_or_without_0x(tmp_path: Path, text: str) -> None:
    amd_tree.write(tmp_path, mi210(1))
    edit_properties(tmp_path, 128, r"unique_id .*\n", "")
    put(tmp_path / FIRST / "unique_id", f"{text}\n".encode())
    assert discover(tmp_path).accelerators[0].uuid == "0x84CAFEAE17E7696"
