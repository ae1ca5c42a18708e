"""A removal in the end-to-end tests' trees never follows a symbolic link out of its own folder."""

import re
from pathlib import Path

import pytest
from support.own_trees import UnsafePathError, copy_tree, remove_tree
from support.paths import TESTS

# The folders whose code has paths of the provisioned trees.
FOLDERS = ("e2e", *(f"support/{name}" for name in ("browser", "cluster", "containers", "provisioning")))
REMOVES = re.compile(r"shutil\.(?:rmtree|move)\(|\[\s*\"rm\"|\(\s*\"rm\"|os\.removedirs")


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """Return a tree like the trees of `provision`."""
    tree = tmp_path / "original"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc/passwd").write_text("root\n")
    (tree / "usr").mkdir()
    return tree


def test_a_copy_has_its_own_files_in_the_named_folders_and_hard_links_elsewhere(
    original: Path, tmp_path: Path
) -> None:
    (original / "usr/file").write_text("shared")
    copy = tmp_path / "copy"
    copy_tree(original, copy, own=("etc",))
    assert (copy / "usr/file").samefile(original / "usr/file")
    (copy / "etc/passwd").write_text("toor\n")
    assert (original / "etc/passwd").read_text() == "root\n"


def test_a_tree_that_is_a_link_is_not_copied(original: Path, tmp_path: Path) -> None:
    (tmp_path / "part").symlink_to(original)
    with pytest.raises(UnsafePathError, match=r"part: not copied, it is a symbolic link to .*original"):
        copy_tree(tmp_path / "part", tmp_path / "copy", own=("etc",))
    assert (original / "etc/passwd").exists()
    assert not (tmp_path / "copy").exists()


def test_a_folder_inside_the_tree_is_removed_and_a_missing_folder_is_no_error(original: Path) -> None:
    remove_tree(original / "etc", within=original)
    remove_tree(original / "etc", within=original)
    assert [path.name for path in original.iterdir()] == ["usr"]


@pytest.mark.parametrize("place", ["copy", "copy/etc", "copy/etc/conf.d"])
def test_a_symbolic_link_in_the_path_is_refused(original: Path, tmp_path: Path, place: str) -> None:
    (original / "etc/conf.d/precious").mkdir(parents=True)
    link = tmp_path / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / place.replace("copy", "original", 1))
    with pytest.raises(UnsafePathError, match=f"refused, {link} is a symbolic link to"):
        remove_tree(tmp_path / "copy/etc/conf.d", within=tmp_path / "copy")
    assert (original / "etc/conf.d/precious").exists()


@pytest.mark.parametrize("path", ["", "..", "../original", "etc/../../original", "/etc"])
def test_a_path_outside_the_tree_is_refused(original: Path, tmp_path: Path, path: str) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    with pytest.raises(UnsafePathError, match="refused, not a path inside"):
        remove_tree(folder / path, within=folder)
    assert (original / "etc").exists()


def test_a_relative_path_is_refused(original: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsafePathError, match="refused, not a path inside"):
        remove_tree(Path("etc"), within=Path())
    assert original.exists()
    assert tmp_path.exists()


def test_the_end_to_end_tests_remove_trees_only_with_support_own_trees() -> None:
    found = [
        f"{path.name}:{number}"
        for folder in FOLDERS
        for path in sorted((TESTS / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if REMOVES.search(line)
    ]
    assert found == []
