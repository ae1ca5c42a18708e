"""The output for whole machines: kinds, devices with their nodes, common edits, and findings.

`pytest --update-golden tests/vendors/test_gpu_hosts.py` writes tests/golden/hosts again. Read the difference.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command.fixtures import Run
from support.golden import GOLDEN, compare
from support.hosts.nvidia import places
from support.hosts.nvidia_machines import MACHINES, dgx_h100, driver_container

from cdigen.cdi.render import render
from cdigen.pipeline import generate
from cdigen.vendors.nvidia.vendor import VENDOR

pytestmark = pytest.mark.usefixtures("real_nodes")

HOSTS = GOLDEN / "hosts"


def offered(root: Path, machine: Callable[[Path], None]) -> dict[str, Any]:
    """Return the output for MACHINE, but without the driver's files, because test_golden.py compares them."""
    machine(root)
    where = "/run/nvidia/driver" if machine is driver_container else "/"
    inventory = VENDOR.discover(places(root, driver=where, dev=where))
    products, broken = generate.generate_specs({"nvidia": inventory}, host=places(root).host)
    assert broken == {}
    return {
        "findings": sorted({f"{finding.severity} {finding.rule}" for finding in inventory.findings}),
        "kinds": {product.kind: _kind(product.document) for product in products},
    }


def _kind(document: dict[str, Any]) -> dict[str, Any]:
    shared = document.get("containerEdits", {})
    return {
        "cdiVersion": document["cdiVersion"],
        "devices": {device["name"]: _paths(device["containerEdits"]) for device in document["devices"]},
        "shared": _paths(shared),
        "libcuda": sorted(
            {
                mount["hostPath"]
                for mount in shared.get("mounts", ())
                if "/libcuda.so" in mount["containerPath"]
            }
        ),
    }


def _paths(edits: dict[str, Any]) -> list[str]:
    return [node.get("hostPath", node["path"]) for node in edits.get("deviceNodes", ())]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_the_output_for_a_machine_equals_its_golden_file(
    machine: Callable[[Path], None], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    content = render(offered(tmp_path, machine)).decode()
    compare(request, HOSTS / f"{machine.__name__}.json", content)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_the_device_all_has_the_nodes_of_every_device_of_the_kind(
    machine: Callable[[Path], None], tmp_path: Path
) -> None:
    for kind in offered(tmp_path, machine)["kinds"].values():
        each = {path for name, paths in kind["devices"].items() if name != "all" for path in paths}
        assert set(kind["devices"]["all"]) == (each or set(kind["devices"]["all"]))


def test_generate_on_a_dgx_prints_the_spec_of_gpus_and_lists_the_other_kinds(
    cdigen: Run, tmp_path: Path
) -> None:
    dgx_h100(tmp_path / "host")
    kinds = offered(tmp_path / "twin", dgx_h100)["kinds"]
    assert len(kinds) > 1
    done = cdigen("generate", "--root", tmp_path / "host")
    assert (done.code, done.json["kind"]) == (0, "nvidia.com/gpu")
    [line] = [line for line in done.err.splitlines() if "--output-dir" in line]
    assert all(kind in line for kind in kinds)


def test_every_golden_file_has_a_machine() -> None:
    assert {path.stem for path in HOSTS.iterdir()} == {machine.__name__ for machine in MACHINES}
