"""AMD hosts with faults: each fault is a finding, and the other devices are offered."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree
from support.hosts.amd import discover, numbered, offered, places, refusal, rules
from support.hosts.amd_tree import edit_properties, make_unreadable, mi210, mi300x, node_of, radeon
from support.hosts.driver_files import link, put

from cdigen.vendors.amd.vendor import VENDOR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cdigen.model.inventory import Inventory

pytestmark = pytest.mark.usefixtures("real_nodes")

PCI = "sys/devices/pci0000:00"


def lay(root: Path, count: int = 3) -> None:
    amd_tree.write(root, mi210(count))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host with three MI210."""
    lay(tmp_path)
    return tmp_path


def first_is_left_out(root: Path, inventory: Inventory) -> None:
    """Check that the first GPU has no name, and that the other GPUs have the numbers of AMD's tool."""
    offers = offered(root, inventory)
    assert numbered(offers) == amd_tree.counted_by_amd(root)
    assert "0000:05:00.0" not in offers
    assert "/dev/dri/renderD128" not in offers["all"]
    assert [(gpu.address, gpu.usable) for gpu in inventory.accelerators][-1] == ("0000:05:00.0", False)


def test_a_gpu_without_a_location_id_in_kfd_is_numbered_last(root: Path) -> None:
    edit_properties(root, 128, r"^location_id .*\n", "")
    inventory = discover(root)
    assert rules(inventory) == [("error", "kfd-node-unusable")]
    assert "has no location_id" in inventory.findings[0].message
    offers = offered(root, inventory)
    assert numbered(offers) == [*amd_tree.counted_by_amd(root), "/dev/dri/renderD128"]
    assert "/dev/kfd" in offers["2"]


def test_a_partition_without_a_location_id_in_kfd_is_left_out(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(2, count=2))
    edit_properties(tmp_path, 129, r"^location_id .*\n", "")
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "kfd-node-unusable"), ("error", "partition-contradiction")]
    assert "0000:05:00.0 is in mode DPX, but KFD lists one device" in inventory.findings[1].message
    assert numbered(offered(tmp_path, inventory)) == amd_tree.counted_by_amd(tmp_path)
    lost = inventory.accelerators[-1]
    assert (lost.usable, [part.address for part in lost.partitions]) == (False, ["amdgpu_xcp_0"])


NONSENSE = ("", "rubbish\n", "drm_render_minor\n\0\n", "drm_render_minor -1\nlocation_id \u0661\n")
UNUSABLE: dict[str, Callable[[Path], object]] = {
    "minor 0": lambda root: edit_properties(root, 128, "^drm_render_minor .*", "drm_render_minor 0"),
    "vanished": lambda root: node_of(root, 128).unlink(),
    **{repr(text): lambda root, text=text: node_of(root, 128).write_text(text) for text in NONSENSE},  # type: ignore[misc]
}


@pytest.mark.parametrize("damage", UNUSABLE.values(), ids=UNUSABLE)
def test_a_kfd_node_with_invalid_or_missing_properties_is_a_finding(
    root: Path, damage: Callable[[Path], object]
) -> None:
    damage(root)
    inventory = discover(root)
    assert rules(inventory) == [("error", "kfd-node-unusable"), ("error", "gpu-without-kfd")]
    first_is_left_out(root, inventory)


def test_a_kfd_node_whose_properties_cannot_be_read_is_a_finding(root: Path) -> None:
    file = node_of(root, 128)
    make_unreadable(file)
    inventory = discover(root)
    assert rules(inventory) == [("error", "kfd-node-unusable"), ("error", "gpu-without-kfd")]
    assert "cannot be read" in inventory.findings[0].message
    file.rmdir()
    first_is_left_out(root, inventory)


def test_two_gpus_with_the_same_location_id_are_partitions_of_one_gpu_as_in_amds_tools(root: Path) -> None:
    place = re.search(r"^location_id .*", node_of(root, 128).read_text(), re.MULTILINE)
    assert place
    edit_properties(root, 130, "^location_id .*", place[0])
    inventory = discover(root)
    assert rules(inventory) == [("warning", "kfd-location-repeated")]
    offers = offered(root, inventory)
    assert numbered(offers) == amd_tree.counted_by_amd(root)
    assert [path for path in offers["1"] if "renderD" in path] == ["/dev/dri/renderD130"]
    assert offers["0000:46:00.0"] == offers["1"]


def test_the_last_of_two_kfd_nodes_with_the_same_render_node_is_used(root: Path) -> None:
    edit_properties(root, 130, "^drm_render_minor .*", "drm_render_minor 128")
    inventory = discover(root)
    assert ("warning", "kfd-node-repeated") in rules(inventory)
    assert numbered(offered(root, inventory))[:2] == amd_tree.counted_by_amd(root)


@pytest.mark.parametrize("target", ["../nowhere", "0000:05:00.0"], ids=["dangling", "cyclic"])
def test_a_broken_sysfs_link_of_a_gpu_affects_only_this_gpu(root: Path, target: str) -> None:
    link(root / "sys/bus/pci/drivers/amdgpu/0000:05:00.0", target)
    inventory = discover(root)
    assert rules(inventory) == [("error", "gpu-lost")]
    assert numbered(offered(root, inventory)) == amd_tree.counted_by_amd(root)
    assert [(gpu.index, gpu.usable) for gpu in inventory.accelerators] == [(0, True), (1, True), (2, False)]


def test_a_gpu_that_disappears_during_the_read_does_not_affect_other_gpus(root: Path) -> None:
    for file in sorted((root / PCI / "0000:26:00.0").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
    inventory = discover(root)
    assert rules(inventory) == [("error", "gpu-lost")]
    assert numbered(offered(root, inventory)) == ["/dev/dri/renderD128", "/dev/dri/renderD130"]


def test_a_graphics_card_without_a_render_node_is_offered_with_only_its_card_node(tmp_path: Path) -> None:
    first, *others = mi210(3)
    amd_tree.write(tmp_path, (replace(first, pci_class=0x030000), *others))
    os.unlink(tmp_path / PCI / "0000:05:00.0/drm/renderD128/dev")
    os.rmdir(tmp_path / PCI / "0000:05:00.0/drm/renderD128")
    inventory = discover(tmp_path)
    assert rules(inventory) == [("warning", "gpu-without-render-node")]
    assert offered(tmp_path, inventory)["2"] == ["/dev/dri/card1"]


def test_an_instinct_without_a_render_node_gets_no_device(root: Path) -> None:
    shutil.rmtree(root / PCI / "0000:05:00.0/drm/renderD128")
    inventory = discover(root)
    assert rules(inventory) == [("error", "gpu-without-render-node")]
    assert "cannot compute" in inventory.findings[0].message
    offers = offered(root, inventory)
    assert ("0000:05:00.0" in offers, "/dev/dri/card1" in offers["all"], "2" in offers) == (False,) * 3


@pytest.mark.parametrize("word", ["XPX", "UNKNOWN", "", "cpx spx", "\x1b[2J"])
def test_an_unknown_partition_mode_is_a_finding_and_the_gpu_is_offered(tmp_path: Path, word: str) -> None:
    amd_tree.write(tmp_path, mi300x(2, count=2))
    put(tmp_path / PCI / "0000:05:00.0/current_compute_partition", word.encode())
    inventory = discover(tmp_path)
    assert rules(inventory) == [("warning", "partition-unknown")]
    assert [part.profile for part in inventory.accelerators[0].partitions] == ["nps1", "nps1"]
    assert numbered(offered(tmp_path, inventory)) == amd_tree.counted_by_amd(tmp_path)


def test_a_partition_mode_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(2, count=1))
    make_unreadable(tmp_path / PCI / "0000:05:00.0/current_memory_partition")
    assert rules(discover(tmp_path)) == [("warning", "partition-unknown")]


def test_a_gpu_in_mode_spx_is_offered_as_the_partitions_that_kfd_lists(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(2, count=1))
    put(tmp_path / PCI / "0000:05:00.0/current_compute_partition", b"SPX\n")
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "partition-contradiction")]
    assert "is in mode SPX, but KFD lists 2 partitions" in inventory.findings[0].message
    assert set(offered(tmp_path, inventory)) >= {"0", "1"}


def test_partitions_of_a_gpu_that_amdgpus_folder_in_sys_does_not_list_are_offered(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(2, count=2))
    (tmp_path / "sys/bus/pci/drivers/amdgpu/0000:05:00.0").unlink()
    inventory = discover(tmp_path)
    assert numbered(offered(tmp_path, inventory)) == amd_tree.counted_by_amd(tmp_path)
    assert [gpu.address for gpu in inventory.accelerators] == ["0000:26:00.0", "0000:05:00.0"]


def test_a_missing_render_node_makes_its_gpu_unusable_and_can_be_created(root: Path) -> None:
    (root / "dev/dri/renderD129").unlink()
    inventory = discover(root)
    assert rules(inventory) == [("error", "gpu-node-missing")]
    assert "1" not in offered(root, inventory)
    (missing,) = VENDOR.missing_nodes(places(root))
    assert (missing.path, missing.major, missing.minor) == ("/dev/dri/renderD129", 226, 129)
    assert (missing.mode, missing.gid) == (0o660, amd_tree.RENDER_GID)


def test_a_node_of_another_device_is_not_used(root: Path) -> None:
    amd_tree._make(root, "/dev/dri/renderD129", 226, 130, 0)
    inventory = discover(root)
    assert rules(inventory) == [("error", "gpu-node-missing")]
    assert "226:130, but the kernel's numbers are 226:129" in inventory.findings[0].message
    assert [node.path for node in VENDOR.wrong_nodes(places(root))] == ["/dev/dri/renderD129"]


def test_a_gpu_whose_card_node_is_missing_is_offered_without_this_node(tmp_path: Path) -> None:
    lay(tmp_path, 1)
    (tmp_path / "dev/dri/card1").unlink()
    inventory = discover(tmp_path)
    assert rules(inventory) == [("warning", "drm-node-missing")]
    assert offered(tmp_path, inventory)["0"] == ["/dev/dri/renderD128", "/dev/kfd"]
    assert VENDOR.missing_nodes(places(tmp_path))[0].gid == amd_tree.VIDEO_GID


def test_without_dev_kfd_no_compute_gpu_is_offered(tmp_path: Path) -> None:
    lay(tmp_path, 2)
    (tmp_path / "dev/kfd").unlink()
    error = refusal(tmp_path)
    assert (error.kind, "/dev/kfd does not exist" in error.message) == ("no-nodes", True)
    assert VENDOR.missing_nodes(places(tmp_path))[0].path == "/dev/kfd"


def test_without_dev_kfd_a_gpu_for_graphics_is_offered(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, (*mi210(1), replace(radeon(), render=140, card=9)))
    (tmp_path / "dev/kfd").unlink()
    inventory = discover(tmp_path)
    assert ("error", "control-node-missing") in rules(inventory)
    offers = offered(tmp_path, inventory)
    assert offers["all"] == offers["0000:03:00.0"] == ["/dev/dri/card9", "/dev/dri/renderD140"]
    assert inventory.accelerators[0].problem == "/dev/kfd cannot be used"


def test_a_guest_without_dev_kfd_gets_gpus_for_graphics(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, (replace(radeon(), kfd=True),))
    (tmp_path / "dev/kfd").unlink()
    (tmp_path / "run/systemd").mkdir(parents=True)
    (tmp_path / "run/systemd/container").write_text("lxc\n")
    inventory = discover(tmp_path)
    assert rules(inventory) == [("info", "control-node-missing")]
    (gpu,) = inventory.accelerators
    assert gpu.usable
    assert {node.role: node.capabilities for node in gpu.nodes}["render"] == ("graphics", "video")
    assert "/dev/kfd" not in {node.path for node in gpu.nodes}


def test_the_hint_for_a_host_without_amdgpu_is_modprobe(tmp_path: Path) -> None:
    error = refusal(tmp_path)
    assert (error.kind, "modprobe amdgpu" in error.hint) == ("driver-not-loaded", True)
    assert VENDOR.missing_nodes(places(tmp_path)) == VENDOR.wrong_nodes(places(tmp_path)) == ()


def test_a_module_without_a_gpu_is_an_error(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, ())
    assert refusal(tmp_path).kind == "no-gpu"


def test_gpus_without_a_usable_node_are_an_error(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(2), nodes=False)
    error = refusal(tmp_path)
    assert (error.kind, error.driver) == ("no-nodes", "6.8.0-60-generic")
    assert "/dev/kfd does not exist" in error.message
    amd_tree._make(tmp_path, "/dev/kfd", amd_tree.KFD_MAJOR, 0, amd_tree.RENDER_GID)
    error = refusal(tmp_path)
    assert (error.kind, "/dev/dri/renderD128 does not exist" in error.message) == ("no-nodes", True)


def test_a_host_whose_gpus_are_all_lost_is_an_error(tmp_path: Path) -> None:
    lay(tmp_path, 1)
    link(tmp_path / "sys/bus/pci/drivers/amdgpu/0000:05:00.0", "../nowhere")
    assert refusal(tmp_path).kind == "no-usable-device"


def test_a_gpu_whose_pci_domain_has_more_than_four_digits_is_numbered_last(tmp_path: Path) -> None:
    gpus = mi210(2)
    inventory = discover(tmp_path, replace(gpus[0], bdf="10000:01:00.0"), gpus[1])
    assert [gpu.address for gpu in inventory.accelerators] == ["0000:26:00.0", "10000:01:00.0"]


def test_a_radeon_is_offered_on_a_host_without_kfd(tmp_path: Path) -> None:
    inventory = discover(tmp_path, radeon())
    assert offered(tmp_path, inventory)["0000:03:00.0"] == ["/dev/dri/card1", "/dev/dri/renderD128"]


# GPUs that KFD no longer lists, or does not list yet.


def forget(root: Path, *renders: int) -> None:
    """Remove the KFD nodes of the render nodes RENDERS, as KFD does if a GPU is lost or is repartitioned."""
    for render in renders:
        shutil.rmtree(node_of(root, render).parent)


def test_an_instinct_that_kfd_no_longer_lists_has_no_number_and_no_device(tmp_path: Path) -> None:
    lay(tmp_path, 8)
    forget(tmp_path, 131)
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "gpu-without-kfd")]
    assert "cannot compute and gets no CDI device" in inventory.findings[0].message
    offers = offered(tmp_path, inventory)
    assert numbered(offers) == amd_tree.counted_by_amd(tmp_path)
    assert len(numbered(offers)) == 7
    assert not any("/dev/dri/renderD131" in paths for paths in offers.values())


def test_an_instinct_that_kfd_no_longer_lists_is_numbered_after_gpus_for_graphics(tmp_path: Path) -> None:
    desktop = replace(radeon("0000:f3:00.0"), render=140, card=9)
    amd_tree.write(tmp_path, (*mi210(2), desktop))
    forget(tmp_path, 128)
    offers = offered(tmp_path)
    assert offers["1"] == offers["0000:f3:00.0"] == ["/dev/dri/card9", "/dev/dri/renderD140"]
    assert "2" not in offers


@pytest.mark.parametrize("word", ["QPX", "SPX", "UNKNOWN"])
def test_a_gpu_that_is_being_partitioned_gets_no_device_and_is_reported(tmp_path: Path, word: str) -> None:
    amd_tree.write(tmp_path, mi300x(4, count=2))
    put(tmp_path / PCI / "0000:05:00.0/current_compute_partition", f"{word}\n".encode())
    forget(tmp_path, 128, 129, 130, 131)
    inventory = discover(tmp_path)
    assert ("error", "partition-contradiction") in rules(inventory)
    assert not any("/dev/dri/renderD128" in paths for paths in offered(tmp_path, inventory).values())


def test_a_gpu_with_fewer_partitions_than_its_mode_requires_is_reported(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(4, count=1))
    forget(tmp_path, 131)
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "partition-contradiction")]
    assert "is in mode QPX, but KFD lists 3 partitions" in inventory.findings[0].message
    assert numbered(offered(tmp_path, inventory)) == amd_tree.counted_by_amd(tmp_path)


def test_a_gpu_with_seven_partitions_is_reported_if_other_gpus_have_eight(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(8, count=8))
    forget(tmp_path, 128 + 3 * amd_tree.XCC_PLACES + 7)
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "partition-missing")]
    text = inventory.findings[0].message
    assert f"GPU {amd_tree.ADDRESSES[3]} has 7 partitions in CPX, but another GPU of its type has 8" in text
    assert numbered(offered(tmp_path, inventory)) == amd_tree.counted_by_amd(tmp_path)


def test_a_gpu_of_another_type_with_fewer_partitions_has_no_finding(tmp_path: Path) -> None:
    first, second = mi300x(8, count=2)
    fewer = replace(second, split=6, device_id=0x74A0, product="AMD Instinct MI300A")
    assert discover(tmp_path, first, fewer).findings == ()
