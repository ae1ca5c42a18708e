"""A state file is read and written as a whole; a damaged file has a reason and can be moved aside."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from cdigen.model.errors import StoreError
from cdigen.model.strict import mapping, number, text
from cdigen.store.directory import open_or_create
from cdigen.store.records.state_file import DamagedFile, StateFile

if TYPE_CHECKING:
    from pathlib import Path

READERS = {"boot": text, "sizes": mapping(number)}
FILE = StateFile("sizes.json", READERS, limit=1000)
VALID = '{"schema": 1, "boot": "b", "sizes": {"a": 1}}'


def reason(folder: Path, file: StateFile = FILE) -> str:
    """Return the reason why FILE in FOLDER is damaged."""
    with open_or_create(str(folder)) as directory, pytest.raises(DamagedFile) as error:
        file.read(directory)
    assert file.read_valid(str(folder)) == {}
    return str(error.value)


def test_a_saved_document_is_read_back(tmp_path: Path) -> None:
    FILE.save(str(tmp_path), boot="b", sizes={"a": 1})
    assert (tmp_path / "sizes.json").read_text().endswith("}\n")
    assert json.loads((tmp_path / "sizes.json").read_text()) == json.loads(VALID)
    assert FILE.read_valid(str(tmp_path)) == {"boot": "b", "sizes": {"a": 1}}


def test_without_a_file_or_a_folder_there_is_no_document(tmp_path: Path) -> None:
    with open_or_create(str(tmp_path)) as directory:
        assert FILE.read(directory) is None
    assert FILE.read(None) is None
    assert FILE.read_valid(f"{tmp_path}/none") == {}


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is a file of more than 1000 bytes"),
        ("[]", "its schema is None, not 1"),
        ('{"schema": 2, "boot": "b", "sizes": {}}', "its schema is 2, not 1"),
        ('{"schema": true, "boot": "b", "sizes": {}}', "its schema is True, not 1"),
        ('{"schema": 1, "boot": "b"}', "$.sizes is not present"),
        ('{"schema": 1, "boot": "b", "sizes": {}, "more": 1}', "$.more is not a field"),
        ('{"schema": 1, "boot": "b", "sizes": []}', "$.sizes is not an object"),
        ('{"schema": 1, "boot": "b", "sizes": {"a": -1}}', "$.sizes.a is not a whole number"),
    ],
)
def test_a_damaged_file_has_a_reason(tmp_path: Path, content: str, wanted: str) -> None:
    (tmp_path / "sizes.json").write_text(content)
    assert reason(tmp_path).startswith(wanted)


def test_deep_nesting_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "sizes.json").write_text("[" * 100_000)
    assert reason(tmp_path, StateFile("sizes.json", READERS)).startswith("it is not JSON")


def test_a_folder_is_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "sizes.json").mkdir()
    assert reason(tmp_path) == "it is a directory"


@pytest.mark.needs_root
def test_a_file_of_another_user_is_damaged_only_if_it_must_be_own(tmp_path: Path) -> None:
    (tmp_path / "sizes.json").write_text(VALID)
    os.chown(tmp_path / "sizes.json", 12345, 12345)
    assert FILE.read_valid(str(tmp_path)) != {}
    assert reason(tmp_path, StateFile("sizes.json", READERS, is_own=True)) == "it belongs to uid 12345"


def test_a_cached_document_is_read_again_after_a_change(tmp_path: Path) -> None:
    file = StateFile("sizes.json", READERS, is_cached=True)
    file.save(str(tmp_path), boot="b", sizes={"a": 1})
    first = file.read_valid(str(tmp_path))
    assert file.read_valid(str(tmp_path)) is first
    file.save(str(tmp_path), boot="b", sizes={"a": 2})
    assert file.read_valid(str(tmp_path))["sizes"] == {"a": 2}
    (tmp_path / "sizes.json").write_text("{")
    assert file.read_valid(str(tmp_path)) == {}


def test_damaged_files_are_moved_aside_under_free_names(tmp_path: Path) -> None:
    for number_, content in enumerate(("one", "two", "three")):
        (tmp_path / "sizes.json").write_text(content)
        with open_or_create(str(tmp_path)) as directory:
            name = FILE.move_aside(directory)
        assert name == FILE.aside[number_]
        assert (tmp_path / name).read_text() == content
    assert FILE.aside[:2] == ("sizes.json.damaged", "sizes.json.damaged-2")
    assert not (tmp_path / "sizes.json").exists()


def test_without_a_free_name_a_damaged_file_stays(tmp_path: Path) -> None:
    for name in FILE.aside:
        (tmp_path / name).touch()
    (tmp_path / "sizes.json").write_text("{")
    with open_or_create(str(tmp_path)) as directory, pytest.raises(StoreError, match="no name is free"):
        FILE.move_aside(directory)
    assert (tmp_path / "sizes.json").read_text() == "{"
