"""File trees from Intel's own tests. The trees lack many files of a kernel, but cdigen offers their devices.

The resource driver is intel-resource-drivers-for-kubernetes. The device plugin is
intel-device-plugins-for-kubernetes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.driver_files import link, put
from support.hosts.intel import discover, kinds, offered, plain, rules
from support.hosts.intel_kubernetes import (
    lay_device_plugin_gpus,
    lay_device_plugin_npu,
    lay_older_gaudi,
    lay_resource_driver_gaudi,
    lay_resource_driver_gpu,
    lay_resource_driver_vfio,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")


def test_a_gpu_in_a_tree_of_the_resource_driver_is_offered(tmp_path: Path) -> None:
    lay_resource_driver_gpu(tmp_path, "0000:0f:00.0", "0x56c0", "i915", card="card0", render="renderD128")
    assert offered(tmp_path)["0000-0f-00-0-0x56c0"] == [
        "/dev/dri/by-path/pci-0000:0f:00.0-card",
        "/dev/dri/by-path/pci-0000:0f:00.0-render",
        "/dev/dri/card0",
        "/dev/dri/renderD128",
    ]


def test_a_gpu_without_a_render_node_in_a_tree_of_the_resource_driver_is_offered(tmp_path: Path) -> None:
    lay_resource_driver_gpu(tmp_path, "0000:03:00.0", "0xe211", "xe", card="card7")
    assert plain(offered(tmp_path)["card7"]) == ["/dev/dri/card7"]


def test_a_virtual_function_in_a_tree_of_the_resource_driver_is_offered(tmp_path: Path) -> None:
    lay_resource_driver_gpu(tmp_path, "0000:0f:00.0", "0x56c0", "i915", card="card0", render="renderD128")
    lay_resource_driver_gpu(tmp_path, "0000:0f:00.1", "0x56c0", "i915", card="card1", render="renderD129")
    folder = tmp_path / "sys/bus/pci/drivers/i915"
    put(folder / "0000:0f:00.0/sriov_numvfs", b"1")
    put(folder / "0000:0f:00.0/drm/card0/prelim_iov/pf/auto_provisioning", b"1")
    link(folder / "0000:0f:00.1/physfn", "../0000:0f:00.0")
    link(folder / "0000:0f:00.0/virtfn0", "../0000:0f:00.1")
    inventory = discover(tmp_path)
    assert inventory.accelerators[1].model.endswith("virtual function 0 of 0000:0f:00.0")
    assert kinds(tmp_path, inventory)["intel.com/gpu"].keys() >= {"0", "1"}


def test_a_gpu_for_virtual_machines_in_a_tree_of_the_resource_driver_is_offered(tmp_path: Path) -> None:
    lay_resource_driver_vfio(tmp_path, "0000:af:00.0", "0x56c0", "vfio3", "11")
    found = kinds(tmp_path, discover(tmp_path, vfio=True))["intel.com/gpu"]
    assert found["0000-af-00-0-0x56c0"] == ["/dev/vfio/11", "/dev/vfio/devices/vfio3", "/dev/vfio/vfio"]


def test_gpus_that_only_the_folder_of_their_driver_lists_are_found(tmp_path: Path) -> None:
    put(tmp_path / "sys/bus/pci/drivers/i915/0000:0f:00.0/device", b"0x56c0")
    lay_resource_driver_gpu(tmp_path, "0000:10:00.0", "0x56c0", "i915", card="card0", render="renderD128")
    drm = tmp_path / "sys/bus/pci/drivers/i915/0000:0f:00.0/drm"
    for name, node in (("card1", "card0"), ("renderD129", "renderD128")):
        (drm / name).mkdir(parents=True)
        (tmp_path / "dev/dri" / name).hardlink_to(tmp_path / "dev/dri" / node)
    assert plain(offered(tmp_path)["0000-0f-00-0-0x56c0"]) == ["/dev/dri/card1", "/dev/dri/renderD129"]


def test_new_and_old_gaudis_in_trees_of_the_resource_driver_are_offered(tmp_path: Path) -> None:
    lay_resource_driver_gaudi(tmp_path, "0000:0f:00.0", 1)
    lay_older_gaudi(tmp_path, "0000:19:00.0", 0)
    found = offered(tmp_path, kind="intel.com/gaudi")
    assert found["0000-0f-00-0-0x1020"] == ["/dev/accel/accel1", "/dev/accel/accel_controlD1"]
    assert found["0000-19-00-0-0x1020"] == ["/dev/accel/accel0", "/dev/accel/accel_controlD0"]


@pytest.mark.parametrize("count", [1, 8])
def test_gpus_in_trees_of_the_device_plugin_are_offered(tmp_path: Path, count: int) -> None:
    lay_device_plugin_gpus(tmp_path, count)
    inventory = discover(tmp_path)
    found = kinds(tmp_path, inventory)["intel.com/gpu"]
    assert rules(inventory) == {}
    assert len(inventory.accelerators) == count
    for index in range(count):
        assert plain(found[str(index)]) == [f"/dev/dri/card{index}", f"/dev/dri/renderD{128 + index}"]
        assert found[f"0000-00-0{index}-0-0x4905"] == found[f"card{index}"] == found[str(index)]


def test_gpus_with_invalid_addresses_in_trees_of_the_device_plugin_are_offered(tmp_path: Path) -> None:
    lay_device_plugin_gpus(tmp_path, 12, driver="xe")
    found = offered(tmp_path)
    assert plain(found["11"]) == plain(found["card11"]) == ["/dev/dri/card11", "/dev/dri/renderD139"]


def test_npus_in_trees_of_the_device_plugin_are_offered(tmp_path: Path) -> None:
    lay_device_plugin_npu(tmp_path, 0, "0x7e4c\n")
    lay_device_plugin_npu(tmp_path, 1, "0xad1d")
    found = offered(tmp_path, kind="intel.com/npu")
    assert found == {
        "0": ["/dev/accel/accel0"],
        "1": ["/dev/accel/accel1"],
        "accel0": ["/dev/accel/accel0"],
        "accel1": ["/dev/accel/accel1"],
        "all": ["/dev/accel/accel0", "/dev/accel/accel1"],
    }


def test_regular_files_in_dev_are_not_used_as_nodes(tmp_path: Path) -> None:
    lay_resource_driver_gpu(tmp_path, "0000:0f:00.0", "0x56c0", "i915", card="card0", render="renderD128")
    lay_resource_driver_gpu(tmp_path, "0000:10:00.0", "0x56c0", "i915", card="card1", render="renderD129")
    for name in ("card0", "renderD128"):
        (tmp_path / "dev/dri" / name).unlink()
        put(tmp_path / "dev/dri" / name)
    inventory = discover(tmp_path)
    assert rules(inventory)["gpu-node-missing"] == "error"
    assert kinds(tmp_path, inventory)["intel.com/gpu"].keys() == {"1", "0000-10-00-0-0x56c0", "card1", "all"}
