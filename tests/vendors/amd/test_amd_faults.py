"""Hosts of AMD's on which something is wrong: a finding for each trouble, and the others are served."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import amdtree
import pytest
from amdtree import mi210, mi300x, node_of, radeon
from hosttree import link, put
from vendors.amd.amdhost import discover, numbered, offered, places, refusal, rules

from cdigen.vendors.amd.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.inventory import Inventory

pytestmark = pytest.mark.usefixtures("real_nodes")

PCI = "sys/devices/pci0000:00"


def lay(root: Path, count: int = 3) -> None:
    amdtree.write(root, mi210(count))


def change(root: Path, render: int, pattern: str, text: str) -> None:
    """Change the properties of the KFD node with a render node."""
    file = node_of(root, render)
    file.write_text(re.sub(pattern, text, file.read_text(), flags=re.MULTILINE))


def last_comes_without_compute(root: Path, inventory: Inventory) -> None:
    """Hold that the first GPU comes last, for graphics, and the others are counted as AMD's tool does."""
    offers = offered(root, inventory)
    assert numbered(offers)[:2] == amdtree.counted_by_amd(root)
    assert offers["2"] == offers["0000:05:00.0"] == ["/dev/dri/card1", "/dev/dri/renderD128"]


def test_a_gpu_whose_place_kfd_does_not_tell_comes_after_the_others(tmp_path: Path) -> None:
    lay(tmp_path)
    change(tmp_path, 128, r"^location_id .*\n", "")
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "kfd-node-unusable")]
    assert "has no location_id" in inventory.findings[0].message
    offers = offered(tmp_path, inventory)
    assert numbered(offers) == [*amdtree.counted_by_amd(tmp_path), "/dev/dri/renderD128"]
    assert "/dev/kfd" in offers["2"]


def test_a_partition_whose_place_kfd_does_not_tell_is_left_out(tmp_path: Path) -> None:
    amdtree.write(tmp_path, mi300x(2, count=2))
    change(tmp_path, 129, r"^location_id .*\n", "")
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "kfd-node-unusable")]
    assert numbered(offered(tmp_path, inventory)) == amdtree.counted_by_amd(tmp_path)
    lost = inventory.accelerators[-1]
    assert (lost.usable, [part.address for part in lost.partitions]) == (False, ["amdgpu_xcp_0"])


def test_a_node_that_computes_with_minor_0_is_none(tmp_path: Path) -> None:
    lay(tmp_path)
    change(tmp_path, 128, "^drm_render_minor .*", "drm_render_minor 0")
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "kfd-node-unusable"), ("warning", "gpu-without-kfd")]
    last_comes_without_compute(tmp_path, inventory)


@pytest.mark.parametrize(
    "text", ["", "rubbish\n", "drm_render_minor\n\0\n", "drm_render_minor -1\nlocation_id \u0661\n"]
)
def test_properties_that_make_no_sense_are_a_finding(tmp_path: Path, text: str) -> None:
    lay(tmp_path)
    node_of(tmp_path, 128).write_text(text)
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "kfd-node-unusable"), ("warning", "gpu-without-kfd")]
    last_comes_without_compute(tmp_path, inventory)


def test_properties_that_cannot_be_read_are_a_finding(tmp_path: Path) -> None:
    lay(tmp_path)
    file = node_of(tmp_path, 128)
    file.unlink()
    file.mkdir()
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "kfd-node-unusable"), ("warning", "gpu-without-kfd")]
    assert "cannot be read" in inventory.findings[0].message
    file.rmdir()
    last_comes_without_compute(tmp_path, inventory)


def test_a_node_that_vanishes_between_listing_and_reading_is_a_finding(tmp_path: Path) -> None:
    lay(tmp_path)
    node_of(tmp_path, 128).unlink()
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "kfd-node-unusable"), ("warning", "gpu-without-kfd")]
    last_comes_without_compute(tmp_path, inventory)


def test_two_gpus_at_one_place_are_counted_together_as_amd_does(tmp_path: Path) -> None:
    lay(tmp_path)
    place = re.search(r"^location_id .*", node_of(tmp_path, 128).read_text(), re.MULTILINE)
    assert place
    change(tmp_path, 130, "^location_id .*", place[0])
    inventory = discover(tmp_path)
    assert rules(inventory) == [("warning", "kfd-location-repeated")]
    offers = offered(tmp_path, inventory)
    assert numbered(offers) == amdtree.counted_by_amd(tmp_path)
    assert [path for path in offers["1"] if "renderD" in path] == ["/dev/dri/renderD130"]
    assert offers["0000:46:00.0"] == offers["1"]


def test_of_two_nodes_with_one_render_node_the_last_counts(tmp_path: Path) -> None:
    lay(tmp_path)
    change(tmp_path, 130, "^drm_render_minor .*", "drm_render_minor 128")
    inventory = discover(tmp_path)
    assert ("warning", "kfd-node-repeated") in rules(inventory)
    assert numbered(offered(tmp_path, inventory))[:2] == amdtree.counted_by_amd(tmp_path)


@pytest.mark.parametrize("target", ["../nowhere", "0000:05:00.0"], ids=["dangling", "cyclic"])
def test_a_link_that_leads_nowhere_costs_its_own_gpu_alone(tmp_path: Path, target: str) -> None:
    lay(tmp_path)
    link(tmp_path / "sys/bus/pci/drivers/amdgpu/0000:05:00.0", target)
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "gpu-lost")]
    assert numbered(offered(tmp_path, inventory)) == amdtree.counted_by_amd(tmp_path)
    assert [(gpu.index, gpu.usable) for gpu in inventory.accelerators] == [(0, True), (1, True), (2, False)]


def test_a_gpu_that_vanishes_between_listing_and_reading_costs_no_other(tmp_path: Path) -> None:
    lay(tmp_path)
    for file in sorted((tmp_path / PCI / "0000:26:00.0").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "gpu-lost")]
    assert numbered(offered(tmp_path, inventory)) == ["/dev/dri/renderD128", "/dev/dri/renderD130"]


def test_a_card_without_a_render_node_shows_pictures_only(tmp_path: Path) -> None:
    lay(tmp_path)
    os.unlink(tmp_path / PCI / "0000:05:00.0/drm/renderD128/dev")
    os.rmdir(tmp_path / PCI / "0000:05:00.0/drm/renderD128")
    inventory = discover(tmp_path)
    assert rules(inventory) == [("warning", "gpu-without-render-node")]
    assert offered(tmp_path, inventory)["2"] == ["/dev/dri/card1"]


@pytest.mark.parametrize("word", ["XPX", "UNKNOWN", "", "cpx spx", "\x1b[2J"])
def test_words_that_no_kernel_uses_are_a_finding_and_the_devices_count(tmp_path: Path, word: str) -> None:
    amdtree.write(tmp_path, mi300x(2, count=2))
    put(tmp_path / PCI / "0000:05:00.0/current_compute_partition", word.encode())
    inventory = discover(tmp_path)
    assert rules(inventory) == [("warning", "partition-unknown")]
    assert [part.profile for part in inventory.accelerators[0].partitions] == ["nps1", "nps1"]
    assert numbered(offered(tmp_path, inventory)) == amdtree.counted_by_amd(tmp_path)


def test_a_mode_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    amdtree.write(tmp_path, mi300x(2, count=1))
    file = tmp_path / PCI / "0000:05:00.0/current_memory_partition"
    file.unlink()
    file.mkdir()
    assert rules(discover(tmp_path)) == [("warning", "partition-unknown")]


def test_a_gpu_that_says_it_is_whole_while_kfd_has_its_parts_is_offered_in_parts(tmp_path: Path) -> None:
    amdtree.write(tmp_path, mi300x(2, count=1))
    put(tmp_path / PCI / "0000:05:00.0/current_compute_partition", b"SPX\n")
    inventory = discover(tmp_path)
    assert rules(inventory) == [("warning", "partition-contradiction")]
    assert set(offered(tmp_path, inventory)) >= {"0", "1"}


def test_partitions_of_a_gpu_that_is_not_on_the_bus_are_offered(tmp_path: Path) -> None:
    amdtree.write(tmp_path, mi300x(2, count=2))
    (tmp_path / "sys/bus/pci/drivers/amdgpu/0000:05:00.0").unlink()
    inventory = discover(tmp_path)
    assert numbered(offered(tmp_path, inventory)) == amdtree.counted_by_amd(tmp_path)
    assert [gpu.address for gpu in inventory.accelerators] == ["0000:26:00.0", "0000:05:00.0"]


def test_a_render_node_that_nobody_made_costs_its_gpu_and_can_be_made(tmp_path: Path) -> None:
    lay(tmp_path)
    (tmp_path / "dev/dri/renderD129").unlink()
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "gpu-node-missing")]
    assert "1" not in offered(tmp_path, inventory)
    (missing,) = VENDOR.missing_nodes(places(tmp_path))
    assert (missing.path, missing.major, missing.minor) == ("/dev/dri/renderD129", 226, 129)
    assert (missing.mode, missing.gid) == (0o660, amdtree.RENDER_GID)


def test_a_node_of_another_device_is_none(tmp_path: Path) -> None:
    lay(tmp_path)
    amdtree._make(tmp_path, "/dev/dri/renderD129", 226, 130, 0)
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "gpu-node-missing")]
    assert "226:130, but the kernel's are 226:129" in inventory.findings[0].message
    assert [node.path for node in VENDOR.wrong_nodes(places(tmp_path))] == ["/dev/dri/renderD129"]


def test_a_missing_card_costs_the_card_alone(tmp_path: Path) -> None:
    lay(tmp_path, 1)
    (tmp_path / "dev/dri/card1").unlink()
    inventory = discover(tmp_path)
    assert rules(inventory) == [("warning", "drm-node-missing")]
    assert offered(tmp_path, inventory)["0"] == ["/dev/dri/renderD128", "/dev/kfd"]
    assert VENDOR.missing_nodes(places(tmp_path))[0].gid == amdtree.VIDEO_GID


def test_a_missing_kfd_is_an_error_and_graphics_go_on(tmp_path: Path) -> None:
    lay(tmp_path, 1)
    (tmp_path / "dev/kfd").unlink()
    inventory = discover(tmp_path)
    assert rules(inventory) == [("error", "control-node-missing")]
    assert offered(tmp_path, inventory)["0"] == ["/dev/dri/card1", "/dev/dri/renderD128"]
    assert VENDOR.missing_nodes(places(tmp_path))[0].path == "/dev/kfd"


def test_a_host_without_the_module_is_told_how_to_load_it(tmp_path: Path) -> None:
    error = refusal(tmp_path)
    assert (error.kind, "modprobe amdgpu" in error.hint) == ("driver-not-loaded", True)
    assert VENDOR.missing_nodes(places(tmp_path)) == VENDOR.wrong_nodes(places(tmp_path)) == ()


def test_a_module_without_a_gpu_is_an_error(tmp_path: Path) -> None:
    amdtree.write(tmp_path, ())
    assert refusal(tmp_path).kind == "no-gpu"


def test_gpus_without_a_usable_node_are_an_error(tmp_path: Path) -> None:
    amdtree.write(tmp_path, mi210(2), nodes=False)
    error = refusal(tmp_path)
    assert (error.kind, error.driver) == ("no-nodes", "6.8.0-60-generic")
    assert "/dev/dri/renderD128 does not exist" in error.message


def test_all_gpus_lost_are_an_error(tmp_path: Path) -> None:
    lay(tmp_path, 1)
    link(tmp_path / "sys/bus/pci/drivers/amdgpu/0000:05:00.0", "../nowhere")
    assert refusal(tmp_path).kind == "no-gpu"


def test_a_domain_of_more_than_four_digits_is_not_counted_by_amd_and_comes_last(tmp_path: Path) -> None:
    gpus = mi210(2)
    inventory = discover(tmp_path, replace(gpus[0], bdf="10000:01:00.0"), gpus[1])
    assert [gpu.address for gpu in inventory.accelerators] == ["0000:26:00.0", "10000:01:00.0"]


def test_a_radeon_beside_a_broken_kfd_is_offered(tmp_path: Path) -> None:
    inventory = discover(tmp_path, radeon())
    assert offered(tmp_path, inventory)["0000:03:00.0"] == ["/dev/dri/card1", "/dev/dri/renderD128"]
