"""Polling: what changes without any event, and a file system that does not answer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.daemon.host import with_hanging_mounts
from support.daemon.watching import Ear, kill, kills_threads, quickest, run_apart, thread_of, threads
from support.waiting import until

from cdigen.watch.poll import PollSource

if TYPE_CHECKING:
    from pathlib import Path


def test_bytes_that_differ_are_told_even_with_equal_size_and_time(tmp_path: Path, ear: Ear) -> None:
    version = tmp_path / "version"
    version.write_text("535.1")
    status = version.stat()
    ear.poll(version)
    version.write_text("550.1")
    os.utime(version, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert ear.hears(f"{version} changed")


def test_a_file_that_comes_and_goes_is_told(tmp_path: Path, ear: Ear) -> None:
    ear.poll(tmp_path / "a/version")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/version").touch()
    assert ear.hears(f"{tmp_path}/a/version changed")
    ear.forget()
    (tmp_path / "a/version").unlink()
    assert ear.hears(f"{tmp_path}/a/version changed")


def test_a_name_deep_in_a_folder_is_told(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "gpu0/mig/gi1").mkdir(parents=True)
    ear.poll(tmp_path)
    (tmp_path / "gpu0/mig/gi1/ci0").mkdir()
    assert ear.hears(f"{tmp_path} changed")
    ear.forget()
    (tmp_path / "gpu0/mig/gi1/ci0").rmdir()
    assert ear.hears(f"{tmp_path} changed")


def test_what_stays_as_it_is_is_not_told(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "a").mkdir()
    for name in ("a/file", "new"):
        (tmp_path / name).write_text("x")
    ear.poll(
        tmp_path / "a", tmp_path / "a/file", tmp_path / "absent", "/proc/version", "/sys/bus/pci/devices"
    )
    # In one step: a file that is being written is empty for a moment.
    (tmp_path / "new").rename(tmp_path / "a/file")
    assert ear.hears_nothing()


def test_links_below_a_folder_are_names_and_nothing_more(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "polled").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "polled/link").symlink_to("../elsewhere")
    (tmp_path / "polled/circle").symlink_to(".")
    ear.poll(tmp_path / "polled")
    (tmp_path / "elsewhere/file").touch()
    assert ear.hears_nothing()


def test_a_fifo_is_not_opened(tmp_path: Path, ear: Ear) -> None:
    os.mkfifo(tmp_path / "fifo")
    source = ear.poll(tmp_path / "fifo")
    assert ear.hears_nothing()
    assert source.problem() == ""
    with pytest.raises(OSError, match="No such device or address"):
        os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)


def test_rearming_tells_of_changes_after_it_alone(tmp_path: Path, ear: Ear) -> None:
    source = ear.poll(tmp_path / "a")
    (tmp_path / "b").write_text("1")
    source.rearm((str(tmp_path / "b"),))
    (tmp_path / "a").write_text("1")
    assert ear.hears_nothing()
    (tmp_path / "b").write_text("2")
    assert ear.hears(f"{tmp_path}/b changed")


def test_a_change_that_ends_before_the_next_reading_is_noticed_when_rearming(
    tmp_path: Path, ear: Ear
) -> None:
    path = tmp_path / "version"
    path.write_text("1")
    source = ear.poll(path, interval_s=3600)
    for text in ("2", "1"):
        path.write_text(text)
        source.rearm((str(path),))
        assert ear.hears(f"{path} changed")
        ear.forget()


def test_rearming_keeps_what_was_seen_of_a_path_that_stays(tmp_path: Path, ear: Ear) -> None:
    path = tmp_path / "version"
    path.write_text("1")
    source = ear.poll(path, interval_s=0.3)
    path.write_text("2")
    source.rearm((str(path),))
    assert ear.hears(f"{path} changed")


def test_a_stopped_source_says_nothing_and_leaves_nothing(tmp_path: Path, ear: Ear) -> None:
    source = PollSource((str(tmp_path / "a"),), 60)

    def live() -> None:
        source.start(ear.inbox.put)
        source.stop()

    assert quickest(live) < 1
    assert until(lambda: threads() == [])
    assert source.problem() == ""


@kills_threads
def test_a_thread_that_is_killed_is_a_problem(tmp_path: Path, ear: Ear) -> None:
    source = ear.poll(tmp_path / "a")
    kill(thread_of("poll"))
    assert ear.hears("stopped by itself")
    assert source.problem() == "its thread has ended: killed"


HANGING = """
import os, sys
from support.daemon import hanging_mount
from support.daemon.watching import Ear, is_in, quickest, thread_of, threads
from support.waiting import until
from cdigen.watch.files import FileSource
from cdigen.watch.poll import PollSource

def hangs():
    global now
    now += 11.0
    return poll.problem()

folder, now, ear, polled = sys.argv[1], 0.0, Ear(), Ear()
os.mkdir(folder + "/mount")
poll = PollSource((folder + "/other", folder + "/mount/file"), 0.01, clock=lambda: now)
files = FileSource((folder + "/mount/file", folder + "/other"))
poll.start(polled.inbox.put)
files.start(ear.inbox.put)
server = hanging_mount.mount(folder + "/mount")
open(folder + "/other", "w").close()
# What it reads next is what hangs.
assert polled.hears(folder + "/other changed")
assert until(hangs)
print(poll.problem())
assert until(lambda: is_in(thread_of("files"), "interests"))
for source in (poll, files):
    print(quickest(source.stop) < 1)
    try:
        source.start(ear.inbox.put)
    except OSError as error:
        print(error.strerror)
print(quickest(lambda: files.rearm((folder,))) < 1)
os.close(server)
print(until(lambda: not threads()))
for source in (poll, files):
    source.start(ear.inbox.put)
    print(source.problem() == "")
open(folder + "/other", "w").close()
print(ear.hears(folder + "/other changed"))
"""


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.process
def test_a_file_system_that_does_not_answer_holds_nobody_up(tmp_path: Path) -> None:
    hangs = f"reading {tmp_path}/mount/file hangs"
    assert run_apart(HANGING, str(tmp_path), start=with_hanging_mounts()) == [
        hangs,
        "True",
        hangs,
        "True",
        "looking at the watched folders hangs",
        *["True"] * 5,
    ]
