"""Acme's NPUs are found and offered, and one's trouble costs no other; `python -m pytest` runs this.

The hosts are folders: what the kernel would show of NPUs is laid below them, with real device nodes, which
only root can make.
"""
# ruff: noqa: D103, INP001, S101 - a test: its name is its sentence, asserting is its work, and it is in no package

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import pytest
from cdigen_acme import VENDOR

from cdigen.host.root import Root
from cdigen.model.errors import HostError
from cdigen.model.profile import DEFAULT
from cdigen.pipeline import generate
from cdigen.value import replace
from cdigen.vendors import registry
from cdigen.vendors.base import DiscoveryContext

if TYPE_CHECKING:
    from pathlib import Path

MAJOR, RENDER = 261, 993
ADDRESSES = ("0000:41:00.0", "0000:c1:00.0")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return a host with two NPUs."""
    for number, address in enumerate(ADDRESSES):
        file = tmp_path / f"sys/bus/pci/drivers/acme_npu/{address}/accel/accel{number}/dev"
        file.parent.mkdir(parents=True)
        file.write_text(f"{MAJOR}:{number}\n")
        make_node(tmp_path / f"dev/accel/accel{number}", number)
    (tmp_path / "sys/module/acme_npu").mkdir(parents=True)
    return tmp_path


def make_node(path: Path, minor: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | 0o660, os.makedev(MAJOR, minor))
    except PermissionError:
        pytest.skip("only root can make device nodes")
    os.chown(path, 0, RENDER)
    path.chmod(0o660)


def places(root: Path) -> DiscoveryContext:
    host = Root(str(root))
    return DiscoveryContext(host=host, driver=host, dev=host)


def offered(root: Path) -> dict[str, Any]:
    """Return the devices of the spec, which must break no rule and hold on the host."""
    return {device["name"]: device["containerEdits"] for device in document(root)["devices"]}


def document(root: Path, **profile: Any) -> dict[str, Any]:
    """Return the spec for a profile with these fields."""
    options = generate.GenerateOptions(profiles=(replace(DEFAULT, **profile),))
    inventories = {"acme": VENDOR.discover(places(root))}
    products, broken = generate.generate_specs(inventories, host=Root(str(root)), options=options)
    assert broken == {}
    (product,) = products
    assert product.kind == "acme.example/npu"
    return product.document


def test_the_package_adds_the_vendor() -> None:
    assert registry.load("acme").CDI_VENDOR == "acme.example"
    assert "acme" in registry.NAMES


def test_each_npu_is_offered_by_its_number_and_its_address(host: Path) -> None:
    devices = offered(host)
    assert devices.keys() == {"0", "1", *ADDRESSES, "npu0", "npu1", "all"}
    assert devices["1"] == devices[ADDRESSES[1]]
    (node,) = devices["1"]["deviceNodes"]
    assert node["path"] == "/dev/accel/accel1"


def test_each_device_says_which_npus_are_visible_and_all_says_it_once(host: Path) -> None:
    devices = offered(host)
    assert devices["npu1"]["env"] == ["ACME_VISIBLE_DEVICES=1"]
    assert devices["all"]["env"] == ["ACME_VISIBLE_DEVICES=0,1"]
    assert len(devices["all"]["deviceNodes"]) == 2


def test_a_profile_names_the_npus_as_acme_does(host: Path) -> None:
    names = [device["name"] for device in document(host, names=("npu",))["devices"]]
    assert names == ["npu0", "npu1", "all"]


def test_the_library_is_mounted_where_the_host_has_it(host: Path) -> None:
    assert "containerEdits" not in document(host)
    library = host / "opt/acme/lib/libacme_npu.so.1"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\x7fELF")
    mounts = document(host)["containerEdits"]["mounts"]
    assert [(mount["hostPath"], mount["containerPath"]) for mount in mounts] == [
        ("/opt/acme/lib/libacme_npu.so.1", "/opt/acme/lib64/libacme_npu.so.1")
    ]


def test_a_profile_says_how_the_library_gets_there(host: Path) -> None:
    library = host / "opt/acme/lib/libacme_npu.so.1"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\x7fELF")
    assert "hooks" not in document(host, hook="none")["containerEdits"]
    inventory = VENDOR.discover(places(host))
    (draft,) = VENDOR.edits(inventory, (replace(DEFAULT, layout="files", hook="none"),))
    assert (draft.profile.layout, draft.profile.hook) == ("files", "none")


def test_a_container_gets_the_group_that_may_open_the_node(host: Path) -> None:
    (draft,) = VENDOR.edits(VENDOR.discover(places(host)), (DEFAULT,))
    assert {device.edits.additional_gids for device in draft.devices} == {(RENDER,)}


def test_an_npu_without_its_node_costs_no_other(host: Path) -> None:
    (host / "dev/accel/accel0").unlink()
    inventory = VENDOR.discover(places(host))
    assert [npu.usable for npu in inventory.accelerators] == [False, True]
    assert [finding.path for finding in inventory.findings] == [ADDRESSES[0]]
    assert [node.path for node in VENDOR.missing_nodes(places(host))] == ["/dev/accel/accel0"]
    assert "0" not in offered(host)


def test_a_node_of_another_device_is_not_given_away(host: Path) -> None:
    (host / "dev/accel/accel0").unlink()
    make_node(host / "dev/accel/accel0", 7)
    assert "0" not in offered(host)
    assert [node.minor for node in VENDOR.wrong_nodes(places(host))] == [0]


def test_a_node_that_two_npus_list_is_given_to_one(host: Path) -> None:
    folder = host / f"sys/bus/pci/drivers/acme_npu/{ADDRESSES[1]}/accel"
    (folder / "accel1").rename(folder / "accel0")
    (folder / "accel0/dev").write_text(f"{MAJOR}:0\n")
    assert offered(host).keys() == {"0", ADDRESSES[0], "npu0", "all"}


@pytest.mark.parametrize(
    ("path", "kind"),
    [("sys/module/acme_npu", "driver-not-loaded"), ("sys/bus/pci/drivers/acme_npu", "no-gpu")],
)
def test_a_host_without_module_or_npus_says_so(host: Path, path: str, kind: str) -> None:
    (host / path).rename(host / "gone")
    with pytest.raises(HostError) as caught:
        VENDOR.discover(places(host))
    assert caught.value.kind == kind
