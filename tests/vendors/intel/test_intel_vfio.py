"""GPUs for virtual machines are offered only with the option vfio, and only by address."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.intel import discover, kinds, rules
from support.hosts.intel_tree import FLEX_170, Device, flex_170, lay

from cdigen.model.errors import HostError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")

ALONE = Device(address="0000:4d:00.0", device_id=FLEX_170, driver="vfio-pci", group=70)


def test_without_the_option_vfio_gpus_are_reported_and_not_offered(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *flex_170(4, vfio=(1, 2)))
    (finding,) = inventory.findings
    assert finding.message == "0000:4d:00.2, 0000:4d:00.3: bound to vfio-pci, and get no CDI device"
    assert "vfio: true" in finding.hint
    assert not any("vfio" in node.path for gpu in inventory.accelerators for node in gpu.nodes)


def test_with_the_option_vfio_gpus_are_offered_only_by_address(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *flex_170(4, vfio=(1, 2)), vfio=True)
    found = kinds(tmp_path, inventory)["intel.com/gpu"]
    assert rules(inventory) == {}
    assert found["0000-4d-00-2-0x56c0"] == [
        "/dev/iommu",
        "/dev/vfio/71",
        "/dev/vfio/devices/vfio1",
        "/dev/vfio/vfio",
    ]
    assert [name for name, nodes in found.items() if any("vfio" in path for path in nodes)] == [
        "0000-4d-00-2-0x56c0",
        "0000-4d-00-3-0x56c0",
    ]


def test_the_option_vfio_does_not_change_the_names_of_other_gpus(tmp_path: Path) -> None:
    lay(tmp_path, *flex_170(4, vfio=(1, 2)))
    without, with_ = (
        kinds(tmp_path, discover(tmp_path, vfio=vfio))["intel.com/gpu"] for vfio in (False, True)
    )
    assert without.items() <= with_.items()


def test_a_host_with_only_vfio_gpus_offers_them_with_the_option(tmp_path: Path) -> None:
    lay(tmp_path, ALONE)
    with pytest.raises(HostError, match="no device has a driver of Intel"):
        discover(tmp_path)
    found = kinds(tmp_path, discover(tmp_path, vfio=True))["intel.com/gpu"]
    # There is no device `all`, because programs cannot use these GPUs directly.
    assert found == {"0000-4d-00-0-0x56c0": ["/dev/vfio/70", "/dev/vfio/vfio"]}


def test_a_vfio_gpu_without_an_iommu_group_is_offered_by_its_own_node(tmp_path: Path) -> None:
    lay(tmp_path, Device(address="0000:4d:00.0", device_id=FLEX_170, driver="xe-vfio-pci", vfio=3))
    found = kinds(tmp_path, discover(tmp_path, vfio=True))["intel.com/gpu"]
    assert found["0000-4d-00-0-0x56c0"] == ["/dev/iommu", "/dev/vfio/devices/vfio3"]


@pytest.mark.parametrize("missing", ["dev/vfio/70", "dev/vfio/vfio"])
def test_a_vfio_gpu_without_nodes_does_not_affect_other_gpus(tmp_path: Path, missing: str) -> None:
    lay(tmp_path, *flex_170(0), ALONE)
    other = Device(address="0000:5d:00.0", device_id=FLEX_170, driver="vfio-pci", group=70)
    lay(tmp_path, other)
    (tmp_path / missing).unlink()
    inventory = discover(tmp_path, vfio=True)
    assert rules(inventory) == {"vfio-node-missing": "error"}
    assert "0" in kinds(tmp_path, inventory)["intel.com/gpu"]
