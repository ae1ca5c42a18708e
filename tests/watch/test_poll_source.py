"""The poll source finds changes without an event. A file system that hangs does not block the callers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.daemon.host import with_hanging_mounts
from support.daemon.watching import (
    TriggerRecorder,
    kill,
    kills_threads,
    quickest,
    run_apart,
    thread_of,
    threads,
)
from support.waiting import until

from cdigen.watch.poll import PollSource

if TYPE_CHECKING:
    from pathlib import Path


def test_different_bytes_are_reported_even_with_equal_size_and_time(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    version = tmp_path / "version"
    version.write_text("535.1")
    status = version.stat()
    recorder.poll(version)
    version.write_text("550.1")
    os.utime(version, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert recorder.receives(f"{version} changed")


def test_a_created_and_removed_file_is_reported(tmp_path: Path, recorder: TriggerRecorder) -> None:
    recorder.poll(tmp_path / "a/version")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/version").touch()
    assert recorder.receives(f"{tmp_path}/a/version changed")
    recorder.clear()
    (tmp_path / "a/version").unlink()
    assert recorder.receives(f"{tmp_path}/a/version changed")


def test_a_change_of_names_deep_in_a_folder_is_reported(tmp_path: Path, recorder: TriggerRecorder) -> None:
    (tmp_path / "gpu0/mig/gi1").mkdir(parents=True)
    recorder.poll(tmp_path)
    (tmp_path / "gpu0/mig/gi1/ci0").mkdir()
    assert recorder.receives(f"{tmp_path} changed")
    recorder.clear()
    (tmp_path / "gpu0/mig/gi1/ci0").rmdir()
    assert recorder.receives(f"{tmp_path} changed")


def test_unchanged_paths_put_no_trigger(tmp_path: Path, recorder: TriggerRecorder) -> None:
    (tmp_path / "a").mkdir()
    for name in ("a/file", "new"):
        (tmp_path / name).write_text("x")
    recorder.poll(
        tmp_path / "a", tmp_path / "a/file", tmp_path / "absent", "/proc/version", "/sys/bus/pci/devices"
    )
    # The file is replaced in one step, because a file that is being written is empty for a moment.
    (tmp_path / "new").rename(tmp_path / "a/file")
    assert recorder.receives_nothing()


def test_links_below_a_folder_are_not_followed(tmp_path: Path, recorder: TriggerRecorder) -> None:
    (tmp_path / "polled").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "polled/link").symlink_to("../elsewhere")
    (tmp_path / "polled/circle").symlink_to(".")
    recorder.poll(tmp_path / "polled")
    (tmp_path / "elsewhere/file").touch()
    assert recorder.receives_nothing()


def test_a_fifo_is_not_opened(tmp_path: Path, recorder: TriggerRecorder) -> None:
    os.mkfifo(tmp_path / "fifo")
    source = recorder.poll(tmp_path / "fifo")
    assert recorder.receives_nothing()
    assert source.problem() == ""
    with pytest.raises(OSError, match="No such device or address"):
        os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)


def test_rearming_reports_only_later_changes(tmp_path: Path, recorder: TriggerRecorder) -> None:
    source = recorder.poll(tmp_path / "a")
    (tmp_path / "b").write_text("1")
    source.rearm((str(tmp_path / "b"),))
    (tmp_path / "a").write_text("1")
    assert recorder.receives_nothing()
    (tmp_path / "b").write_text("2")
    assert recorder.receives(f"{tmp_path}/b changed")


def test_rearming_finds_a_change_that_ends_before_the_next_reading(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    path = tmp_path / "version"
    path.write_text("1")
    source = recorder.poll(path, interval_s=3600)
    for text in ("2", "1"):
        path.write_text(text)
        source.rearm((str(path),))
        assert recorder.receives(f"{path} changed")
        recorder.clear()


def test_rearming_keeps_the_state_of_a_path_that_stays(tmp_path: Path, recorder: TriggerRecorder) -> None:
    path = tmp_path / "version"
    path.write_text("1")
    source = recorder.poll(path, interval_s=0.3)
    path.write_text("2")
    source.rearm((str(path),))
    assert recorder.receives(f"{path} changed")


def test_a_stopped_source_leaves_no_thread(tmp_path: Path, recorder: TriggerRecorder) -> None:
    source = PollSource((str(tmp_path / "a"),), 60)

    def start_and_stop() -> None:
        source.start(recorder.queue.put)
        source.stop()

    assert quickest(start_and_stop) < 1
    assert until(lambda: threads() == [])
    assert source.problem() == ""


@kills_threads
def test_a_killed_thread_is_reported_as_a_problem(tmp_path: Path, recorder: TriggerRecorder) -> None:
    source = recorder.poll(tmp_path / "a")
    kill(thread_of("poll"))
    assert recorder.receives("stopped unexpectedly")
    assert source.problem() == "the source's thread has ended: killed"


HANGING = """
import os, sys
from support.daemon import hanging_mount
from support.daemon.watching import TriggerRecorder, is_in, quickest, thread_of, threads
from support.waiting import until
from cdigen.watch.files import FileSource
from cdigen.watch.poll import PollSource

def hangs():
    global now
    now += 11.0
    return poll.problem()

folder, now, recorder, polled = sys.argv[1], 0.0, TriggerRecorder(), TriggerRecorder()
os.mkdir(folder + "/mount")
poll = PollSource((folder + "/other", folder + "/mount/file"), 0.01, clock=lambda: now)
files = FileSource((folder + "/mount/file", folder + "/other"))
poll.start(polled.queue.put)
files.start(recorder.queue.put)
server = hanging_mount.mount(folder + "/mount")
open(folder + "/other", "w").close()
# The next read hangs.
assert polled.receives(folder + "/other changed")
assert until(hangs)
print(poll.problem())
assert until(lambda: is_in(thread_of("files"), "watched_folders"))
for source in (poll, files):
    print(quickest(source.stop) < 1)
    try:
        source.start(recorder.queue.put)
    except OSError as error:
        print(error.strerror)
print(quickest(lambda: files.rearm((folder,))) < 1)
os.close(server)
print(until(lambda: not threads()))
for source in (poll, files):
    source.start(recorder.queue.put)
    print(source.problem() == "")
open(folder + "/other", "w").close()
print(recorder.receives(folder + "/other changed"))
"""


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.process
def test_a_file_system_that_does_not_respond_does_not_block_callers(tmp_path: Path) -> None:
    hangs = f"reading {tmp_path}/mount/file hangs"
    assert run_apart(HANGING, str(tmp_path), start=with_hanging_mounts()) == [
        hangs,
        "True",
        hangs,
        "True",
        "reading the watched folders hangs",
        *["True"] * 5,
    ]
