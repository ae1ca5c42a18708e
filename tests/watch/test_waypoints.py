"""Which folders and names decide what a path means; the kernel's own path resolution is the judge."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.watch.waypoints import interests

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def below(
    tree: Path, paths: Iterable[str], roots: Iterable[str] = ()
) -> dict[str, tuple[set[str], set[str]]]:
    """Return the ways and patterns of each folder within TREE, named from there."""
    found = interests([f"{tree}{path}" for path in paths], [f"{tree}{root}" for root in roots])
    return {
        folder.removeprefix(str(tree)) or "/": (interest.ways, interest.patterns)
        for folder, interest in found.items()
        if f"{folder}/".startswith(f"{tree}/")
    }


def test_a_file_is_its_name_in_every_folder_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").touch()
    assert below(tmp_path, ["/a/b/file"]) == {
        "/": ({"a"}, set()),
        "/a": ({"b"}, set()),
        "/a/b": ({"file"}, set()),
    }


def test_the_folders_above_are_watched_up_to_the_top(tmp_path: Path) -> None:
    above = [str(folder) for folder in reversed(tmp_path.parents)]
    assert list(interests([f"{tmp_path}/file"])) == [*above, str(tmp_path)]


def test_a_folder_is_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert below(tmp_path, ["/a"]) == {"/": ({"a"}, set()), "/a": (set(), {"*"})}


def test_a_way_ends_in_the_folder_where_the_next_part_will_appear(tmp_path: Path) -> None:
    assert below(tmp_path, ["/a/b/c/file"]) == {"/": ({"a"}, set())}


def test_a_pattern_is_asked_of_the_folder_before_it(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    assert below(tmp_path, ["/dev/nvidia*"]) == {"/": ({"dev"}, set()), "/dev": (set(), {"nvidia*"})}


def test_a_link_on_the_way_matters_and_so_does_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "run/cdi").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    assert below(tmp_path, ["/var/run/cdi"]) == {
        "/": ({"var", "run"}, set()),
        "/var": ({"run"}, set()),
        "/run": ({"cdi"}, set()),
        "/run/cdi": (set(), {"*"}),
    }


def test_an_absolute_link_stays_within_the_tree_that_is_a_root(tmp_path: Path) -> None:
    (tmp_path / "host/run").mkdir(parents=True)
    (tmp_path / "host/var").mkdir()
    (tmp_path / "host/var/run").symlink_to("/run")
    found = below(tmp_path, ["/host/var/run/cdi"], roots=["/host"])
    assert found["/host/run"] == ({"cdi"}, set())


def test_no_link_climbs_out_of_the_tree_that_is_a_root(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host/up").symlink_to("../../../outside")
    assert below(tmp_path, ["/host/up"], roots=["/host"])["/host"] == ({"up", "outside"}, set())


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert below(tmp_path, ["/a"]) == {"/": ({"a", "b"}, set())}


def test_a_file_in_the_place_of_a_folder_ends_the_way(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert below(tmp_path, ["/a/b"]) == {"/": ({"a"}, set())}


def test_a_name_that_no_file_can_have_is_harmless() -> None:
    assert list(interests(["/a\0b/c"])) == ["/"]


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders and links in which three names mean something almost everywhere."""
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
def test_the_last_folder_is_where_the_kernel_finds_it(maze: Path, parts: list[str]) -> None:
    # '..' may lead above the maze: realpath and the walk both know the machine's folders there.
    path = "/".join([str(maze), *parts])
    if os.path.isdir(path):
        assert "*" in interests([path])[os.path.realpath(path)].patterns
    elif os.path.exists(path):
        real = os.path.realpath(path)
        assert os.path.basename(real) in interests([path])[os.path.dirname(real)].ways
