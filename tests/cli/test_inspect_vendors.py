"""`cdigen inspect` of hosts with AMD's and Intel's devices: separate tables and columns."""

from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.hosts import amd_tree, intel_tree

pytestmark = pytest.mark.usefixtures("real_nodes")


def columns(text: str, first: str) -> list[list[str]]:
    """Return the table whose header begins with FIRST; each row is a list of words."""
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(first))
    rows = []
    for line in lines[start:]:
        if not line:
            break
        rows.append(line.split())
    return rows


def test_gpus_and_npus_are_distinguished(cdigen: Run, tmp_path: Path) -> None:
    intel_tree.lay(tmp_path, *intel_tree.laptop())
    text = cdigen("inspect", "--root", tmp_path).out
    rows = columns(text, "CLASS")
    assert [row[:3] for row in rows[1:]] == [["gpu", "0", intel_tree.IGPU], ["npu", "0", "0000:00:0b.0"]]
    assert "intel.com/gpu=INDEX and intel.com/npu=INDEX" in text


def test_a_host_with_only_gpus_has_no_column_for_the_class(cdigen: Run, tmp_path: Path) -> None:
    amd_tree.write(tmp_path, amd_tree.mi210(2))
    assert columns(cdigen("inspect", "--root", tmp_path).out, "INDEX")[0][0] == "INDEX"


def test_a_vendor_without_uuids_has_no_column_for_uuids(cdigen: Run, tmp_path: Path) -> None:
    intel_tree.lay(tmp_path, *intel_tree.b60())
    assert "UUID" not in cdigen("inspect", "--root", tmp_path).out


def test_a_node_with_several_names_is_shown_once(cdigen: Run, tmp_path: Path) -> None:
    intel_tree.lay(tmp_path, *intel_tree.b60(1))
    assert "by-path" not in cdigen("inspect", "--root", tmp_path).out


def test_a_partitioned_gpu_shows_the_numbers_of_its_partitions(cdigen: Run, tmp_path: Path) -> None:
    amd_tree.write(tmp_path, amd_tree.mi300x(4, count=2))
    text = cdigen("inspect", "--root", tmp_path).out
    assert [row[:2] for row in columns(text, "INDEX")[1:]] == [
        ["0-3", amd_tree.ADDRESSES[0]],
        ["4-7", amd_tree.ADDRESSES[1]],
    ]
    assert [row[0] for row in columns(text, "PARTITION")[1:]] == [str(number) for number in range(8)]
    assert "CDI names: amd.com/gpu=PARTITION (" in text


def test_the_vendors_of_a_mixed_host_are_separate(cdigen: Run, tmp_path: Path) -> None:
    amd_tree.write(tmp_path, amd_tree.mi210(1))
    intel_tree.lay(tmp_path, intel_tree.npu())
    text = cdigen("inspect", "--root", tmp_path).out
    assert "\n\nintel: driver" in text
    assert "nvidia-smi" not in text
