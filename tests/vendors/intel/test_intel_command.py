"""The command cdigen on hosts with Intel's devices. test_mixed_hosts.py has hosts with several vendors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.hosts.intel_tree import flex_170, laptop, lay

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a laptop. cdigen can write specs below the root."""
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    lay(tmp_path, *laptop())
    return tmp_path


def kinds(root: Path) -> dict[str, list[str]]:
    documents = [json.loads(path.read_text()) for path in sorted((root / "run/cdi").glob("*.json"))]
    return {each["kind"]: [device["name"] for device in each["devices"]] for each in documents}


def test_generate_writes_a_spec_for_each_kind(cdigen: Run, root: Path) -> None:
    done = cdigen("generate", "--root", root, "--vendor", "intel", "--write")
    assert done.code == 0, done.err
    assert kinds(root) == {
        "intel.com/gpu": ["0", "0000-00-02-0-0x64a0", "card0", "all"],
        "intel.com/npu": ["0", "0000-00-0b-0-0x643e", "accel0", "all"],
    }


def test_list_and_inspect_show_gpus_and_npus(cdigen: Run, root: Path) -> None:
    assert cdigen("generate", "--root", root, "--vendor", "intel", "--write").code == 0
    listed = cdigen("list", "--root", root)
    assert {"intel.com/gpu=0", "intel.com/npu=accel0"} <= set(listed.out.split()), listed.err
    shown = cdigen("inspect", "--root", root, "--vendor", "intel")
    assert "NPU (Lunar Lake)" in shown.out, shown.err


def test_an_inventory_gives_the_same_spec_on_another_machine(cdigen: Run, root: Path, tmp_path: Path) -> None:
    inspected = cdigen("inspect", "--root", root, "--vendor", "intel", "--json")
    assert inspected.code == 0, inspected.err
    (tmp_path / "host.json").write_text(inspected.out)
    there = cdigen("generate", "--inventory", tmp_path / "host.json", "--kind", "intel.com/gpu")
    here = cdigen("generate", "--root", root, "--vendor", "intel", "--kind", "intel.com/gpu")
    assert there.code == 0, there.err
    assert there.out == here.out


def test_the_configuration_offers_gpus_for_virtual_machines(cdigen: Run, root: Path) -> None:
    lay(root, *flex_170(2, vfio=(1,)))
    config = root / "config.yaml"
    config.write_text("vendors: [intel]\nvendor_options: {intel: {vfio: true}}\n")
    done = cdigen("generate", "--root", root, "--config", config, "--write")
    assert done.code == 0, done.err
    assert "0000-4d-00-2-0x56c0" in kinds(root)["intel.com/gpu"]


def test_an_unusable_gpu_does_not_affect_the_npu(cdigen: Run, root: Path) -> None:
    for node in (root / "dev/dri").glob("[cr]*"):
        node.unlink()
    cdigen("generate", "--root", root, "--write")
    assert kinds(root).keys() == {"intel.com/npu"}
