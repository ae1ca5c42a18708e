"""The folders and names that the resolution of a path depends on, compared with the kernel's resolution."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.watch.path_dependencies import watched_folders

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def below(
    tree: Path, paths: Iterable[str], roots: Iterable[str] = ()
) -> dict[str, tuple[set[str], set[str]]]:
    """Return the path names and patterns of each folder in TREE. Keys are paths relative to TREE."""
    found = watched_folders([f"{tree}{path}" for path in paths], [f"{tree}{root}" for root in roots])
    return {
        folder.removeprefix(str(tree)) or "/": (interest.path_names, interest.patterns)
        for folder, interest in found.items()
        if f"{folder}/".startswith(f"{tree}/")
    }


def test_a_file_depends_on_each_component_of_its_path(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").touch()
    assert below(tmp_path, ["/a/b/file"]) == {
        "/": ({"a"}, set()),
        "/a": ({"b"}, set()),
        "/a/b": ({"file"}, set()),
    }


def test_a_file_depends_on_all_folders_up_to_the_root(tmp_path: Path) -> None:
    above = [str(folder) for folder in reversed(tmp_path.parents)]
    assert list(watched_folders([f"{tmp_path}/file"])) == [*above, str(tmp_path)]


def test_a_folder_depends_on_all_its_entries(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert below(tmp_path, ["/a"]) == {"/": ({"a"}, set()), "/a": (set(), {"*"})}


def test_a_missing_path_depends_on_the_last_existing_folder(tmp_path: Path) -> None:
    assert below(tmp_path, ["/a/b/c/file"]) == {"/": ({"a"}, set())}


def test_a_pattern_belongs_to_its_parent_folder(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    assert below(tmp_path, ["/dev/nvidia*"]) == {"/": ({"dev"}, set()), "/dev": (set(), {"nvidia*"})}


def test_a_path_through_a_link_depends_on_the_link_and_its_target(tmp_path: Path) -> None:
    (tmp_path / "run/cdi").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    assert below(tmp_path, ["/var/run/cdi"]) == {
        "/": ({"var", "run"}, set()),
        "/var": ({"run"}, set()),
        "/run": ({"cdi"}, set()),
        "/run/cdi": (set(), {"*"}),
    }


def test_an_absolute_link_is_resolved_within_its_root(tmp_path: Path) -> None:
    (tmp_path / "host/run").mkdir(parents=True)
    (tmp_path / "host/var").mkdir()
    (tmp_path / "host/var/run").symlink_to("/run")
    found = below(tmp_path, ["/host/var/run/cdi"], roots=["/host"])
    assert found["/host/run"] == ({"cdi"}, set())


def test_a_relative_link_does_not_lead_out_of_its_root(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host/up").symlink_to("../../../outside")
    assert below(tmp_path, ["/host/up"], roots=["/host"])["/host"] == ({"up", "outside"}, set())


def test_the_resolution_of_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert below(tmp_path, ["/a"]) == {"/": ({"a", "b"}, set())}


def test_a_file_at_the_path_of_a_folder_ends_the_resolution(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert below(tmp_path, ["/a/b"]) == {"/": ({"a"}, set())}


def test_a_name_with_a_nul_byte_ends_the_resolution() -> None:
    assert list(watched_folders(["/a\0b/c"])) == ["/"]


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree of folders and links in which three names exist almost everywhere."""
    top = tmp_path_factory.mktemp("maze").resolve()
    (top / "a/b/c").mkdir(parents=True)
    (top / "b/a").mkdir(parents=True)
    (top / "c").symlink_to("a/b")
    (top / "a/a").symlink_to("../b")
    (top / "a/b/a").symlink_to("../../c/c")
    (top / "b/b").symlink_to(f"{top}/a")
    (top / "a/c").write_text("a file")
    return top


@given(parts=st.lists(st.sampled_from(["a", "b", "c", "..", "."]), max_size=6))
def test_the_resolution_ends_in_the_same_folder_as_that_of_the_kernel(maze: Path, parts: list[str]) -> None:
    # '..' may lead above the maze. There, realpath and the resolver both use the folders of this machine.
    path = "/".join([str(maze), *parts])
    if os.path.isdir(path):
        assert "*" in watched_folders([path])[os.path.realpath(path)].patterns
    elif os.path.exists(path):
        real = os.path.realpath(path)
        assert os.path.basename(real) in watched_folders([path])[os.path.dirname(real)].path_names
