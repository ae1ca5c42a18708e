"""Broken file trees of hosts, file trees that change during the read, and hostile file trees."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts.driver_files import link, put
from support.hosts.intel import discover, kinds, places, plain, refusal, rules
from support.hosts.intel_tree import B60, b60, flex_170, gaudi_3, gpu, laptop, lay, make_node
from support.hosts.nvidia import empty_root, make_any_instead, make_instead
from support.law_examples import examples

from cdigen.host.root import Root
from cdigen.model.errors import HostError
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.intel.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.inventory import Inventory

real_nodes = pytest.mark.usefixtures("real_nodes")


@pytest.mark.parametrize("kind", ["dangling link", "looping link", "regular file"])
def test_a_gpu_with_a_broken_folder_link_does_not_affect_other_gpus(root: Path, kind: str) -> None:
    first, second = b60(2)
    lay(root, first, second)
    shutil.rmtree(root / first.folder)
    (root / first.folder).parent.mkdir(parents=True, exist_ok=True)
    make_instead(root / first.folder, kind)
    inventory = discover(root)
    assert set(rules(inventory).values()) <= {"warning", "error"}
    assert rules(inventory)
    assert f"0000-39-00-0-{B60}" in kinds(root, inventory)["intel.com/gpu"]


@pytest.mark.parametrize("kind", ["dangling link", "looping link", "regular file", "folder"])
def test_a_gpu_whose_drm_devices_cannot_be_listed_does_not_affect_other_gpus(root: Path, kind: str) -> None:
    first, second = b60(2)
    lay(root, first, second)
    shutil.rmtree(root / first.folder / "drm")
    make_instead(root / first.folder / "drm", kind)
    inventory = discover(root)
    assert rules(inventory)["gpu-without-drm"] == "error"
    assert plain(kinds(root, inventory)["intel.com/gpu"]["1"]) == [
        "/dev/dri/card2",
        "/dev/dri/renderD130",
    ]


@pytest.mark.parametrize("text", ["", "0x", "56c0", "0x56c", "0xzzzz", "0x56c0 0x56c0", "²", "\0"])
def test_a_gpu_with_an_invalid_pci_device_number_is_offered_by_its_other_names(root: Path, text: str) -> None:
    (first,) = b60(1)
    lay(root, first)
    put(root / first.folder / "device", text.encode())
    inventory = discover(root)
    assert rules(inventory) == {"device-id-unreadable": "warning"}
    assert list(kinds(root, inventory)["intel.com/gpu"]) == ["0", "card1", "all"]


def test_a_gpu_without_a_pci_device_number_is_offered_by_its_other_names(root: Path) -> None:
    (first,) = b60(1)
    lay(root, first)
    (root / first.folder / "device").unlink()
    (finding,) = discover(root).findings
    assert (finding.rule, finding.severity) == ("device-id-unreadable", "warning")
    assert "/device cannot be read: No such file or directory; " in finding.message


@pytest.mark.parametrize("text", [b"", b"226", b"226:-1", b"\xff:\xff", b"226:99999999999"])
def test_invalid_device_numbers_in_sysfs_are_not_compared(root: Path, text: bytes) -> None:
    (first,) = b60(1)
    lay(root, first)
    put(root / first.folder / "drm/renderD129/dev", text)
    inventory = discover(root)
    assert rules(inventory) == {"node-numbers-unknown": "warning"}
    assert "0" in kinds(root, inventory)["intel.com/gpu"]


def test_the_first_card_of_a_host_has_the_minor_zero(root: Path) -> None:
    inventory = discover(root, gpu(0, "0000:03:00.0", B60, "xe"))
    assert (inventory.accelerators[0].minor, rules(inventory)) == (0, {})


@pytest.mark.parametrize(
    "kind", ["regular file", "folder", "block device", "FIFO", "dangling link", "looping link"]
)
@pytest.mark.parametrize(
    ("name", "rule", "served"),
    [("renderD129", "gpu-node-missing", False), ("card1", "drm-node-missing", True)],
)
def test_a_node_that_is_not_a_character_device_is_a_finding_of_its_gpu(
    root: Path, kind: str, name: str, rule: str, *, served: bool
) -> None:
    lay(root, *b60(2))
    make_any_instead(root / "dev/dri" / name, kind)
    inventory = discover(root)
    assert rules(inventory).keys() == {rule}
    found = kinds(root, inventory)["intel.com/gpu"]
    assert ("0" in found, "1" in found) == (served, True)


def test_a_node_that_two_gpus_claim_belongs_to_the_first_gpu(root: Path) -> None:
    first, second = b60(2)
    lay(root, first, second)
    shutil.rmtree(root / second.folder / "drm")
    shutil.copytree(root / first.folder / "drm", root / second.folder / "drm", symlinks=True)
    inventory = discover(root)
    assert [each.usable for each in inventory.accelerators] == [True, False]
    assert "node of another device" in inventory.accelerators[1].problem


def test_a_pci_address_that_is_listed_twice_is_one_device(root: Path) -> None:
    (first,) = b60(1)
    lay(root, first)
    link(root / "sys/bus/pci/drivers/xe/00000000:18:00.0", f"../../../../{first.folder[4:]}")
    link(root / "sys/bus/pci/drivers/i915" / first.address, f"../../../../{first.folder[4:]}")
    inventory = discover(root)
    assert len(inventory.accelerators) == 1
    assert rules(inventory) == {"device-repeated": "warning"}


@pytest.mark.parametrize("target", ["physfn", "/proc/self", "../../../../../../../../etc"])
def test_an_invalid_physical_function_is_a_finding(root: Path, target: str) -> None:
    (first,) = b60(1)
    lay(root, first)
    link(root / first.folder / "physfn", target)
    inventory = discover(root)
    assert rules(inventory) == {"sysfs-link-broken": "warning"}
    assert "0" in kinds(root, inventory)["intel.com/gpu"]


def test_misleading_links_in_by_path_add_no_node_of_another_device(root: Path) -> None:
    lay(root, *b60(1))
    folder = root / "dev/dri/by-path"
    for name, target in (
        ("pci-0000:18:00.0-usb", "../card1"),
        ("pci-0000:99:00.0-render", "../card1"),
        ("pci-0000:98:00.0-render", "../../../../../../../dev/null"),
        ("pci-loop-card", "pci-loop-card"),
        ("x\ny-card", "../card1"),
    ):
        link(folder / name, target)
    assert kinds(root, discover(root))["intel.com/gpu"]["0"] == [
        "/dev/dri/by-path/pci-0000:18:00.0-card",
        "/dev/dri/by-path/pci-0000:18:00.0-render",
        "/dev/dri/card1",
        "/dev/dri/renderD129",
    ]


def test_two_gaudis_that_list_the_same_node_have_different_numbers(root: Path) -> None:
    first, second = gaudi_3(2)
    lay(root, first, second)
    accel = root / second.folder / "accel"
    (accel / "accel1").rename(accel / "accel0")
    inventory = discover(root)
    assert len({each.index for each in inventory.accelerators}) == 2
    assert [each.usable for each in inventory.accelerators].count(True) == 1


def test_a_host_whose_gpus_are_all_broken_reports_the_first_problem(tmp_path: Path) -> None:
    lay(tmp_path, *b60(2), nodes=False)
    error = refusal(tmp_path)
    assert error.message.startswith("none of Intel's 2 devices can be used: GPU 0 (0000:18:00.0)")


class _Vanishing(Root):
    """A root that removes the folder ``victim`` at the call number ``at`` of the method ``names``."""

    def __init__(self, outer: Path, victim: Path, at: int) -> None:
        super().__init__(str(outer))
        self._victim = victim
        self._left = at

    def names(self, path: str) -> list[str]:
        self._left -= 1
        if self._left == 0:
            shutil.rmtree(self._victim)
        return super().names(path)


def test_a_gpu_that_disappears_during_the_read_leaves_other_gpus_usable(root: Path) -> None:
    victim = next(device for device in flex_170(2) if device.address == "0000:4d:00.1")
    lay(root, *flex_170(2))
    for at in range(1, 80, 3):
        lay(root, victim)
        host = _Vanishing(root, root / victim.folder, at)
        inventory = VENDOR.discover(DiscoveryContext(host=host, driver=host, dev=host))
        left = {each.address for each in inventory.accelerators if each.usable} - {victim.address}
        assert left == {device.address for device in flex_170(2)} - {victim.address}


FOLDERS = st.sampled_from(
    [
        *("bus/pci/drivers/xe", "bus/pci/drivers/i915", "bus/pci/drivers/habanalabs"),
        *("bus/pci/drivers/intel_vpu", "bus/pci/drivers/vfio-pci"),
        *("bus/pci/devices", "class/drm", "class/accel"),
    ]
)
ENTRIES = st.sampled_from(
    [
        *("0000:03:00.0", "0000:03:00.1", "00000000:03:00.0", "bind"),
        *("card0", "accel0", "accel_controlD0", "\udcff"),
    ]
)
BELOW = st.sampled_from(
    [
        *("", "device", "vendor", "class", "driver", "physfn", "virtfn0"),
        *("drm", "drm/card0", "drm/card0/dev", "drm/renderD128", "drm/renderD128/dev", "drm/card²"),
        *("accel", "accel/accel0", "accel/accel0/dev"),
        *("infiniband_verbs/uverbs0", "iommu_group", "vfio-dev/vfio0", "device/vendor", "device/drm/card0"),
        *("device/pci_addr", "survivability_mode", "sriov_numvfs"),
    ]
)
CONTENTS = st.sampled_from(
    [
        *(b"", b"0x8086\n", b"0x1da3\n", b"0x030000\n", b"0x120000\n", b"0x56c0\n"),
        *(b"226:0\n", b"\xff\0", b"-1", b"0x"),
    ]
)
TARGETS = st.sampled_from(
    [
        *("loop", ".", "..", "/", "../0000:03:00.0", "../0000:03:00.1", "../../../bus/pci/drivers/xe"),
        *("/nowhere/11", "/nowhere/\udcff\n"),
    ]
)
MAKINGS = st.lists(
    st.tuples(
        FOLDERS, ENTRIES, BELOW, st.sampled_from(["file", "folder", "link", "fifo"]), CONTENTS, TARGETS
    ),
    max_size=24,
)


@examples(4)
@given(MAKINGS, st.booleans())
def test_any_file_tree_causes_findings_or_one_error(
    makings: list[tuple[str, str, str, str, bytes, str]],
    vfio: bool,  # noqa: FBT001 - hypothesis passes it by position
) -> None:
    with empty_root() as root:
        for folder, entry, below, kind, content, target in makings:
            _make(root, f"sys/{folder}/{entry}/{below}", kind, content, target)
        for name in ("dri/card0", "dri/renderD128", "accel/accel0", "vfio/11", "vfio/vfio"):
            _make_node(root / "dev" / name)
        where = places(root, vfio=vfio)
        found = _found(where)
        if isinstance(found, HostError):
            assert found.message.isprintable()
            assert found.hint
        else:
            assert all(finding.message.isprintable() for finding in found.findings)
            kinds(root, found)
        VENDOR.watches(where)
        VENDOR.missing_nodes(where)
        VENDOR.wrong_nodes(where)
        VENDOR.diagnostics(where, None)


def _found(where: DiscoveryContext) -> Inventory | HostError:
    try:
        return VENDOR.discover(where)
    except HostError as error:
        return error


def _make_node(path: Path) -> None:
    """Create a node if this process runs as root, else a regular file."""
    if os.geteuid() == 0:
        make_node(path, 226, 0)
    else:
        put(path)


def _make(root: Path, below: str, kind: str, content: bytes, target: str) -> None:
    """Create a file of the type KIND at ROOT/BELOW, unless the path exists or a link leads out of ROOT."""
    path = root / below
    if not os.path.realpath(path.parent).startswith(f"{os.path.realpath(root)}/") or os.path.lexists(path):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            path.write_bytes(content)
        elif kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(target)
        else:
            os.mkfifo(path)
    except OSError:
        return


def test_a_correct_laptop_has_no_finding(root: Path) -> None:
    assert rules(discover(root, *laptop())) == {}
