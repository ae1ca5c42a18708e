"""The firmware access nodes of Intel's discrete GPUs have a separate CDI kind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.hosts.discovery import documents
from support.hosts.driver_files import put
from support.hosts.intel import discover, kinds, offered, places, rules
from support.hosts.intel_tree import arc_a770, b60, gpu, laptop, lay

from cdigen.model.profile import DEFAULT
from cdigen.value import replace as changed
from cdigen.vendors.intel.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")

KIND = "intel.com/gpu-mei"


def test_firmware_nodes_are_offered_by_gpu_index_by_gpu_address_and_by_node_name(tmp_path: Path) -> None:
    found = offered(tmp_path, *arc_a770(), kind=KIND)
    assert found == {
        "0": ["/dev/mei1", "/dev/mei2"],
        "0000-03-00-0-0x56a0": ["/dev/mei1", "/dev/mei2"],
        "0000-07-00-0-0xe211": ["/dev/mei3"],
        "1": ["/dev/mei3"],
        "all": ["/dev/mei1", "/dev/mei2", "/dev/mei3"],
        "mei1": ["/dev/mei1"],
        "mei2": ["/dev/mei2"],
        "mei3": ["/dev/mei3"],
    }


def test_the_management_engine_of_the_cpu_is_never_offered(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *arc_a770())
    assert rules(inventory) == {}
    for devices in kinds(tmp_path, inventory).values():
        assert not any("/dev/mei0" in paths for paths in devices.values())


def test_a_device_of_the_kind_gpu_has_no_firmware_nodes(tmp_path: Path) -> None:
    found = offered(tmp_path, *arc_a770())
    assert not any("mei" in path for paths in found.values() for path in paths)


def test_a_host_without_firmware_nodes_does_not_have_their_kind(tmp_path: Path) -> None:
    assert kinds(tmp_path, discover(tmp_path, *laptop())).keys() == {"intel.com/gpu", "intel.com/npu"}


def test_firmware_nodes_have_the_index_of_their_gpu(tmp_path: Path) -> None:
    """A GPU without a firmware node keeps its index, so that the indices of later GPUs do not change."""
    first, second = b60(2)
    found = offered(tmp_path, first, replace(second, mei=(("xe.mei-gscfi.14592", 4),)), kind=KIND)
    assert (found["1"], "0" in found) == (["/dev/mei4"], False)


def test_a_gpu_with_broken_firmware_is_offered_only_as_firmware_nodes(tmp_path: Path) -> None:
    broken = gpu(0, "0000:03:00.0", "0xe211", "xe", mei=(("xe.mei-gscfi.768", 1),))
    broken = replace(broken, card=None, render=None, entries={"survivability_mode": "Runtime"})
    inventory = discover(tmp_path, broken)
    assert rules(inventory) == {"gpu-in-survivability-mode": "error"}
    assert kinds(tmp_path, inventory).keys() == {KIND}


def test_a_missing_firmware_node_does_not_affect_the_gpu(tmp_path: Path) -> None:
    lay(tmp_path, *arc_a770())
    (tmp_path / "dev/mei2").unlink()
    inventory = discover(tmp_path)
    assert rules(inventory) == {"mei-node-unusable": "warning"}
    found = kinds(tmp_path, inventory)
    assert found[KIND]["0"] == ["/dev/mei1"]
    assert found["intel.com/gpu"].keys() >= {"0", "1"}
    (missing,) = VENDOR.missing_nodes(places(tmp_path))
    assert (missing.path, missing.major, missing.minor) == ("/dev/mei2", 238, 2)


def test_other_files_are_not_used_as_firmware_nodes(tmp_path: Path) -> None:
    lay(tmp_path, *b60(1))
    folder = tmp_path / b60(1)[0].folder
    for name in ("xe.mei-gscfi.x/mei/mei7", "evil.mei-gscfi.1/mei/mei7", "xe.mei-gscfi.1/mei/../mei7"):
        put(folder / name / "dev", b"238:7\n")
    put(folder / "xe.mei-gscfi.2/mei/mei7x/dev", b"238:7\n")
    assert KIND not in kinds(tmp_path, discover(tmp_path))


def test_a_profile_for_firmware_nodes_chooses_the_names(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *arc_a770())
    profile = changed(DEFAULT, name="mei", device_class="gpu-mei", names=("card",))
    by_kind = documents(places(tmp_path).host, inventory, DEFAULT, profile)
    assert [device["name"] for device in by_kind[KIND]["devices"]] == ["mei1", "mei2", "mei3", "all"]
    assert by_kind["intel.com/gpu"]["devices"][0]["name"] == "0"
