"""GPUs of i915 and xe: the devices, their order, their nodes and names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.driver_files import put
from support.hosts.intel import discover, kinds, offered, places, plain, refusal, rules
from support.hosts.intel_tree import (
    B60,
    FLEX_170,
    IGPU,
    RELEASE,
    RENDER,
    VIDEO,
    Device,
    b60,
    flex_170,
    gaudi_3,
    gpu,
    laptop,
    lay,
    max_1550,
)

from cdigen.vendors.intel.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")


def test_a_gpu_is_named_by_index_by_address_with_device_number_and_by_card(tmp_path: Path) -> None:
    assert list(offered(tmp_path, gpu(1, "0000:03:00.0", FLEX_170, "i915"))) == [
        "0",
        "0000-03-00-0-0x56c0",
        "card1",
        "all",
    ]


def test_a_gpu_has_its_card_its_render_node_and_udevs_names_of_both_nodes(tmp_path: Path) -> None:
    found = offered(tmp_path, gpu(1, "0000:03:00.0", FLEX_170, "i915"))
    for nodes in found.values():
        assert nodes == [
            "/dev/dri/by-path/pci-0000:03:00.0-card",
            "/dev/dri/by-path/pci-0000:03:00.0-render",
            "/dev/dri/card1",
            "/dev/dri/renderD129",
        ]


def test_no_node_of_a_spec_is_a_link_on_the_host(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *flex_170())
    for accelerator in inventory.accelerators:
        for node in accelerator.nodes:
            assert not (tmp_path / node.host_path.lstrip("/")).is_symlink()


def test_a_gpu_without_udevs_names_has_only_the_kernels_nodes(tmp_path: Path) -> None:
    lay(tmp_path, gpu(0, IGPU, FLEX_170, "i915"))
    for link in (tmp_path / "dev/dri/by-path").iterdir():
        link.unlink()
    assert offered(tmp_path)["0"] == ["/dev/dri/card0", "/dev/dri/renderD128"]


def test_gpus_are_numbered_in_the_order_of_their_addresses(tmp_path: Path) -> None:
    found = offered(tmp_path, *max_1550())
    cards = [plain(found[str(index)])[0] for index in range(8)]
    assert cards == [f"/dev/dri/card{7 - index}" for index in range(8)]


def test_gpus_of_both_drivers_are_numbered_together(tmp_path: Path) -> None:
    found = offered(tmp_path, gpu(1, "0000:03:00.0", B60, "xe"), gpu(0, IGPU, "0xa780", "i915"))
    assert [plain(found[name])[0] for name in ("0", "1")] == ["/dev/dri/card0", "/dev/dri/card1"]


def test_an_integrated_gpu_is_offered_together_with_a_discrete_gpu(tmp_path: Path) -> None:
    assert "0000-00-02-0-0xa780" in offered(tmp_path, *flex_170(0))


def test_a_gpu_without_a_render_node_is_offered_by_its_card_node(tmp_path: Path) -> None:
    shown = Device(address=IGPU, device_id=FLEX_170, driver="i915", card=0)
    assert plain(offered(tmp_path, shown)["0"]) == ["/dev/dri/card0"]


def test_a_gpu_that_only_renders_is_offered_without_a_card_name(tmp_path: Path) -> None:
    only = Device(address=IGPU, device_id=FLEX_170, driver="xe", render=128)
    assert list(offered(tmp_path, only)) == ["0", "0000-00-02-0-0x56c0", "all"]


def test_virtual_functions_and_their_physical_function_are_separate_gpus(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *flex_170(2))
    assert [gpu.model for gpu in inventory.accelerators] == [
        "Intel GPU 0xa780",
        "Data Center GPU Flex 170",
        "Data Center GPU Flex 170, virtual function 0 of 0000:4d:00.0",
        "Data Center GPU Flex 170, virtual function 1 of 0000:4d:00.0",
    ]
    assert {"1", "2", "3"} <= kinds(tmp_path, inventory)["intel.com/gpu"].keys()


def test_a_virtual_function_that_its_physical_function_does_not_list_is_found(tmp_path: Path) -> None:
    first = gpu(0, "0000:4d:00.0", FLEX_170, "i915")
    second = gpu(1, "0000:4d:00.1", FLEX_170, "i915", parent="0000:4d:00.0")
    whole, virtual = discover(tmp_path, first, second).accelerators
    assert "virtual function" not in whole.model
    assert "virtual function" in virtual.model


def test_thirty_one_virtual_functions_are_offered_by_their_addresses(tmp_path: Path) -> None:
    found = offered(tmp_path, *flex_170(31))
    assert plain(found["0000-4d-03-7-0x56c0"]) == ["/dev/dri/card32", "/dev/dri/renderD160"]


def test_a_display_adapter_of_another_vendor_is_ignored(tmp_path: Path) -> None:
    other = gpu(0, "0000:02:00.0", "0x2000", "ast", vendor="0x1a03")
    inventory = discover(tmp_path, other, *b60(1))
    assert [gpu.address for gpu in inventory.accelerators] == ["0000:18:00.0"]
    assert rules(inventory) == {}


def test_a_driver_without_a_version_has_the_version_of_the_kernel(tmp_path: Path) -> None:
    driver = discover(tmp_path, *laptop()).driver
    assert (driver.version, driver.flavour, driver.architecture) == (RELEASE, "in-tree", "x86_64")


def test_a_driver_of_dkms_has_the_version_in_sysfs(tmp_path: Path) -> None:
    put(tmp_path / "sys/module/i915/version", b"1.25.2.26.250224.31\n")
    driver = discover(tmp_path, *flex_170(0)).driver
    assert (driver.version, driver.flavour) == ("1.25.2.26.250224.31", "dkms")


def test_a_gpu_without_a_driver_is_reported_with_a_hint_about_force_probe(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *b60(1), Device(address="0000:a0:00.0", device_id="0x674c"))
    (finding,) = inventory.findings
    assert (finding.rule, finding.severity) == ("device-not-bound", "info")
    assert "xe.force_probe=674c" in finding.hint
    assert finding.path == "0000:a0:00.0"


def test_the_second_function_of_an_old_gpu_has_no_finding(tmp_path: Path) -> None:
    second = Device(address="0000:00:02.1", device_id="0x2a43")
    assert rules(discover(tmp_path, gpu(0, IGPU, "0x2a42", "i915"), second)) == {}


def test_a_host_whose_gpus_have_no_driver_offers_nothing(tmp_path: Path) -> None:
    lay(tmp_path, Device(address="0000:a0:00.0", device_id="0x674c"), nodes=False)
    error = refusal(tmp_path)
    assert error.kind == "driver-not-loaded"
    assert "force_probe" in error.hint
    findings = VENDOR.diagnostics(places(tmp_path), None)
    assert [finding.path for finding in findings] == ["0000:a0:00.0"]


def test_the_error_for_an_empty_host_lists_the_supported_drivers(tmp_path: Path) -> None:
    error = refusal(tmp_path)
    assert error.kind == "driver-not-loaded"
    assert "i915" in error.message


def test_a_gpu_with_broken_firmware_keeps_its_index_and_gets_no_device(tmp_path: Path) -> None:
    first, second = b60(2)
    lay(tmp_path, first, second)
    put(tmp_path / first.folder / "survivability_mode", b"Capability Info: 0x1\n")
    inventory = discover(tmp_path)
    assert rules(inventory) == {"gpu-in-survivability-mode": "error"}
    assert "0" not in kinds(tmp_path, inventory)["intel.com/gpu"]
    assert "1" in kinds(tmp_path, inventory)["intel.com/gpu"]


def test_missing_nodes_are_recorded_with_their_numbers(tmp_path: Path) -> None:
    lay(tmp_path, *b60(1), nodes=False)
    error = refusal(tmp_path)
    assert (error.kind, error.driver) == ("no-nodes", RELEASE)
    missing = VENDOR.missing_nodes(places(tmp_path))
    assert [(node.path, node.major, node.minor) for node in missing] == [
        ("/dev/dri/card1", 226, 1),
        ("/dev/dri/renderD129", 226, 129),
    ]


def test_nodes_are_created_with_the_groups_that_udev_sets(tmp_path: Path) -> None:
    lay(tmp_path, *laptop(), nodes=False)
    groups = {node.path: (node.gid, node.mode) for node in VENDOR.missing_nodes(places(tmp_path))}
    assert groups["/dev/dri/card0"] == (VIDEO, 0o660)
    assert {groups[path] for path in ("/dev/dri/renderD128", "/dev/accel/accel0")} == {(RENDER, 0o660)}


def test_a_gaudis_control_node_is_created_for_the_group_render(tmp_path: Path) -> None:
    lay(tmp_path, *gaudi_3(1))
    (tmp_path / "dev/accel/accel_controlD0").unlink()
    (node,) = VENDOR.missing_nodes(places(tmp_path))
    assert (node.path, node.gid, node.mode) == ("/dev/accel/accel_controlD0", RENDER, 0o660)


def test_nodes_of_other_devices_are_recorded_as_wrong(tmp_path: Path) -> None:
    lay(tmp_path, *b60(2))
    put(tmp_path / b60(2)[0].folder / "drm/renderD129/dev", b"226:200\n")
    inventory = discover(tmp_path)
    assert rules(inventory) == {"gpu-node-missing": "error"}
    assert [(node.path, node.minor) for node in VENDOR.wrong_nodes(places(tmp_path))] == [
        ("/dev/dri/renderD129", 200)
    ]


def test_a_gpu_of_xe_has_the_memory_of_all_its_tiles(tmp_path: Path) -> None:
    gpus = [gpu(number, f"0000:0{3 + number}:00.0", B60, "xe") for number in range(2)]
    lay(tmp_path, *gpus)
    for device, sizes in zip(gpus, (("12884901888",) * 2, ("12884901888", "x")), strict=True):
        for tile, size in enumerate(sizes):
            put(tmp_path / device.folder / f"tile{tile}/physical_vram_size_bytes", f"{size}\n".encode())
    assert [each.memory_mib for each in discover(tmp_path).accelerators] == [24576, None]
