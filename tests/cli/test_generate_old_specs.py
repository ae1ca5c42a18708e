"""`generate` reports specs that stay on the disk although the host no longer has their kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree, intel_tree

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")


def lay_gpus_and_npu(root: Path) -> None:
    amd_tree.write(root, amd_tree.mi210(2))
    amd_tree.write_npu(root)


def reported(cdigen: Run, root: Path, *options: str, code: int = 0) -> str:
    done = cdigen("generate", "--root", root, "--write", *options)
    assert done.code == code, done.err
    return next((line for line in done.err.splitlines() if "[old-spec-" in line), "")


@pytest.mark.parametrize("is_other", [False, True])
def test_the_old_spec_of_a_failed_vendor_or_kind_is_reported(
    cdigen: Run, tmp_path: Path, *, is_other: bool
) -> None:
    if is_other:
        amd_tree.write(tmp_path, amd_tree.mi210(1))
        intel_tree.lay(tmp_path, *intel_tree.laptop())
    else:
        lay_gpus_and_npu(tmp_path)
    assert reported(cdigen, tmp_path) == ""
    (tmp_path / "dev/kfd").unlink()
    line = reported(cdigen, tmp_path)
    assert "amd.com-gpu.json stays" in line
    assert ("[old-spec-broken]" in line, "--withdraw" in line) == (True, True)
    done = cdigen("doctor", "--root", tmp_path)
    assert "amd.com-gpu.json: paths that the host does not have" in done.out
    assert reported(cdigen, tmp_path, "--withdraw") == ""
    assert not list(tmp_path.rglob("amd.com-gpu.json"))
    assert reported(cdigen, tmp_path) == ""


def test_the_old_spec_of_a_withheld_kind_is_reported(cdigen: Run, host: Path) -> None:
    assert reported(cdigen, host) == ""
    (host / "dev/nvidia-uvm").unlink()
    line = reported(cdigen, host, code=3)
    assert "nvidia.com-gpu.json stays" in line
    assert "/dev/nvidia-uvm" in line


def test_a_spec_that_only_the_options_exclude_is_not_reported(cdigen: Run, tmp_path: Path) -> None:
    lay_gpus_and_npu(tmp_path)
    assert reported(cdigen, tmp_path) == ""
    (tmp_path / "dev/accel/accel0").unlink()
    assert reported(cdigen, tmp_path, "--kind", "amd.com/gpu", "--verbose") == ""


def test_a_file_that_cdigen_has_not_written_is_not_reported(cdigen: Run, tmp_path: Path) -> None:
    lay_gpus_and_npu(tmp_path)
    assert reported(cdigen, tmp_path) == ""
    (amd_spec,) = tmp_path.rglob("amd.com-gpu.json")
    foreign = amd_spec.read_text().replace("amd.com/gpu", "nvidia.com/gpu").replace("renderD", "gone")
    amd_spec.with_name("nvidia.com-gpu.json").write_text(foreign)
    (tmp_path / "dev/accel/accel0").unlink()
    assert "amd.com-npu.json stays" in reported(cdigen, tmp_path, "--vendor", "nvidia", "--vendor", "amd")
