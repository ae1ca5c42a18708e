"""Files and folders, watched through the real kernel."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon.watching import Ear, descriptors, is_watched, quickest, threads, watches
from support.waiting import PATIENCE_S, until

from cdigen.watch.files import FileSource

if TYPE_CHECKING:
    from cdigen.watch.triggers import Trigger


def test_a_file_that_is_replaced_by_rename_is_seen(tmp_path: Path, ear: Ear) -> None:
    library = tmp_path / "lib.so"
    library.write_text("old")
    ear.watch(library)
    for content in ("new", "newer"):
        (tmp_path / "lib.so.new").write_text(content)
        (tmp_path / "lib.so.new").rename(library)
        assert ear.hears(f"{library} changed")
        ear.forget()


def test_a_file_that_is_written_in_place_is_seen(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "file").write_text("old")
    ear.watch(tmp_path / "file")
    (tmp_path / "file").write_text("new")
    assert ear.hears(f"{tmp_path}/file changed")


def test_a_file_that_is_moved_away_is_seen_before_what_comes_later(tmp_path: Path, ear: Ear) -> None:
    # Nothing waits for the other half of the move, which never comes.
    for name in ("away", "in", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "in/file").touch()
    ear.watch(tmp_path / "in/file", tmp_path / "other/file")
    (tmp_path / "in/file").rename(tmp_path / "away/file")
    (tmp_path / "other/file").touch()
    expected = [f"{tmp_path}/{folder}/file changed" for folder in ("in", "other")]
    assert ear.hears(*expected)
    assert list(dict.fromkeys(ear.reasons)) == expected


def test_a_mode_that_changes_is_seen(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "file").touch(0o600)
    (tmp_path / "folder").mkdir()
    ear.watch(tmp_path / "file", tmp_path / "folder")
    for name in ("file", "folder"):
        (tmp_path / name).chmod(0o644)
        assert ear.hears(f"{tmp_path}/{name} changed")


def test_any_number_of_folders_takes_one_inotify_instance_and_two_threads(tmp_path: Path, ear: Ear) -> None:
    folders = [tmp_path / str(number) for number in range(100)]
    for folder in folders:
        folder.mkdir()
    before = threading.active_count()
    ear.watch(*folders)
    # The whole of what is watched is in the one instance: ``watches``.
    assert all(map(is_watched, folders))
    assert threading.active_count() == before + 2


def test_names_that_do_not_matter_are_no_event(tmp_path: Path, ear: Ear) -> None:
    ear.watch(tmp_path / "nvidia-smi", tmp_path / "libcuda.so*")
    for name in ("ls", "nvidia-sm", "nvidia-smi2", "xlibcuda.so", "libcuda.s"):
        (tmp_path / name).write_text("x")
    assert ear.hears_nothing()
    (tmp_path / "libcuda.so.535.1").touch()
    assert ear.hears(f"{tmp_path}/libcuda.so.535.1 changed")


def test_every_name_in_a_folder_matters(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "cdi").mkdir()
    ear.watch(tmp_path / "cdi")
    (tmp_path / "cdi/new.json").touch()
    assert ear.hears(f"{tmp_path}/cdi/new.json changed")


def test_a_name_that_is_not_text_is_told_in_one_line(tmp_path: Path, ear: Ear) -> None:
    ear.watch(tmp_path)
    Path(os.fsdecode(bytes(tmp_path) + b"/a\nb\xff")).touch()
    assert ear.hears(f"{tmp_path}/a\\nb\\udcff changed")


def test_what_several_missing_folders_will_hold_is_seen(tmp_path: Path, ear: Ear) -> None:
    file = tmp_path / "a/b/c/d/file"
    ear.watch(file)
    file.parent.mkdir(parents=True)
    assert ear.hears(f"{tmp_path}/a changed")
    assert until(lambda: is_watched(file.parent))
    file.touch()
    assert ear.hears(f"{file} changed")


def test_a_look_follows_whatever_comes_into_a_folder_before_it_is_watched(tmp_path: Path) -> None:
    for number in range(50):
        file = tmp_path / f"{number}/a/b/c/file"
        is_seen = threading.Event()

        def look(_: Trigger, file: Path = file, is_seen: threading.Event = is_seen) -> None:
            if file.exists():
                is_seen.set()

        source = FileSource((str(file),))
        source.start(look)
        file.parent.mkdir(parents=True)
        file.touch()
        assert is_seen.wait(PATIENCE_S)
        source.stop()


def test_a_folder_that_is_removed_and_made_again_is_watched_again(tmp_path: Path, ear: Ear) -> None:
    cdi = tmp_path / "run/cdi"
    cdi.mkdir(parents=True)
    ear.watch(cdi)
    for _ in range(5):
        shutil.rmtree(tmp_path / "run")
        assert ear.hears(f"{tmp_path}/run changed")
        cdi.mkdir(parents=True)
        assert ear.hears(f"{cdi} changed")
        # It was perhaps the end of the last one that was heard.
        assert until(lambda: is_watched(cdi))
        ear.forget()
        (cdi / "file").touch()
        assert ear.hears(f"{cdi}/file changed")
        ear.forget()


def test_a_folder_far_above_that_is_replaced_by_rename_is_noticed(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "new/b/c").mkdir(parents=True)
    ear.watch(tmp_path / "a/b/c")
    (tmp_path / "a").rename(tmp_path / "old")
    (tmp_path / "new").rename(tmp_path / "a")
    assert ear.hears(f"{tmp_path}/a changed", f"{tmp_path}/a/b/c changed")
    ear.forget()
    (tmp_path / "old/b/c/file").touch()
    assert ear.hears_nothing()
    (tmp_path / "a/b/c/file").touch()
    assert ear.hears(f"{tmp_path}/a/b/c/file changed")


def test_a_folder_that_is_replaced_by_a_link_is_followed(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "cdi").mkdir()
    (tmp_path / "other").mkdir()
    ear.watch(tmp_path / "cdi")
    (tmp_path / "cdi").rmdir()
    (tmp_path / "cdi").symlink_to("other")
    assert ear.hears(f"{tmp_path}/other changed")
    ear.forget()
    (tmp_path / "other/file").touch()
    assert ear.hears(f"{tmp_path}/other/file changed")


def test_a_link_that_is_turned_elsewhere_is_followed(tmp_path: Path, ear: Ear) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
    (tmp_path / "current").symlink_to("1")
    ear.watch(tmp_path / "current/lib.so")
    (tmp_path / "next").symlink_to("2")
    (tmp_path / "next").rename(tmp_path / "current")
    # The latter when the watches have been changed.
    assert ear.hears(f"{tmp_path}/current changed", f"{tmp_path}/2 changed")
    ear.forget()
    (tmp_path / "1/lib.so").touch()
    assert ear.hears_nothing()
    (tmp_path / "2/lib.so").touch()
    assert ear.hears(f"{tmp_path}/2/lib.so changed")


def test_the_target_of_a_link_to_a_file_is_watched(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "lib.so").symlink_to("real/lib.so.1")
    ear.watch(tmp_path / "lib.so")
    (tmp_path / "real/lib.so.1").touch()
    assert ear.hears(f"{tmp_path}/real/lib.so.1 changed")


def test_a_foreign_trees_absolute_links_stay_in_it(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "run/cdi").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    ear.watch(tmp_path / "var/run/cdi", roots=(str(tmp_path),))
    (tmp_path / "run/cdi/file").touch()
    assert ear.hears(f"{tmp_path}/run/cdi/file changed")


def test_one_folder_by_two_ways_tells_of_what_either_wants(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    ear.watch(tmp_path / "real/one", tmp_path / "link/two")
    (tmp_path / "real/one").touch()
    (tmp_path / "real/two").touch()
    assert ear.hears(f"{tmp_path}/real/one changed", f"{tmp_path}/real/two changed")


@pytest.mark.usefixtures("real_nodes")
def test_a_device_node_that_appears_or_changes_is_seen_and_writing_to_nodes_is_not(
    tmp_path: Path, ear: Ear
) -> None:
    (tmp_path / "nvidia-caps").mkdir()
    null = tmp_path / "null"
    os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(tmp_path / "nvidia-caps/nvidia-cap1", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    ear.watch(tmp_path, tmp_path / "nvidia-caps")
    null.write_text("x")
    (tmp_path / "nvidia-caps/nvidia-cap1").write_text("x")
    assert ear.hears_nothing()
    null.chmod(0o600)
    assert ear.hears(f"{tmp_path}/null changed")
    os.mknod(tmp_path / "nvidia0", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert ear.hears(f"{tmp_path}/nvidia0 changed")


@pytest.mark.usefixtures("real_nodes")
def test_writing_to_nodes_is_not_seen_in_a_folder_that_becomes_one_of_device_nodes(
    tmp_path: Path, ear: Ear
) -> None:
    # The kernel adds the masks of a folder up, so it goes on to report what is written.
    source = ear.watch(tmp_path / "nvidia*")
    for name in ("null", "nvidia0"):
        os.mknod(tmp_path / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    source.rearm((str(tmp_path / "nvidia*"),))
    ear.forget()
    (tmp_path / "nvidia0").write_text("x")
    assert ear.hears_nothing()


def test_rearming_changes_what_is_watched_and_tells_nothing(tmp_path: Path, ear: Ear) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    source = ear.watch(tmp_path / "a")
    source.rearm((str(tmp_path / "b"),))
    (tmp_path / "a/file").touch()
    assert ear.hears_nothing()
    (tmp_path / "b/file").touch()
    assert ear.hears(f"{tmp_path}/b/file changed")


def test_rearming_with_the_same_paths_keeps_every_watch(tmp_path: Path, ear: Ear) -> None:
    source = ear.watch(tmp_path / "file")
    before = watches()
    for _ in range(100):
        source.rearm((str(tmp_path / "file"),))
    assert watches() == before
    (tmp_path / "file").touch()
    assert ear.hears(f"{tmp_path}/file changed")


def test_a_path_that_moves_around_leaves_no_watches_behind(tmp_path: Path, ear: Ear) -> None:
    ear.watch(tmp_path / "a/file")
    (tmp_path / "a").mkdir()
    assert until(lambda: is_watched(tmp_path / "a"))
    before = len(watches())
    for number in range(20):
        (tmp_path / "a").rename(tmp_path / f"old{number}")
        (tmp_path / "a").mkdir()
        assert until(lambda: is_watched(tmp_path / "a"))
    assert until(lambda: len(watches()) == before)


def test_a_stopped_source_says_nothing_and_leaves_nothing(tmp_path: Path, ear: Ear) -> None:
    before = descriptors("inotify"), descriptors("pipe")
    source = FileSource((str(tmp_path),))

    def live() -> None:
        source.start(ear.inbox.put)
        source.stop()

    assert quickest(live) < 1
    (tmp_path / "file").touch()
    assert ear.hears_nothing()
    assert until(lambda: threads() == [])
    assert (descriptors("inotify"), descriptors("pipe")) == before
    assert source.problem() == ""


def test_a_source_may_be_started_again(tmp_path: Path, ear: Ear) -> None:
    source = ear.watch(tmp_path / "file")
    before = descriptors("inotify"), descriptors("pipe")
    for _ in range(20):
        source.stop()
        source.start(ear.inbox.put)
    assert (len(descriptors("inotify")), len(descriptors("pipe"))) == tuple(map(len, before))
    (tmp_path / "file").touch()
    assert ear.hears(f"{tmp_path}/file changed")


def test_stopping_twice_or_before_the_start_is_harmless() -> None:
    source = FileSource(("/",))
    source.stop()
    source.stop()
    assert source.problem() == ""
