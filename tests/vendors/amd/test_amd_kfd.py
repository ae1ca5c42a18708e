"""The offered devices if KFD is of an old kernel, lists fewer GPUs than amdgpu, or cannot be read."""

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
    """As in old kernels, remove the domains from all KFD nodes, or from those of the render nodes RENDERS."""
    files = [node_of(root, render) for render in renders] or (root / amd_tree.NODES).glob("*/properties")
    for file in files:
        file.write_text(re.sub(r"^domain .*\n", "", file.read_text(), flags=re.MULTILINE))


# GPUs that KFD does not list.


@pytest.mark.parametrize("split", [1, 2, 4, 8])
def test_a_host_with_a_compute_gpu_is_an_error_if_kfd_lists_no_gpu(tmp_path: Path, split: int) -> None:
    amd_tree.write(tmp_path, (replace(mi300x(split, count=1)[0], kfd=False),))
    error = refusal(tmp_path)
    assert (error.kind, "KFD lists no GPU that computes" in error.message) == ("no-usable-device", True)
    assert "HSA_AMD" in error.hint


def test_a_partitioned_gpu_that_kfd_does_not_list_gets_no_device(tmp_path: Path) -> None:
    first, second = mi300x(2, count=2)
    inventory = discover(tmp_path, replace(first, kfd=False), second)
    assert rules(inventory) == [("error", "partition-contradiction")]
    offers = offered(tmp_path, inventory)
    assert numbered(offers) == amd_tree.counted_by_amd(tmp_path)
    assert "0000:05:00.0" not in offers


def test_a_partition_that_kfd_does_not_list_gets_no_device(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(2, count=1))
    shutil.rmtree(node_of(tmp_path, 128).parent)
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "partition-without-kfd")]
    assert "KFD does not list this partition" in inventory.findings[0].message
    assert offered(tmp_path, inventory)["0"] == ["/dev/dri/card2", "/dev/dri/renderD129", "/dev/kfd"]


def test_a_host_whose_only_gpu_lacks_a_render_node_and_its_card_node_is_an_error(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, (replace(mi210(1)[0], pci_class=0x030000),))
    shutil.rmtree(tmp_path / FIRST / "drm/renderD128")
    (tmp_path / "dev/dri/card1").unlink()
    error = refusal(tmp_path)
    assert (error.kind, "/dev/dri/card1 does not exist" in error.message) == ("no-nodes", True)


def test_a_gpu_that_lacks_a_render_node_and_its_card_node_is_one_finding(tmp_path: Path) -> None:
    first, second = mi210(2)
    amd_tree.write(tmp_path, (replace(first, pci_class=0x030000), second))
    shutil.rmtree(tmp_path / FIRST / "drm/renderD128")
    (tmp_path / "dev/dri/card1").unlink()
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "gpu-node-missing")]
    assert numbered(offered(tmp_path, inventory)) == ["/dev/dri/renderD129"]


# KFD cannot be read.


def test_a_gpu_whose_kfd_node_cannot_be_read_is_not_reported_as_missing_in_kfd(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(2))
    make_unreadable(node_of(tmp_path, 128))
    finding = discover(tmp_path).findings[-1]
    assert finding.rule == "gpu-without-kfd"
    assert "KFD cannot be read for renderD128" in finding.message


def test_a_kfd_that_cannot_be_read_is_not_reported_as_a_kfd_without_gpus(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(1))
    make_unreadable(node_of(tmp_path, 128))
    assert "KFD cannot be read for any GPU" in refusal(tmp_path).message


def test_the_first_broken_kfd_nodes_and_the_number_of_other_broken_nodes_are_reported(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(1))
    for node in range(100, 200):
        put(tmp_path / amd_tree.NODES / str(node) / "properties", b"")
    found = discover(tmp_path).findings
    assert len(found) == kfd.MAX_REPORTED + 1
    assert {finding.rule for finding in found} == {"kfd-node-unusable"}
    assert f"{100 - kfd.MAX_REPORTED} more" in found[-1].message


def test_kfd_nodes_beyond_the_limit_are_reported_as_unread(tmp_path: Path) -> None:
    first, second = mi210(2)
    amd_tree.write(tmp_path, (replace(first, pci_class=0x030000), second))
    for node in range(10_000, 10_000 + kfd.MAX_NODES):
        (tmp_path / amd_tree.NODES / str(node)).mkdir()
    assert ("warning", "kfd-nodes-unread") in rules(discover(tmp_path))


# In old kernels, KFD has no domains.


def test_an_old_kernel_without_domains_is_one_warning(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(3))
    take_domains(tmp_path)
    inventory = discover(tmp_path)
    assert rules(inventory) == [("warning", "kfd-without-domain")]
    assert "use a newer kernel" in inventory.findings[0].hint
    offers = offered(tmp_path, inventory)
    assert numbered(offers) == [f"/dev/dri/renderD{render}" for render in (128, 129, 130)]
    assert all("/dev/kfd" in offers[number] for number in "012")


def test_a_gpu_without_a_domain_is_numbered_after_the_gpus_that_amds_tools_list(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(3))
    take_domains(tmp_path, 128)
    offers = offered(tmp_path, discover(tmp_path))
    assert numbered(offers) == [*amd_tree.counted_by_amd(tmp_path), "/dev/dri/renderD128"]


def test_partitions_without_a_domain_belong_to_the_gpu_with_the_same_bus_and_device(tmp_path: Path) -> None:
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


def test_a_partition_without_a_domain_that_matches_two_gpus_is_unusable(
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


def test_no_file_in_the_root_folder_is_read_for_a_gpu_without_a_folder_in_sys(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(2, count=2))
    (tmp_path / "sys/bus/pci/drivers/amdgpu/0000:05:00.0").unlink()
    put(tmp_path / "device", b"0xdead\n")
    put(tmp_path / "product_name", b"evil\n")
    gpu = discover(tmp_path).accelerators[-1]
    assert (gpu.address, gpu.model, gpu.device_id) == ("0000:05:00.0", "AMD GPU", "")


# Unique ids.


def test_a_unique_id_of_two_partitions_is_the_name_of_both(tmp_path: Path) -> None:
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
def test_a_unique_id_that_kfd_does_not_report_is_read_from_sysfs(tmp_path: Path, line: str) -> None:
    amd_tree.write(tmp_path, mi210(1))
    edit_properties(tmp_path, 128, r"unique_id .*\n", line)
    assert discover(tmp_path).accelerators[0].uuid == f"0x{amd_tree.UNIQUE_IDS[0]:X}"


@pytest.mark.parametrize("text", ["084CAFEAE17E7696", "0x084cafeae17e7696", "0X84CAFEAE17E7696"])
def test_a_unique_id_in_sysfs_can_have_any_case_and_the_prefix_0x(tmp_path: Path, text: str) -> None:
    amd_tree.write(tmp_path, mi210(1))
    edit_properties(tmp_path, 128, r"unique_id .*\n", "")
    put(tmp_path / FIRST / "unique_id", f"{text}\n".encode())
    assert discover(tmp_path).accelerators[0].uuid == "0x84CAFEAE17E7696"
