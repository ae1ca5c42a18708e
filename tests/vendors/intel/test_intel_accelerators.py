"""NPUs and Gaudis have separate CDI kinds. The tests use real device nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.driver_files import put
from support.hosts.intel import discover, kinds, offered, refusal, rules
from support.hosts.intel_tree import Device, gaudi, gaudi_3, laptop, lay, lay_nodes, npu

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")


def test_an_npu_has_only_its_accelerator_node(tmp_path: Path) -> None:
    assert offered(tmp_path, npu(), kind="intel.com/npu") == {
        name: ["/dev/accel/accel0"] for name in ("0", "0000-00-0b-0-0x643e", "accel0", "all")
    }


def test_a_gpu_and_an_npu_of_one_processor_have_separate_kinds(tmp_path: Path) -> None:
    found = kinds(tmp_path, discover(tmp_path, *laptop()))
    assert found.keys() == {"intel.com/gpu", "intel.com/npu"}
    assert found["intel.com/gpu"].keys() == {"0", "0000-00-02-0-0x64a0", "card0", "all"}


def test_a_host_with_only_an_npu_offers_no_gpus(tmp_path: Path) -> None:
    assert kinds(tmp_path, discover(tmp_path, npu())).keys() == {"intel.com/npu"}


def test_a_gaudi_has_its_control_node_and_its_network_nodes(tmp_path: Path) -> None:
    assert offered(tmp_path, gaudi(2, "0000:33:00.0"), kind="intel.com/gaudi")["2"] == [
        "/dev/accel/accel2",
        "/dev/accel/accel_controlD2",
        "/dev/infiniband/uverbs2",
    ]


def test_a_gaudi_without_network_nodes_is_offered(tmp_path: Path) -> None:
    inventory = discover(tmp_path, gaudi(0, "0000:33:00.0", uverbs=False))
    assert rules(inventory) == {}
    assert kinds(tmp_path, inventory)["intel.com/gaudi"]["0"] == [
        "/dev/accel/accel0",
        "/dev/accel/accel_controlD0",
    ]


def test_gaudis_have_the_numbers_of_their_accelerator_nodes(tmp_path: Path) -> None:
    found = offered(tmp_path, *gaudi_3(), kind="intel.com/gaudi")
    for index, device in enumerate(gaudi_3()):
        name = f"{device.address.replace(':', '-').replace('.', '-')}-0x1060"
        assert found[str(index)] == found[name] == found[f"accel{index}"]


def test_a_missing_gaudi_does_not_change_the_numbers_of_other_gaudis(tmp_path: Path) -> None:
    _, second, _, fourth = gaudi_3(4)
    assert offered(tmp_path, second, fourth, kind="intel.com/gaudi").keys() >= {"1", "3"}


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("dev/accel/accel_controlD0", "gaudi-control-node-unusable"),
        ("dev/infiniband/uverbs0", "gaudi-network-node-unusable"),
    ],
)
def test_a_gaudi_is_offered_without_a_node_that_is_a_regular_file(
    tmp_path: Path, path: str, rule: str
) -> None:
    lay(tmp_path, gaudi(0, "0000:33:00.0"))
    (tmp_path / path).unlink()
    put(tmp_path / path)
    inventory = discover(tmp_path)
    assert rules(inventory) == {rule: "warning"}
    assert f"/{path}" not in kinds(tmp_path, inventory)["intel.com/gaudi"]["0"]


def test_an_accelerator_whose_node_is_missing_does_not_affect_other_accelerators(tmp_path: Path) -> None:
    first, second = gaudi_3(2)
    lay(tmp_path, first, nodes=False)
    inventory = discover(tmp_path, second)
    assert rules(inventory) == {"accel-node-missing": "error"}
    assert "1" in kinds(tmp_path, inventory)["intel.com/gaudi"]


def test_an_accelerator_without_a_node_in_sysfs_gets_no_device(tmp_path: Path) -> None:
    lay(tmp_path, npu(), nodes=False)
    (tmp_path / npu().folder / "accel/accel0/dev").unlink()
    (tmp_path / npu().folder / "accel/accel0/device").unlink()
    (tmp_path / npu().folder / "accel/accel0").rmdir()
    (tmp_path / "sys/class/accel/accel0").unlink()
    lay_nodes(tmp_path, npu())
    error = refusal(tmp_path)
    assert (error.kind, "no device node" in error.message) == ("no-usable-device", True)


def test_an_npu_without_a_driver_is_reported(tmp_path: Path) -> None:
    unbound = Device(address="0000:00:0b.0", device_id="0x643e", pci_class="0x120000")
    inventory = discover(tmp_path, *laptop()[:1], unbound)
    assert rules(inventory) == {"device-not-bound": "info"}
