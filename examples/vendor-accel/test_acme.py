"""Tests of Acme's vendor: discovery, spec, faults of NPUs, optional members. `python -m pytest` runs them.

The hosts are folders with the kernel's files about NPUs, and with real device nodes. Only root can create
device nodes.
"""
# ruff: noqa: D103, INP001, S101 - tests have names instead of docstrings, use assert, and are not in a package

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import pytest
from cdigen_acme import VENDOR

from cdigen.config import KubeletConfig
from cdigen.host.root import Root
from cdigen.kubelet.labels.node_labels import node_labels
from cdigen.kubelet.resources.resource_set import advertise
from cdigen.model.errors import HostError
from cdigen.model.health import LogRecord, Recovery, Symptom
from cdigen.model.profile import DEFAULT
from cdigen.pipeline import generate
from cdigen.pipeline.driver.links import refresh_links
from cdigen.topology.levels import relation
from cdigen.value import replace
from cdigen.vendors import registry
from cdigen.vendors.context import DiscoveryContext

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.kubelet.resources.resource_set import ResourceSet
    from cdigen.vendors.health import VendorHealth

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
        pytest.skip("only root can create device nodes")
    os.chown(path, 0, RENDER)
    path.chmod(0o660)


def places(root: Path) -> DiscoveryContext:
    host = Root(str(root))
    return DiscoveryContext(host=host, driver=host, dev=host)


def offered(root: Path) -> dict[str, Any]:
    """Return the edits of the spec's devices by name. The spec must be valid on the host."""
    return {device["name"]: device["containerEdits"] for device in document(root)["devices"]}


def document(root: Path, **profile: Any) -> dict[str, Any]:
    """Return the spec for the default profile with the fields in PROFILE."""
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


def test_the_variable_of_a_device_contains_the_numbers_of_its_npus(host: Path) -> None:
    devices = offered(host)
    assert devices["npu1"]["env"] == ["ACME_VISIBLE_DEVICES=1"]
    assert devices["all"]["env"] == ["ACME_VISIBLE_DEVICES=0,1"]
    assert len(devices["all"]["deviceNodes"]) == 2


def test_a_profile_names_the_npus_as_in_acmes_tools(host: Path) -> None:
    names = [device["name"] for device in document(host, names=("npu",))["devices"]]
    assert names == ["npu0", "npu1", "all"]


def test_the_library_is_mounted_if_the_host_has_it(host: Path) -> None:
    assert "containerEdits" not in document(host)
    library = host / "opt/acme/lib/libacme_npu.so.1"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\x7fELF")
    mounts = document(host)["containerEdits"]["mounts"]
    assert [(mount["hostPath"], mount["containerPath"]) for mount in mounts] == [
        ("/opt/acme/lib/libacme_npu.so.1", "/opt/acme/lib64/libacme_npu.so.1")
    ]


def test_a_profile_sets_the_layout_and_the_hook_of_the_library(host: Path) -> None:
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


def test_an_npu_without_a_node_does_not_affect_other_npus(host: Path) -> None:
    (host / "dev/accel/accel0").unlink()
    inventory = VENDOR.discover(places(host))
    assert [npu.usable for npu in inventory.accelerators] == [False, True]
    assert [finding.path for finding in inventory.findings] == [ADDRESSES[0]]
    assert [node.path for node in VENDOR.missing_nodes(places(host))] == ["/dev/accel/accel0"]
    assert "0" not in offered(host)


def test_a_node_of_another_device_is_not_used(host: Path) -> None:
    (host / "dev/accel/accel0").unlink()
    make_node(host / "dev/accel/accel0", 7)
    assert "0" not in offered(host)
    assert [node.minor for node in VENDOR.wrong_nodes(places(host))] == [0]


def test_a_node_that_two_npus_list_belongs_to_one(host: Path) -> None:
    folder = host / f"sys/bus/pci/drivers/acme_npu/{ADDRESSES[1]}/accel"
    (folder / "accel1").rename(folder / "accel0")
    (folder / "accel0/dev").write_text(f"{MAJOR}:0\n")
    assert offered(host).keys() == {"0", ADDRESSES[0], "npu0", "all"}


@pytest.mark.parametrize(
    ("path", "kind"),
    [("sys/module/acme_npu", "driver-not-loaded"), ("sys/bus/pci/drivers/acme_npu", "no-gpu")],
)
def test_a_host_without_module_or_npus_is_an_error(host: Path, path: str, kind: str) -> None:
    (host / path).rename(host / "gone")
    with pytest.raises(HostError) as caught:
        VENDOR.discover(places(host))
    assert caught.value.kind == kind


# The optional members, as cdigen uses them: through the registry.


def health() -> VendorHealth:
    found = registry.health("acme")
    assert found is not None
    return found


def advertised(root: Path) -> ResourceSet:
    inventories = {"acme": VENDOR.discover(places(root))}
    return advertise(inventories, (DEFAULT,), lambda _name: True, KubeletConfig())


def test_an_npu_that_its_driver_reports_as_failed_has_a_cause(host: Path) -> None:
    for address, state in zip(ADDRESSES, ("ok", "failed"), strict=True):
        folder = host / f"sys/bus/pci/devices/{address}"
        folder.mkdir(parents=True)
        (folder / "config").write_bytes(b"\xe0\xac\x01\0")
        (host / f"sys/bus/pci/drivers/acme_npu/{address}/state").write_text(f"{state}\n")
    sample = health().check(places(host), VENDOR.discover(places(host)))
    assert [(symptom.cause, symptom.address) for symptom in sample.symptoms] == [
        ("acme-npu-failed", ADDRESSES[1])
    ]


def test_a_line_of_the_kernel_log_reports_a_fault_or_a_reset(host: Path) -> None:
    inventory = VENDOR.discover(places(host))

    def parsed(text: str) -> tuple[Symptom | Recovery, ...]:
        line = f"acme_npu {ADDRESSES[0]}: {text}"
        return health().parse_log(LogRecord(sequence=1, at_s=2.0, text=line), inventory)

    (symptom,) = parsed("engine 3 hung")
    assert isinstance(symptom, Symptom)
    assert (symptom.cause, symptom.address) == ("acme-npu-hung", ADDRESSES[0])
    (recovery,) = parsed("reset done")
    assert isinstance(recovery, Recovery)
    assert recovery.clearance == "reset"
    assert parsed("firmware 1.2") == ()


def test_pods_request_npus_by_acmes_resource(host: Path) -> None:
    found = advertised(host)
    assert found.findings == ()
    assert [(one.name, [unit.id for unit in one.units]) for one in found.resources] == [
        ("acme.example/npu-v1", list(ADDRESSES))
    ]


def test_the_node_has_labels_with_the_number_and_the_product_of_its_npus(host: Path) -> None:
    inventories = {"acme": VENDOR.discover(places(host))}
    labels = (("acme.example/npu.count", "2"), ("acme.example/npu.product", "Acme-NPU"))
    assert node_labels(advertised(host).resources, inventories, running={}) == (labels, ())


def test_linked_npus_are_near_each_other(host: Path) -> None:
    for address, peer in zip(ADDRESSES, reversed(ADDRESSES), strict=True):
        (host / f"sys/bus/pci/drivers/acme_npu/{address}/links").write_text(f"{peer} 4\n")
    inventories, failures = refresh_links({"acme": VENDOR.discover(places(host))}, lambda: places(host))
    assert failures == ()
    assert relation(*inventories["acme"].accelerators).cell == "ACMELINK4"
