"""The comparison of folders that inotify cannot watch: its cost does not grow with the number of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.cost import calls

from cdigen.watch.comparison import MAX_FILES, differs, read_state
from cdigen.watch.path_dependencies import watched_folders

if TYPE_CHECKING:
    from pathlib import Path

CHANNELS = 2048


@pytest.fixture
def channels(tmp_path: Path) -> Path:
    """Return a folder with as many files as a host with all IMEX channels has nodes."""
    folder = tmp_path / "nvidia-caps-imex-channels"
    folder.mkdir()
    for number in range(CHANNELS):
        (folder / f"channel{number}").touch()
    return folder


def test_an_unchanged_folder_costs_the_status_of_a_part_of_its_files(channels: Path) -> None:
    watched = watched_folders((f"{channels}/*",), ())[str(channels)]
    state = read_state(str(channels), watched)
    for _ in range(2):
        state = read_state(str(channels), watched, state)
    assert len(state.names) == CHANNELS
    # A function call, lstat, two tests of the type and hash for each file.
    assert calls(lambda: read_state(str(channels), watched, state)) < 10 * MAX_FILES


def test_every_change_is_found_by_one_comparison_of_all_parts(channels: Path) -> None:
    watched = watched_folders((f"{channels}/*",), ())[str(channels)]
    state = first = read_state(str(channels), watched)
    (channels / "channel7").chmod(0o600)
    (channels / "channel2047").write_text("changed")
    changed = set()
    for _ in range(CHANNELS // MAX_FILES):
        state = read_state(str(channels), watched, state)
        pairs = zip(state.names, state.files, first.files, strict=True)
        changed |= {name for name, now, before in pairs if now != before}
    assert changed == {"channel7", "channel2047"}
    assert read_state(str(channels), watched, state).files == state.files


def test_new_and_missing_names_are_found_at_once(channels: Path) -> None:
    watched = watched_folders((f"{channels}/*",), ())[str(channels)]
    state = read_state(str(channels), watched)
    for number in (3, 2046):
        (channels / f"channel{number}").unlink()
        state = read_state(str(channels), watched, state)
        assert f"channel{number}" not in state.names
        (channels / f"channel{number}").touch()
        state = read_state(str(channels), watched, state)
        assert f"channel{number}" in state.names


def test_a_folder_without_relevant_files_that_vanishes_is_a_change(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    watched = watched_folders((f"{folder}/*",), ())[str(folder)]
    state = read_state(str(folder), watched)
    assert not differs(read_state(str(folder), watched, state), state)
    folder.rmdir()
    assert differs(read_state(str(folder), watched, state), state)
