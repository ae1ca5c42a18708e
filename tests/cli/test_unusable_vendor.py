"""A vendor with only unusable devices is reported, although another vendor has usable devices."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree, driver_files
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")


def without_kfd(root: Path) -> str:
    (root / "dev/kfd").unlink()
    return "/dev/kfd does not exist"


def without_render_nodes(root: Path) -> str:
    for node in (root / "dev/dri").glob("renderD*"):
        node.unlink()
    return "/dev/dri/renderD128 does not exist"


@pytest.fixture(params=[without_kfd, without_render_nodes])
def mixed(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """Return a host with two GPUs of NVIDIA and two unusable GPUs of AMD, and the reason."""
    driver_files.debian_13(tmp_path)
    write_kernel_side(tmp_path, example_gpus(2))
    amd_tree.write(tmp_path, amd_tree.mi210(2))
    spoil: Callable[[Path], str] = request.param
    return tmp_path, spoil(tmp_path)


@pytest.mark.parametrize("command", ["generate --write", "inspect"])
def test_the_command_reports_the_unusable_vendor_and_uses_the_other_vendor(
    cdigen: Run, mixed: tuple[Path, str], command: str
) -> None:
    root, why = mixed
    done = cdigen(*command.split(), "--root", root)
    assert done.code == 0
    (line,) = [line for line in done.err.splitlines() if "AMD" in line or "amdgpu" in line]
    assert line.startswith("cdigen: error: ")
    assert "none of the 2 GPUs of amdgpu can be used" in line
    assert why in line


def test_with_strict_an_unusable_vendor_is_an_error(cdigen: Run, mixed: tuple[Path, str]) -> None:
    root, why = mixed
    done = cdigen("generate", "--write", "--strict", "--json", "--root", root)
    assert done.code == 3
    error = json.loads(done.out)["error"]
    assert (error["kind"], why in error["message"]) == ("no-nodes", True)
