"""Device nodes that two vendors claim, and device nodes with impossible numbers."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.host import Host, daemon
from support.hosts import amd_tree, intel_tree
from support.hosts.added_vendors import lay_npus, like_acme

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")

# A vendor whose NPUs have the nodes at PATHS, which can be the nodes of Intel's devices.
SQUATTER = """\
def discover(self, context):
    from cdigen.host import devnodes
    from cdigen.model.inventory import Accelerator, Driver, Inventory
    paths = [path for path in {paths!r} if context.dev.exists(path)]
    nodes = [devnodes.read_node(context.dev, path, role="npu") for path in paths]
    npus = tuple(
        Accelerator(index=index, address=f"0000:99:00.{{index}}", model="NPU", uuid=None, minor=None,
                    nodes=(node,), usable=True, device_class="npu")
        for index, node in enumerate(nodes)
    )
    driver = Driver(version="1", flavour="dkms", architecture="x86_64")
    return Inventory(
        vendor=self.NAME, driver=driver, accelerators=npus, nodes=(), files=(), searched=(), findings=()
    )
"""
ACCEL, RENDER, OWN = "/dev/accel/accel0", "/dev/dri/renderD128", "/dev/squat0"


@pytest.fixture
def guests(guests: Path) -> Path:
    """Return a folder of packages with the example and a vendor that claims other vendors' nodes."""
    squats(guests, ACCEL)
    return guests


def squats(folder: Path, *paths: str) -> None:
    like_acme(folder, "squatter", SQUATTER.format(paths=paths))


def generated(cdigen_process: Run, root: Path, guests: Path, *vendors: str) -> tuple[Any, dict[str, Any]]:
    """Write the specs of VENDORS; return the result of the command, and the documents by kind."""
    named = [word for vendor in vendors for word in ("--vendor", vendor)]
    done = cdigen_process("generate", "--root", root, *named, "--write", PYTHONPATH=str(guests))
    documents = [json.loads(path.read_text()) for path in (root / "var/run/cdi").glob("*.json")]
    return done, {document["kind"]: document for document in documents}


def paths(document: dict[str, Any]) -> set[str]:
    devices = document["devices"]
    return {node["path"] for device in devices for node in device["containerEdits"].get("deviceNodes", ())}


def test_a_node_of_two_vendors_belongs_to_the_vendor_that_is_selected_first(
    cdigen_process: Run, laptop: Path, guests: Path
) -> None:
    done, documents = generated(cdigen_process, laptop, guests, "intel", "squatter")
    assert documents.keys() == {"intel.com/gpu", "intel.com/npu"}
    assert paths(documents["intel.com/npu"]) == {ACCEL}
    assert f"{ACCEL} is the node of intel's NPU 0 (0000:00:0b.0)" in done.err
    assert "--vendor" in done.err


def test_a_node_of_two_vendors_belongs_to_the_other_vendor_if_the_order_is_reversed(
    cdigen_process: Run, laptop: Path, guests: Path
) -> None:
    done, documents = generated(cdigen_process, laptop, guests, "squatter", "intel")
    assert documents.keys() == {"intel.com/gpu", "squatter.example/npu"}
    assert f"{ACCEL} is the node of squatter's NPU 0" in done.err
    assert done.code == 0


def test_a_node_belongs_to_a_vendor_that_is_selected_alone(
    cdigen_process: Run, laptop: Path, guests: Path
) -> None:
    assert paths(generated(cdigen_process, laptop, guests, "squatter")[1]["squatter.example/npu"]) == {ACCEL}


def test_only_the_device_whose_node_belongs_to_another_vendor_is_left_out(
    cdigen_process: Run, laptop: Path, guests: Path
) -> None:
    intel_tree.make_node(laptop / OWN.lstrip("/"), 240, 0)
    squats(guests, RENDER, OWN)
    _, documents = generated(cdigen_process, laptop, guests, "intel", "squatter")
    assert paths(documents["squatter.example/npu"]) == {OWN}
    assert RENDER in paths(documents["intel.com/gpu"])


def test_a_node_with_another_path_and_the_same_numbers_is_the_same_node(
    cdigen_process: Run, laptop: Path, guests: Path
) -> None:
    intel_tree.make_node(laptop / OWN.lstrip("/"), intel_tree.ACCEL_MAJOR, 0)
    squats(guests, OWN)
    done, documents = generated(cdigen_process, laptop, guests, "intel", "squatter")
    assert "squatter.example/npu" not in documents
    assert f"{OWN} is the node of intel's NPU 0" in done.err


def test_two_vendors_without_a_common_node_both_get_a_spec(
    cdigen_process: Run, tmp_path: Path, guests: Path
) -> None:
    root = tmp_path / "host"
    intel_tree.lay(root, intel_tree.npu(5))
    lay_npus(root)
    done, documents = generated(cdigen_process, root, guests, "intel", "acme")
    assert documents.keys() == {"intel.com/npu", "acme.example/npu"}
    assert "is the node of" not in done.err


def test_the_daemon_reports_a_node_that_two_vendors_claim(tmp_path: Path, guests: Path) -> None:
    host = Host(tmp_path / "host").prepare()
    host.configure("vendors: [intel, squatter]\n")
    intel_tree.lay(host.root, *intel_tree.laptop())
    intel_tree.make_node(host.root / OWN.lstrip("/"), 240, 0)
    squats(guests, ACCEL, OWN)
    with daemon(host, PYTHONPATH=str(guests)) as running:
        states = {one["vendor"]: one["state"] for one in running.status["vendors"]}
        assert states == {"intel": "ready", "squatter": "degraded"}
        assert "node-claimed-twice" in {one["rule"] for one in running.status["findings"]}
        assert host.devices("squatter.example-npu.json") == {"1", "0000:99:00.1", "npu1", "all"}


# Nodes with impossible numbers.


def null(root: Path, path: str) -> None:
    """Replace the node PATH by the null device, and remove the files in /sys with the node's numbers."""
    intel_tree.make_node(root / path.lstrip("/"), 1, 3, mode=0o666)
    for file in (root / "sys").rglob(f"{os.path.basename(path)}/dev"):
        file.unlink()


@pytest.mark.parametrize("path", ["/dev/dri/card3", "/dev/dri/renderD131"])
def test_amd_does_not_use_the_null_device(cdigen: Run, tmp_path: Path, path: str) -> None:
    gpu = amd_tree.AmdGpu(bdf="0000:05:00.0", render=131, card=3)
    other = amd_tree.AmdGpu(bdf="0000:06:00.0", render=132, card=4)
    amd_tree.write(tmp_path, (gpu, other))
    null(tmp_path, path)
    done = cdigen("generate", "--root", tmp_path)
    assert done.code == 0
    assert path not in paths(done.json)
    assert "has the numbers 1:3, which no" in done.err


@pytest.mark.parametrize("path", ["/dev/dri/card0", "/dev/dri/renderD128", "/dev/accel/accel0"])
def test_intel_does_not_use_the_null_device(cdigen: Run, laptop: Path, path: str) -> None:
    null(laptop, path)
    done = cdigen("inspect", "--root", laptop, "--json")
    assert done.code == 0
    inventory = done.json["vendors"]["intel"]
    paths_of_devices = {node["path"] for each in inventory["accelerators"] for node in each["nodes"]}
    assert path not in paths_of_devices
    assert f"{path} has the numbers 1:3, which no" in json.dumps(inventory["findings"])


@pytest.mark.parametrize("path", ["/dev/dri/card1", "/dev/dri/renderD129"])
def test_nvidia_does_not_use_the_null_device(cdigen: Run, host: Path, path: str) -> None:
    null(host, path)
    done = cdigen("generate", "--root", host)
    assert done.code == 0
    assert path not in paths(done.json)


def test_a_vendor_of_another_package_cannot_use_the_null_device(
    cdigen_process: Run, laptop: Path, guests: Path
) -> None:
    null(laptop, ACCEL)
    done, documents = generated(cdigen_process, laptop, guests, "squatter")
    assert (done.code, documents) == (3, {})
    assert f"{ACCEL} has the numbers 1:3, which no accelerator node has" in done.err


def test_doctor_reports_a_node_with_impossible_numbers(cdigen: Run, laptop: Path) -> None:
    intel_tree.make_node(laptop / "dev/dri/card0", 1, 3)
    done = cdigen("doctor", "--root", laptop, "--vendor", "intel", "--json")
    assert "/dev/dri/card0" in json.dumps([row for row in done.json if not row["ok"]])
