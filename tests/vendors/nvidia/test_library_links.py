"""Links without the driver's version that lead to its libraries are additional names of the libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts.driver_files import V535, V550, link, write_library
from support.hosts.nvidia import DRIVER, places

from cdigen.vendors.nvidia.files.libraries import find_libraries

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "usr/lib64"


def names(root: Path, soname: str) -> tuple[str, ...]:
    return find_libraries(places(root), DRIVER).found[soname][0].names


@pytest.mark.parametrize(
    ("stem", "soname", "links"),
    [
        ("libnvidia-nvvm", "libnvidia-nvvm.so.4", ("libnvidia-nvvm.so",)),
        ("libnvidia-nscq", f"libnvidia-nscq.so.{V550}", ("libnvidia-nscq.so", "libnvidia-nscq.so.2")),
        ("libnvidia-ml", "libnvidia-ml.so.1", ("libnvidia-ml.so",)),
        # A library that is not in cdigen's table.
        ("libnvidia-future", "libnvidia-future.so.1", ("libnvidia-future.so", "libnvidia-future.so.7")),
    ],
)
def test_every_link_without_the_version_is_a_name(
    tmp_path: Path, stem: str, soname: str, links: tuple[str, ...]
) -> None:
    file = f"{stem}.so.{V550}"
    write_library(tmp_path / FOLDER / file, soname)
    for name in links:
        link(tmp_path / FOLDER / name, file)
    assert set(names(tmp_path, soname)) >= {soname, *links}
    (tmp_path / FOLDER / links[0]).unlink()
    assert links[0] not in names(tmp_path, soname)


def test_a_link_in_another_folder_is_a_name(tmp_path: Path) -> None:
    write_library(tmp_path / FOLDER / f"nvidia/current/libnvidia-nvvm.so.{V550}", "libnvidia-nvvm.so.4")
    link(tmp_path / FOLDER / "libnvidia-nvvm.so", f"/{FOLDER}/nvidia/current/libnvidia-nvvm.so.{V550}")
    assert "libnvidia-nvvm.so" in names(tmp_path, "libnvidia-nvvm.so.4")


@pytest.mark.parametrize(
    "target", [f"libcudart.so.{V550}", f"libnvidia-ml.so.{V535}", "libnvidia-ml.so", "no"]
)
def test_a_link_to_another_file_is_not_a_name(tmp_path: Path, target: str) -> None:
    write_library(tmp_path / FOLDER / f"libnvidia-ml.so.{V550}", "libnvidia-ml.so.1")
    write_library(tmp_path / FOLDER / f"libnvidia-ml.so.{V535}", "libnvidia-ml.so.1")
    link(tmp_path / FOLDER / "libnvidia-ml.so", target)
    assert names(tmp_path, "libnvidia-ml.so.1") == ("libnvidia-ml.so.1",)


def test_a_copy_of_a_library_is_not_a_name_of_the_library(tmp_path: Path) -> None:
    write_library(tmp_path / FOLDER / f"libcuda.so.{V550}", "libcuda.so.1")
    write_library(tmp_path / FOLDER / "libcuda.so.9", "libother.so.9")
    assert names(tmp_path, "libcuda.so.1") == ("libcuda.so.1", "libcuda.so")
