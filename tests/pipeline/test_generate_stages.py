"""The stages of generate return specs or errors for a host, and the same specs for its recorded inventory."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator
from support.hosts import driver_files
from support.hosts.nvidia import discover, install, places
from support.values.inventories import hosts, inventories

from cdigen.cdi.render import render
from cdigen.cdi.rules.document_rules import check
from cdigen.model.findings import errors
from cdigen.model.inventory import Inventory
from cdigen.model.inventory_json import from_document, to_document
from cdigen.pipeline import generate
from cdigen.value import replace

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "schemas/cdi.schema.json").read_text())


@pytest.fixture
def root(tmp_path: Path, real_nodes: None) -> Path:  # noqa: ARG001 - requires the right to create nodes
    """Return a host with a driver and two GPUs."""
    install(tmp_path, driver_files.ubuntu, gpus=2)
    return tmp_path


def produce(
    root: Path, inventory: Inventory, *kinds: str
) -> tuple[tuple[generate.GeneratedSpec, ...], tuple[str, ...]]:
    options = generate.GenerateOptions(kinds=kinds)
    products, broken = generate.generate_specs({"nvidia": inventory}, host=places(root).host, options=options)
    return products, tuple(error.message for error in broken.values())


def test_a_generated_spec_has_its_kind_document_and_bytes(root: Path) -> None:
    (product,), broken = produce(root, discover(root))
    assert not broken
    assert (product.vendor, product.kind) == ("nvidia", "nvidia.com/gpu")
    assert [finding.rule for finding in product.findings] == ["no-forward-compatibility"]
    assert product.content == render(product.document)
    assert [device["name"] for device in product.document["devices"]][:2] == ["0", "1"]


@pytest.mark.usefixtures("real_nodes")
def test_twelve_gpus_are_sorted_by_number(tmp_path: Path) -> None:
    install(tmp_path, driver_files.ubuntu, gpus=12)
    (product,), _ = produce(tmp_path, discover(tmp_path))
    names = [device["name"] for device in product.document["devices"]]
    assert names[:12] == [str(index) for index in range(12)]
    assert (len(names), names[-2:]) == (26, ["none", "all"])


def test_a_spec_has_the_findings_of_the_inventory(root: Path) -> None:
    (root / "dev/nvidia-modeset").unlink()
    (product,), _ = produce(root, discover(root))
    assert [finding.rule for finding in product.findings] == [
        "control-node-missing",
        "no-forward-compatibility",
    ]


def test_only_requested_kinds_are_generated(root: Path) -> None:
    inventory = discover(root)
    assert [product.kind for product in produce(root, inventory, "nvidia.com/gpu")[0]] == ["nvidia.com/gpu"]
    assert produce(root, inventory, "nvidia.com/other") == ((), ())


def test_a_host_without_a_usable_gpu_results_in_no_spec_and_no_error(root: Path) -> None:
    inventory = discover(root)
    unusable = tuple(replace(gpu, usable=False) for gpu in inventory.accelerators)
    assert produce(root, replace(inventory, accelerators=unusable)) == ((), ())


@pytest.mark.parametrize(
    ("path", "rule"),
    [("usr/bin/nvidia-smi", "host-path-missing"), ("dev/nvidia1", "host-node-wrong")],
)
def test_a_host_that_changed_after_discovery_results_in_no_spec(root: Path, path: str, rule: str) -> None:
    inventory = discover(root)
    (root / path).unlink()
    products, (message,) = produce(root, inventory)
    assert products == ()
    assert message.startswith("the spec of nvidia.com/gpu breaks a rule and was not written: error: ")
    assert f"/{path} on the host: No such file or directory" in message
    assert f"[{rule}]" in message


def test_the_same_host_results_in_the_same_bytes_every_time(root: Path) -> None:
    (one,), _ = produce(root, discover(root))
    (two,), _ = produce(root, discover(root))
    assert one.content == two.content


def test_a_recorded_inventory_results_in_the_same_bytes_as_the_host(root: Path) -> None:
    inventory = discover(root)
    recorded = from_document(json.loads(json.dumps(to_document({"nvidia": inventory}))))
    (live,), _ = produce(root, inventory)
    (replayed,), _ = generate.generate_specs(recorded, host=None)
    assert replayed.content == live.content


@given(hosts())
def test_a_generated_spec_breaks_no_rule_and_is_valid(inventory: Inventory) -> None:
    products, broken = generate.generate_specs({"nvidia": inventory}, host=None)
    assert not broken
    assert len(products) == any(gpu.usable for gpu in inventory.accelerators)
    for product in products:
        assert errors(check(product.document)) == ()
        Draft202012Validator(SCHEMA).validate(json.loads(product.content))


@given(inventories)
def test_any_inventory_results_in_a_valid_spec_or_an_error_of_one_line(inventory: Inventory) -> None:
    products, broken = generate.generate_specs({"nvidia": inventory}, host=None)
    for product in products:
        assert errors(check(json.loads(product.content))) == ()
    for error in broken.values():
        assert error.message.isprintable()
        assert error.hint
