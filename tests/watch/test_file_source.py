"""The source of file events. The tests change real files, and the real kernel reports the changes."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon.watching import TriggerRecorder, descriptors, is_watched, quickest, threads, watches
from support.waiting import PATIENCE_S, until

from cdigen.watch.files import FileSource

if TYPE_CHECKING:
    from cdigen.watch.triggers import Trigger


def test_a_file_that_is_replaced_by_rename_is_reported(tmp_path: Path, recorder: TriggerRecorder) -> None:
    library = tmp_path / "lib.so"
    library.write_text("old")
    recorder.watch(library)
    for content in ("new", "newer"):
        (tmp_path / "lib.so.new").write_text(content)
        (tmp_path / "lib.so.new").rename(library)
        assert recorder.receives(f"{library} changed")
        recorder.clear()


def test_a_file_that_is_written_in_place_is_reported(tmp_path: Path, recorder: TriggerRecorder) -> None:
    (tmp_path / "file").write_text("old")
    recorder.watch(tmp_path / "file")
    (tmp_path / "file").write_text("new")
    assert recorder.receives(f"{tmp_path}/file changed")


def test_a_file_that_is_moved_away_is_reported_before_later_events(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    # The source does not wait for the second event of the move, which the kernel never reports.
    for name in ("away", "in", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "in/file").touch()
    recorder.watch(tmp_path / "in/file", tmp_path / "other/file")
    (tmp_path / "in/file").rename(tmp_path / "away/file")
    (tmp_path / "other/file").touch()
    expected = [f"{tmp_path}/{folder}/file changed" for folder in ("in", "other")]
    assert recorder.receives(*expected)
    assert list(dict.fromkeys(recorder.reasons)) == expected


def test_a_changed_mode_is_reported(tmp_path: Path, recorder: TriggerRecorder) -> None:
    (tmp_path / "file").touch(0o600)
    (tmp_path / "folder").mkdir()
    recorder.watch(tmp_path / "file", tmp_path / "folder")
    for name in ("file", "folder"):
        (tmp_path / name).chmod(0o644)
        assert recorder.receives(f"{tmp_path}/{name} changed")


def test_any_number_of_folders_takes_one_inotify_instance_and_two_threads(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    folders = [tmp_path / str(number) for number in range(100)]
    for folder in folders:
        folder.mkdir()
    before = set(threading.enumerate())
    recorder.watch(*folders)
    # ``is_watched`` finds only watches in a single instance.
    assert all(map(is_watched, folders))
    assert len(set(threading.enumerate()) - before) == 2


def test_names_that_match_no_path_put_no_trigger(tmp_path: Path, recorder: TriggerRecorder) -> None:
    recorder.watch(tmp_path / "nvidia-smi", tmp_path / "libcuda.so*")
    for name in ("ls", "nvidia-sm", "nvidia-smi2", "xlibcuda.so", "libcuda.s"):
        (tmp_path / name).write_text("x")
    assert recorder.receives_nothing()
    (tmp_path / "libcuda.so.535.1").touch()
    assert recorder.receives(f"{tmp_path}/libcuda.so.535.1 changed")


def test_every_name_in_a_watched_folder_puts_a_trigger(tmp_path: Path, recorder: TriggerRecorder) -> None:
    (tmp_path / "cdi").mkdir()
    recorder.watch(tmp_path / "cdi")
    (tmp_path / "cdi/new.json").touch()
    assert recorder.receives(f"{tmp_path}/cdi/new.json changed")


def test_a_name_that_is_not_printable_is_reported_in_one_line(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    recorder.watch(tmp_path)
    Path(os.fsdecode(bytes(tmp_path) + b"/a\nb\xff")).touch()
    assert recorder.receives(f"{tmp_path}/a\\nb\\udcff changed")


def test_a_file_in_several_missing_folders_is_reported(tmp_path: Path, recorder: TriggerRecorder) -> None:
    file = tmp_path / "a/b/c/d/file"
    recorder.watch(file)
    file.parent.mkdir(parents=True)
    assert recorder.receives(f"{tmp_path}/a changed")
    assert until(lambda: is_watched(file.parent))
    file.touch()
    assert recorder.receives(f"{file} changed")


def test_a_file_that_is_created_before_its_folder_is_watched_is_reported(tmp_path: Path) -> None:
    for number in range(50):
        file = tmp_path / f"{number}/a/b/c/file"
        is_checked = threading.Event()

        def check(_: Trigger, file: Path = file, is_checked: threading.Event = is_checked) -> None:
            if file.exists():
                is_checked.set()

        source = FileSource((str(file),))
        source.start(check)
        file.parent.mkdir(parents=True)
        file.touch()
        assert is_checked.wait(PATIENCE_S)
        source.stop()


def test_a_folder_that_is_removed_and_created_again_is_watched_again(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    cdi = tmp_path / "run/cdi"
    cdi.mkdir(parents=True)
    recorder.watch(cdi)
    for _ in range(5):
        shutil.rmtree(tmp_path / "run")
        assert recorder.receives(f"{tmp_path}/run changed")
        cdi.mkdir(parents=True)
        assert recorder.receives(f"{cdi} changed")
        # The trigger may have been for the removal of the previous folder.
        assert until(lambda: is_watched(cdi))
        recorder.clear()
        (cdi / "file").touch()
        assert recorder.receives(f"{cdi}/file changed")
        recorder.clear()


def test_the_replacement_of_a_folder_several_levels_above_is_reported(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "new/b/c").mkdir(parents=True)
    recorder.watch(tmp_path / "a/b/c")
    (tmp_path / "a").rename(tmp_path / "old")
    (tmp_path / "new").rename(tmp_path / "a")
    assert recorder.receives(f"{tmp_path}/a changed", f"{tmp_path}/a/b/c changed")
    recorder.clear()
    (tmp_path / "old/b/c/file").touch()
    assert recorder.receives_nothing()
    (tmp_path / "a/b/c/file").touch()
    assert recorder.receives(f"{tmp_path}/a/b/c/file changed")


def test_the_target_of_a_link_that_replaces_a_folder_is_watched(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    (tmp_path / "cdi").mkdir()
    (tmp_path / "other").mkdir()
    recorder.watch(tmp_path / "cdi")
    (tmp_path / "cdi").rmdir()
    (tmp_path / "cdi").symlink_to("other")
    assert recorder.receives(f"{tmp_path}/other changed")
    recorder.clear()
    (tmp_path / "other/file").touch()
    assert recorder.receives(f"{tmp_path}/other/file changed")


def test_the_new_target_of_a_changed_link_is_watched(tmp_path: Path, recorder: TriggerRecorder) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
    (tmp_path / "current").symlink_to("1")
    recorder.watch(tmp_path / "current/lib.so")
    (tmp_path / "next").symlink_to("2")
    (tmp_path / "next").rename(tmp_path / "current")
    # The second trigger is put when the watches have been changed.
    assert recorder.receives(f"{tmp_path}/current changed", f"{tmp_path}/2 changed")
    recorder.clear()
    (tmp_path / "1/lib.so").touch()
    assert recorder.receives_nothing()
    (tmp_path / "2/lib.so").touch()
    assert recorder.receives(f"{tmp_path}/2/lib.so changed")


def test_the_target_of_a_link_to_a_file_is_watched(tmp_path: Path, recorder: TriggerRecorder) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "lib.so").symlink_to("real/lib.so.1")
    recorder.watch(tmp_path / "lib.so")
    (tmp_path / "real/lib.so.1").touch()
    assert recorder.receives(f"{tmp_path}/real/lib.so.1 changed")


def test_absolute_links_in_a_root_are_resolved_within_the_root(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    (tmp_path / "run/cdi").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    recorder.watch(tmp_path / "var/run/cdi", roots=(str(tmp_path),))
    (tmp_path / "run/cdi/file").touch()
    assert recorder.receives(f"{tmp_path}/run/cdi/file changed")


def test_a_folder_that_two_paths_lead_to_is_watched_for_both_paths(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    recorder.watch(tmp_path / "real/one", tmp_path / "link/two")
    (tmp_path / "real/one").touch()
    (tmp_path / "real/two").touch()
    assert recorder.receives(f"{tmp_path}/real/one changed", f"{tmp_path}/real/two changed")


@pytest.mark.usefixtures("real_nodes")
def test_new_and_changed_device_nodes_are_reported_and_writes_to_nodes_are_not(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    (tmp_path / "nvidia-caps").mkdir()
    null = tmp_path / "null"
    os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(tmp_path / "nvidia-caps/nvidia-cap1", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    recorder.watch(tmp_path, tmp_path / "nvidia-caps")
    null.write_text("x")
    (tmp_path / "nvidia-caps/nvidia-cap1").write_text("x")
    assert recorder.receives_nothing()
    null.chmod(0o600)
    assert recorder.receives(f"{tmp_path}/null changed")
    os.mknod(tmp_path / "nvidia0", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert recorder.receives(f"{tmp_path}/nvidia0 changed")


@pytest.mark.usefixtures("real_nodes")
def test_writes_to_nodes_are_not_reported_in_a_folder_that_becomes_a_device_folder(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    # The kernel combines the masks of a folder, and therefore continues to report writes.
    source = recorder.watch(tmp_path / "nvidia*")
    for name in ("null", "nvidia0"):
        os.mknod(tmp_path / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    source.rearm((str(tmp_path / "nvidia*"),))
    recorder.clear()
    (tmp_path / "nvidia0").write_text("x")
    assert recorder.receives_nothing()


def test_rearming_changes_the_watches_and_puts_no_trigger(tmp_path: Path, recorder: TriggerRecorder) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    source = recorder.watch(tmp_path / "a")
    source.rearm((str(tmp_path / "b"),))
    (tmp_path / "a/file").touch()
    assert recorder.receives_nothing()
    (tmp_path / "b/file").touch()
    assert recorder.receives(f"{tmp_path}/b/file changed")


def test_rearming_with_the_same_paths_keeps_every_watch(tmp_path: Path, recorder: TriggerRecorder) -> None:
    source = recorder.watch(tmp_path / "file")
    before = watches()
    for _ in range(100):
        source.rearm((str(tmp_path / "file"),))
    assert watches() == before
    (tmp_path / "file").touch()
    assert recorder.receives(f"{tmp_path}/file changed")


def test_a_folder_that_is_renamed_repeatedly_leaves_no_watches(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    recorder.watch(tmp_path / "a/file")
    (tmp_path / "a").mkdir()
    assert until(lambda: is_watched(tmp_path / "a"))
    before = len(watches())
    for number in range(20):
        (tmp_path / "a").rename(tmp_path / f"old{number}")
        (tmp_path / "a").mkdir()
        assert until(lambda: is_watched(tmp_path / "a"))
    assert until(lambda: len(watches()) == before)


def test_a_stopped_source_puts_no_trigger_and_leaves_no_thread_or_descriptor(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    before = descriptors("inotify"), descriptors("pipe")
    source = FileSource((str(tmp_path),))

    def start_and_stop() -> None:
        source.start(recorder.queue.put)
        source.stop()

    assert quickest(start_and_stop) < 1
    (tmp_path / "file").touch()
    assert recorder.receives_nothing()
    assert until(lambda: threads() == [])
    assert (descriptors("inotify"), descriptors("pipe")) == before
    assert source.problem() == ""


def test_a_source_may_be_started_again(tmp_path: Path, recorder: TriggerRecorder) -> None:
    source = recorder.watch(tmp_path / "file")
    before = descriptors("inotify"), descriptors("pipe")
    for _ in range(20):
        source.stop()
        source.start(recorder.queue.put)
    assert (len(descriptors("inotify")), len(descriptors("pipe"))) == tuple(map(len, before))
    (tmp_path / "file").touch()
    assert recorder.receives(f"{tmp_path}/file changed")


def test_stopping_twice_or_before_the_start_is_harmless() -> None:
    source = FileSource(("/",))
    source.stop()
    source.stop()
    assert source.problem() == ""
