"""Polling: what changes without any event, and a file system that does not answer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run
from support.daemon.watching import KILLS, Ear, kill, quickest, run_apart, thread_of, threads
from support.waiting import until

from cdigen.watch.poll import PollSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Poll = Callable[..., PollSource]

INTERVAL_S = 0.02


@pytest.fixture
def poll(ear: Ear) -> Iterator[Poll]:
    """Return a function that polls paths and tells the ear."""
    sources = []

    def begin(*paths: object) -> PollSource:
        source = PollSource(tuple(map(str, paths)), INTERVAL_S)
        sources.append(source)
        source.start(ear.inbox.put)
        return source

    yield begin
    for source in sources:
        source.stop()


def test_bytes_that_differ_are_told_even_with_equal_size_and_time(
    tmp_path: Path, ear: Ear, poll: Poll
) -> None:
    version = tmp_path / "version"
    version.write_text("535.1")
    status = version.stat()
    poll(version)
    version.write_text("550.1")
    os.utime(version, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert ear.hears(f"{version} changed")


def test_a_file_that_comes_and_goes_is_told(tmp_path: Path, ear: Ear, poll: Poll) -> None:
    poll(tmp_path / "a/version")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/version").touch()
    assert ear.hears(f"{tmp_path}/a/version changed")
    ear.forget()
    (tmp_path / "a/version").unlink()
    assert ear.hears(f"{tmp_path}/a/version changed")


def test_a_name_deep_in_a_folder_is_told(tmp_path: Path, ear: Ear, poll: Poll) -> None:
    (tmp_path / "gpu0/mig/gi1").mkdir(parents=True)
    poll(tmp_path)
    (tmp_path / "gpu0/mig/gi1/ci0").mkdir()
    assert ear.hears(f"{tmp_path} changed")
    ear.forget()
    (tmp_path / "gpu0/mig/gi1/ci0").rmdir()
    assert ear.hears(f"{tmp_path} changed")


def test_what_stays_as_it_is_is_not_told(tmp_path: Path, ear: Ear, poll: Poll) -> None:
    (tmp_path / "a").mkdir()
    for name in ("a/file", "new"):
        (tmp_path / name).write_text("x")
    poll(tmp_path / "a", tmp_path / "a/file", tmp_path / "absent", "/proc/version", "/sys/bus/pci/devices")
    # In one step: a file that is being written is empty for a moment.
    (tmp_path / "new").rename(tmp_path / "a/file")
    assert ear.hears_nothing()


def test_links_below_a_folder_are_names_and_nothing_more(tmp_path: Path, ear: Ear, poll: Poll) -> None:
    (tmp_path / "polled").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "polled/link").symlink_to("../elsewhere")
    (tmp_path / "polled/circle").symlink_to(".")
    poll(tmp_path / "polled")
    (tmp_path / "elsewhere/file").touch()
    assert ear.hears_nothing()


def test_a_fifo_is_not_opened(tmp_path: Path, ear: Ear, poll: Poll) -> None:
    os.mkfifo(tmp_path / "fifo")
    source = poll(tmp_path / "fifo")
    assert ear.hears_nothing()
    assert source.problem() == ""
    with pytest.raises(OSError, match="No such device or address"):
        os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)


def test_rearming_tells_of_changes_after_it_alone(tmp_path: Path, ear: Ear, poll: Poll) -> None:
    source = poll(tmp_path / "a")
    (tmp_path / "b").write_text("1")
    source.rearm((str(tmp_path / "b"),))
    (tmp_path / "a").write_text("1")
    assert ear.hears_nothing()
    (tmp_path / "b").write_text("2")
    assert ear.hears(f"{tmp_path}/b changed")


def test_rearming_keeps_what_was_seen_of_a_path_that_stays(tmp_path: Path, ear: Ear) -> None:
    path = tmp_path / "version"
    path.write_text("1")
    source = PollSource((str(path),), 0.3)
    source.start(ear.inbox.put)
    path.write_text("2")
    source.rearm((str(path),))
    try:
        assert ear.hears(f"{path} changed")
    finally:
        source.stop()


def test_a_stopped_source_says_nothing_and_leaves_nothing(tmp_path: Path, ear: Ear) -> None:
    source = PollSource((str(tmp_path / "a"),), 60)

    def live() -> None:
        source.start(ear.inbox.put)
        source.stop()

    assert quickest(live) < 1
    assert until(lambda: threads() == [])
    assert source.problem() == ""


@KILLS
def test_a_thread_that_is_killed_is_a_problem(tmp_path: Path, ear: Ear, poll: Poll) -> None:
    source = poll(tmp_path / "a")
    kill(thread_of("poll"))
    assert ear.hears("stopped by itself")
    assert source.problem() == "its thread has ended: killed"


# A file system in user space whose server does not answer: a read hangs until the server ends.
HANGING = """
import ctypes, os, sys
from support.daemon.watching import KILLS, Ear, is_in, quickest, thread_of, threads
from support.waiting import until
from cdigen.watch.files import FileSource
from cdigen.watch.poll import PollSource

def mount(where):
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"fuse", where.encode(), b"fuse", 0, options):
        print("no fuse:", os.strerror(ctypes.get_errno()))
        sys.exit(0)
    return server

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
server = mount(folder + "/mount")
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
    if not os.access("/dev/fuse", os.W_OK):
        cannot_run("/dev/fuse cannot be opened: run as root, on a kernel with FUSE")
    said = run_apart(HANGING, str(tmp_path), start=("unshare", "--mount", "--propagation", "private"))
    if said[0].startswith("no fuse"):
        cannot_run(said[0])
    assert said == [
        f"reading {tmp_path}/mount/file hangs",
        "True",
        f"reading {tmp_path}/mount/file hangs",
        "True",
        "looking at the watched folders hangs",
        "True",
        "True",
        "True",
        "True",
        "True",
    ]
