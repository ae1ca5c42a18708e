"""A file source at the kernel's limits, under a flood, and with its thread or descriptor gone."""

from __future__ import annotations

import os
import resource
import shutil
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from support.daemon.watching import (
    OWN_USER,
    Ear,
    descriptors,
    kill,
    kills_threads,
    put_null_in_place_of,
    quickest,
    run_apart,
    thread_of,
)
from support.waiting import PATIENCE_S, until

from cdigen.watch.files import FileSource
from cdigen.watch.triggers import Inbox, Trigger

if TYPE_CHECKING:
    from collections.abc import Callable


def test_thousands_of_events_are_one_reason_for_each_path(tmp_path: Path, ear: Ear) -> None:
    ear.watch(tmp_path / "lib*")
    for number in range(2000):
        (tmp_path / "lib.new").touch()
        (tmp_path / "lib.new").rename(tmp_path / f"lib{number % 3}")
    assert ear.hears(*(f"{tmp_path}/lib{number} changed" for number in range(3)))


def test_after_an_overflow_of_the_kernels_queue_everything_is_watched_again(tmp_path: Path, ear: Ear) -> None:
    # The queue is as long as fs.inotify.max_queued_events says; it fills while the reader is held up.
    held, go_on = threading.Event(), threading.Event()

    def slow(trigger: Trigger) -> None:
        held.set()
        go_on.wait()
        ear.inbox.put(trigger)

    (tmp_path / "replaced").mkdir()
    source = FileSource((str(tmp_path), *(f"{tmp_path}/{name}/file" for name in ("later", "replaced"))))
    source.start(slow)
    try:
        (tmp_path / "begin").touch()
        assert held.wait(PATIENCE_S)
        fill_the_queue(tmp_path)
        # The kernel reports neither of these.
        shutil.rmtree(tmp_path / "replaced")
        (tmp_path / "replaced").mkdir()
        (tmp_path / "later").mkdir()
        go_on.set()
        new = [f"{tmp_path}/{name}" for name in ("later", "replaced")]
        assert ear.hears("events were lost: too many at once", *(f"{folder} changed" for folder in new))
        for folder in new:
            Path(folder, "file").touch()
        assert ear.hears(*(f"{folder}/file changed" for folder in new))
        assert source.problem() == ""
    finally:
        go_on.set()
        source.stop()


def fill_the_queue(folder: Path) -> None:
    with open("/proc/sys/fs/inotify/max_queued_events") as file:
        length = int(file.read())
    # Two names in turn: the kernel merges equal events that follow each other. Each link is an event.
    origin = folder / "begin"
    for _ in range(length // 2 + 100):
        os.link(origin, folder / "link")
        os.unlink(folder / "link")


@pytest.mark.parametrize("paths", ["one", "*"])
def test_a_flood_takes_no_memory_and_does_not_delay_the_end(paths: str, tmp_path: Path) -> None:
    inbox = Inbox()
    source = FileSource((str(tmp_path / paths),))
    source.start(inbox.put)
    (tmp_path / "new").touch()
    done = threading.Event()
    flood = threading.Thread(target=rename_until, args=(done, tmp_path))
    flood.start()
    try:
        assert until(lambda: inbox.peek().events > 1000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert until(lambda: inbox.peek().events > 3000)
        assert len(inbox.peek().triggers) <= 32
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048

        def live_again() -> None:
            source.stop()
            source.start(inbox.put)

        assert quickest(live_again) < 1
        source.stop()
    finally:
        done.set()
        flood.join()
        source.stop()
    assert inbox.take().events
    assert not inbox.wait(0.05)


def rename_until(done: threading.Event, folder: Path) -> None:
    while not done.is_set():
        for _ in range(50):
            os.rename(folder / "new", folder / "one")
            os.rename(folder / "one", folder / "new")
        time.sleep(0.005)


NO_WATCHES = """
import sys
from pathlib import Path
from support.daemon.watching import Ear
from cdigen.watch.files import FileSource
from cdigen.watch.supervisor import Supervisor

limit, folder = Path("/proc/sys/user", sys.argv[1]), Path(sys.argv[2])
limit.write_text("0")
now, ear = 0.0, Ear()
supervisor = Supervisor((FileSource((str(folder),)),), ear.inbox, clock=lambda: now)
supervisor.start()
print(supervisor.health()["files"])
for now in (supervisor.tick(), supervisor.tick() + 1):
    supervisor.tick()
print(supervisor.health()["files"])
limit.write_text("1000")
now += 60
supervisor.tick()
assert ear.hears("started again"), ear.reasons
assert supervisor.health()["files"] == "", supervisor.health()
ear.forget()
(folder / "file").touch()
assert ear.hears(f"{folder}/file changed")
supervisor.stop()
"""


NO_WATCH = "/ is not watched: the limit of inotify watches is reached (sysctl fs.inotify.max_user_watches)"
NO_INSTANCE = (
    "the limit of inotify instances (sysctl fs.inotify.max_user_instances) or of open files is reached"
)


@pytest.mark.parametrize(
    ("limit", "problem"), [("max_inotify_watches", NO_WATCH), ("max_inotify_instances", NO_INSTANCE)]
)
def test_without_any_inotify_watch_or_instance_it_says_so_and_recovers_when_there_is_one(
    limit: str, problem: str, tmp_path: Path
) -> None:
    assert run_apart(NO_WATCHES, limit, str(tmp_path), start=OWN_USER) == [problem, problem]


NO_DESCRIPTORS = """
import os, resource
from cdigen.watch.files import FileSource

source = FileSource(("/",))
first = os.open("/", os.O_RDONLY)
resource.setrlimit(resource.RLIMIT_NOFILE, (first + 2, first + 2))
source.start(print)
print(source.problem())
source.stop()
assert os.open("/", os.O_RDONLY) == first + 1
"""


def test_without_descriptors_it_says_so_and_keeps_none() -> None:
    # There is one for the instance, and none for the pipe that ends its thread.
    assert run_apart(NO_DESCRIPTORS, start=("unshare", "--user", "--uts")) == [NO_INSTANCE]


COMPARED = """
import os, sys
from pathlib import Path
from support.daemon.watching import Ear
from cdigen.watch.files import FileSource

Path("/proc/sys/user", sys.argv[1]).write_text(sys.argv[2])
folder, ear = Path(sys.argv[3]), Ear()
source = FileSource((str(folder / "specs/*.json"), str(folder / "later/one")), compare_s=0.05)
(folder / "specs").mkdir()
(folder / "specs/there.json").write_text("{}")
source.start(ear.inbox.put)
def changes(reason, work):
    ear.forget()
    work()
    assert ear.hears(reason), (reason, ear.reasons)
there, specs = folder / "specs/there.json", f"{folder}/specs changed"
ear.forget()
(folder / "specs/notes").touch()
(folder / "else").mkdir()
assert ear.hears_nothing(), ear.reasons
changes(specs, there.unlink)
changes(specs, lambda: there.write_text("{}"))
changes(specs, lambda: there.write_text("[]"))
changes(specs, lambda: there.chmod(0o600))
changes(specs, lambda: os.replace(there, folder / "specs/other.json"))
# What did not exist when it began: whoever hears of its folder looks, and arms anew.
changes(f"{folder} changed", (folder / "later").mkdir)
source.rearm((str(folder / "specs/*.json"), str(folder / "later/one")))
changes(f"{folder}/later changed", (folder / "later/one").touch)
print(source.problem())
source.stop()
ear.forget()
there.touch()
assert ear.hears_nothing(), ear.reasons
"""


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.parametrize(
    ("limit", "number"),
    [("max_inotify_instances", 0), ("max_inotify_watches", 0), ("max_inotify_watches", 3)],
)
def test_what_cannot_be_watched_is_compared(limit: str, number: int, tmp_path: Path) -> None:
    (said,) = run_apart(COMPARED, limit, str(number), str(tmp_path), start=OWN_USER)
    assert f"sysctl fs.inotify.max_user_{limit.rpartition('_')[2]}" in said


FEW_WATCHES = """
import sys
from pathlib import Path
from support.daemon.watching import Ear
from cdigen.watch.files import FileSource

folder, ear = Path(sys.argv[1]), Ear()
for name in "abcdef":
    (folder / name).mkdir()
above = len(folder.parents) + 1
Path("/proc/sys/user/max_inotify_watches").write_text(str(above + 3))
source = FileSource(tuple(str(folder / name) for name in "abcdef"))
source.start(ear.inbox.put)
print(source.problem())
(folder / "a/file").touch()
assert ear.hears(f"{folder}/a/file changed")
"""


def test_where_watches_run_out_the_others_work_and_the_first_missing_one_is_named(tmp_path: Path) -> None:
    (said,) = run_apart(FEW_WATCHES, str(tmp_path), start=OWN_USER)
    assert said.startswith(f"{tmp_path}/d is not watched: the limit of inotify watches is reached")


FORBIDDEN = """
import os, sys
from cdigen.watch.files import FileSource

os.chmod(sys.argv[1], 0o311)
os.setresuid(65534, 65534, 65534)
source = FileSource((sys.argv[1],))
source.start(print)
print(source.problem())
source.stop()
"""


@pytest.mark.needs_root
def test_a_folder_that_may_not_be_read_is_a_problem_that_names_it() -> None:
    # Below pytest's own folders, others may not even see a folder.
    with TemporaryDirectory() as closed:
        (said,) = run_apart(FORBIDDEN, closed, start=("unshare", "--uts"))
    assert said == f"{closed} is not watched: Permission denied"


@kills_threads
def test_a_thread_that_is_killed_is_a_problem_that_is_told_at_once(tmp_path: Path, ear: Ear) -> None:
    before = descriptors("inotify"), descriptors("pipe")
    source = ear.watch(tmp_path / "file")
    kill(thread_of("files"))
    (tmp_path / "file").touch()
    assert ear.hears("stopped by itself")
    assert source.problem() == "its thread has ended: killed"
    assert (descriptors("inotify"), descriptors("pipe")) == before


def kill_reader() -> None:
    kill(thread_of("inotify"), within="dispatch_events")


def break_descriptor() -> None:
    (descriptor,) = descriptors("inotify")
    put_null_in_place_of(descriptor)


@kills_threads
@pytest.mark.parametrize(
    ("end", "why"), [(kill_reader, "killed"), (break_descriptor, "the inotify descriptor was closed")]
)
def test_an_inotify_thread_that_has_ended_is_reported_at_once_and_leaves_nothing(
    end: Callable[[], None], why: str, tmp_path: Path, ear: Ear
) -> None:
    before = descriptors("inotify"), descriptors("pipe")
    source = ear.watch(tmp_path / "file")
    end()
    (tmp_path / "file").touch()
    assert ear.hears("stopped by itself")
    assert source.problem() == f"its thread has ended: the inotify thread has ended: {why}"
    assert (descriptors("inotify"), descriptors("pipe")) == before
    source.stop()
    source.start(ear.inbox.put)
    (tmp_path / "file").unlink()
    assert ear.hears(f"{tmp_path}/file changed")
    assert source.problem() == ""
