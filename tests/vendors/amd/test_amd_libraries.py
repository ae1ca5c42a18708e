"""The host's ROCm libraries in containers, with the option rocm_libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree
from support.hosts.amd import document, places, rules
from support.hosts.amd_tree import mi210
from support.hosts.driver_files import I386, link, put, write_library

from cdigen.model.profile import DEFAULT
from cdigen.value import replace
from cdigen.vendors.amd.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.inventory import Inventory

pytestmark = pytest.mark.usefixtures("real_nodes")

ROCM = "opt/rocm-6.2.0/lib"
SYSTEM = "usr/lib/x86_64-linux-gnu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host with ROCm 6.2 as in AMD's packages."""
    amd_tree.write(tmp_path, mi210(1))
    link(tmp_path / "opt/rocm", "rocm-6.2.0")
    library(tmp_path, ROCM, "libamdhip64.so.6", "6.2.41133", "libamd_comgr.so.2", "libhsa-runtime64.so.1")
    library(tmp_path, ROCM, "libamd_comgr.so.2", "2.8.0", "libc.so.6", "libstdc++.so.6")
    library(tmp_path, ROCM, "libhsa-runtime64.so.1", "1.14.60200", "libdrm_amdgpu.so.1", "libelf.so.1")
    library(tmp_path, ROCM, "librocm_smi64.so.7", "7.3.60200", "libm.so.6")
    library(tmp_path, SYSTEM, "libdrm_amdgpu.so.1", "1.0.0", "ld-linux-x86-64.so.2")
    library(tmp_path, SYSTEM, "libelf.so.1", "0.190")
    return tmp_path


def library(root: Path, folder: str, soname: str, version: str, *needed: str) -> None:
    name = f"{soname.partition('.so.')[0]}.so.{version}"
    write_library(root / folder / name, soname, needed)
    link(root / folder / soname, name)


def inventory(root: Path) -> Inventory:
    return VENDOR.discover(places(root, rocm=True))


def test_without_the_option_no_libraries_are_searched(root: Path) -> None:
    found = VENDOR.discover(places(root))
    assert (found.files, found.searched) == ((), ())
    assert "containerEdits" not in document(root, found)


def test_libraries_are_found_with_the_libraries_that_they_need(root: Path) -> None:
    found = inventory(root)
    assert found.findings == ()
    assert {file.names[0]: file.host_path for file in found.files} == {
        "libamdhip64.so.6": f"/{ROCM}/libamdhip64.so.6.2.41133",
        "libamd_comgr.so.2": f"/{ROCM}/libamd_comgr.so.2.8.0",
        "libhsa-runtime64.so.1": f"/{ROCM}/libhsa-runtime64.so.1.14.60200",
        "librocm_smi64.so.7": f"/{ROCM}/librocm_smi64.so.7.3.60200",
        "libdrm_amdgpu.so.1": f"/{SYSTEM}/libdrm_amdgpu.so.1.0.0",
        "libelf.so.1": f"/{SYSTEM}/libelf.so.0.190",
    }


def test_libraries_are_mounted_as_files_without_a_hook(root: Path) -> None:
    edits = document(root, inventory(root))["containerEdits"]
    assert edits.keys() == {"mounts"}
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
    assert mounts["/usr/lib64/libamdhip64.so.6"] == f"/{ROCM}/libamdhip64.so.6.2.41133"
    assert f"/{SYSTEM}/libamdhip64.so.6" in mounts


def test_a_profile_without_compute_gets_no_libraries(root: Path) -> None:
    assert "containerEdits" not in document(root, inventory(root), capabilities=("graphics",))


def test_a_missing_library_that_another_library_needs_is_a_finding(root: Path) -> None:
    (root / SYSTEM / "libelf.so.1").unlink()
    found = inventory(root)
    assert rules(found) == [("warning", "library-incomplete")]
    assert "libelf.so.1" in found.findings[0].message


def test_on_a_host_without_rocm_the_missing_libraries_are_findings(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(1))
    found = inventory(tmp_path)
    assert rules(found) == [("warning", "library-missing"), ("warning", "library-missing")]
    assert found.files == ()
    assert {thing.name: thing.reason for thing in found.searched}["libamdhip64"] == "no such file"


def test_a_broken_library_is_a_finding_and_the_next_version_is_used(root: Path) -> None:
    put(root / ROCM / "libamdhip64.so.7", b"rubbish")
    found = inventory(root)
    assert rules(found) == [("warning", "library-unusable")]
    assert "libamdhip64.so.6" in {file.names[0] for file in found.files}


def test_libraries_for_another_machine_are_skipped(root: Path) -> None:
    write_library(root / ROCM / "libamd_smi.so.24", "libamd_smi.so.24", machine=I386, bits=32)
    found = inventory(root)
    assert "libamd_smi.so.24" not in {file.names[0] for file in found.files}


def test_libraries_that_need_each_other_are_added_once(root: Path) -> None:
    library(root, ROCM, "libamd_smi.so.24", "24.6", "libamdhip64.so.6")
    library(root, ROCM, "libamdhip64.so.6", "6.2.41133", "libamd_smi.so.24")
    names = [file.names[0] for file in inventory(root).files]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("layout", "hook", "delivered"),
    [
        ("auto", "auto", ("files", "none")),
        ("files", "auto", ("files", "none")),
        ("auto", "cdigen", ("files", "cdigen")),
        ("view", "auto", ("view", "auto")),
        ("hwcaps", "none", ("hwcaps", "none")),
    ],
)
def test_libraries_are_files_without_a_hook_unless_the_profile_sets_another_delivery(
    root: Path, layout: str, hook: str, delivered: tuple[str, str]
) -> None:
    """With a hook, the host's libraries would take precedence over the libraries in an image's cache."""
    (draft,) = VENDOR.edits(inventory(root), (replace(DEFAULT, layout=layout, hook=hook),))
    assert (draft.profile.layout, draft.profile.hook) == delivered
