"""The command cdigen on hosts with AMD's GPUs. test_mixed_hosts.py has hosts with several vendors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree
from support.hosts.amd_tree import mi300x, radeon

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root of a host with two MI300X in CPX mode. cdigen can write specs below the root."""
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    amd_tree.write(tmp_path, mi300x(count=2))
    return tmp_path


def kinds(root: Path) -> dict[str, int]:
    documents = [json.loads(path.read_text()) for path in (root / "run/cdi").glob("*.json")]
    return {each["kind"]: len(each["devices"]) for each in documents}


def test_generate_writes_the_spec_of_amds_gpus(cdigen: Run, root: Path) -> None:
    done = cdigen("generate", "--root", root, "--write")
    assert done.code == 0, done.err
    assert kinds(root) == {"amd.com/gpu": 16 + 4 + 1}
    listed = cdigen("list", "--root", root)
    assert {"amd.com/gpu=0", "amd.com/gpu=15", "amd.com/gpu=all"} <= set(listed.out.split())


def test_diff_and_doctor_report_nothing_about_absent_vendors(cdigen: Run, root: Path) -> None:
    assert cdigen("generate", "--root", root, "--write").code == 0
    assert cdigen("diff", "--root", root).code == 0
    rows = cdigen("doctor", "--root", root, "--json").json
    assert [row["detail"] for row in rows if row["topic"] == "driver" and row["check"] != "host-mounts"] == [
        "the driver of amd is loaded: in-tree, kernel 6.8.0-60-generic",
        "amd: 2 GPUs, 16 partitions",
        "no known problem of amd",
    ]


def test_the_option_strict_applies_only_to_vendors_that_the_user_selects(cdigen: Run, root: Path) -> None:
    assert cdigen("generate", "--root", root, "--strict").code == 0
    done = cdigen("generate", "--root", root, "--strict", "--vendor", "amd", "--vendor", "nvidia")
    assert done.failed(3, "NVIDIA kernel module is not loaded")


def test_inspect_shows_partitions_with_amds_numbers(cdigen: Run, root: Path) -> None:
    shown = cdigen("inspect", "--root", root)
    assert shown.code == 0, shown.err
    line = next(line for line in shown.out.splitlines() if "amdgpu_xcp_8" in line)
    assert line.split()[:3] == ["10", "cpx_nps1", "amdgpu_xcp_8"]


def test_an_inventory_of_amd_gives_the_same_spec_on_another_machine(cdigen: Run, root: Path) -> None:
    (root / "host.json").write_text(cdigen("inspect", "--root", root, "--json").out)
    there = cdigen("generate", "--inventory", root / "host.json")
    assert there.code == 0, there.err
    assert there.out == cdigen("generate", "--root", root).out


def test_generate_reports_that_the_gpu_of_a_desktop_cannot_compute(cdigen: Run, tmp_path: Path) -> None:
    amd_tree.write(tmp_path, (radeon(),))
    done = cdigen("generate", "--root", tmp_path)
    assert done.code == 0, done.err
    assert "0000:03:00.0 can be used for graphics only" in done.err
