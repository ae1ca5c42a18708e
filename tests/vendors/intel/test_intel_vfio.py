"""GPUs for virtual machines: only by choice, only by name."""

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


def test_without_the_option_they_are_told_and_not_offered(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *flex_170(4, vfio=(1, 2)))
    (finding,) = inventory.findings
    assert finding.message == "0000:4d:00.2, 0000:4d:00.3: bound to vfio-pci, and get no device"
    assert "vfio: true" in finding.hint
    assert not any("vfio" in node.path for gpu in inventory.accelerators for node in gpu.nodes)


def test_with_the_option_they_are_offered_by_address_alone(tmp_path: Path) -> None:
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


def test_the_option_moves_no_name_of_the_others(tmp_path: Path) -> None:
    lay(tmp_path, *flex_170(4, vfio=(1, 2)))
    without, with_ = (
        kinds(tmp_path, discover(tmp_path, vfio=vfio))["intel.com/gpu"] for vfio in (False, True)
    )
    assert without.items() <= with_.items()


def test_a_host_with_such_alone_offers_them_by_choice(tmp_path: Path) -> None:
    lay(tmp_path, ALONE)
    with pytest.raises(HostError, match="none of Intel's drivers"):
        discover(tmp_path)
    found = kinds(tmp_path, discover(tmp_path, vfio=True))["intel.com/gpu"]
    # Whoever asks for all wants what programs can use.
    assert found == {"0000-4d-00-0-0x56c0": ["/dev/vfio/70", "/dev/vfio/vfio"]}


def test_a_kernel_without_groups_offers_the_devices_own_node(tmp_path: Path) -> None:
    lay(tmp_path, Device(address="0000:4d:00.0", device_id=FLEX_170, driver="xe-vfio-pci", vfio=3))
    found = kinds(tmp_path, discover(tmp_path, vfio=True))["intel.com/gpu"]
    assert found["0000-4d-00-0-0x56c0"] == ["/dev/iommu", "/dev/vfio/devices/vfio3"]


@pytest.mark.parametrize("missing", ["dev/vfio/70", "dev/vfio/vfio"])
def test_one_without_its_nodes_costs_no_other(tmp_path: Path, missing: str) -> None:
    lay(tmp_path, *flex_170(0), ALONE)
    other = Device(address="0000:5d:00.0", device_id=FLEX_170, driver="vfio-pci", group=70)
    lay(tmp_path, other)
    (tmp_path / missing).unlink()
    inventory = discover(tmp_path, vfio=True)
    assert rules(inventory) == {"vfio-node-missing": "error"}
    assert "0" in kinds(tmp_path, inventory)["intel.com/gpu"]
