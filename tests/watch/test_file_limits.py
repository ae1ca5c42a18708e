"""The file source at the kernel's limits, during a flood of events, and after the loss of its thread."""

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
    TriggerRecorder,
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
from cdigen.watch.triggers import Trigger, TriggerQueue

if TYPE_CHECKING:
    from collections.abc import Callable


def test_thousands_of_events_are_merged_to_one_reason_for_each_path(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    recorder.watch(tmp_path / "lib*")
    for number in range(2000):
        (tmp_path / "lib.new").touch()
        (tmp_path / "lib.new").rename(tmp_path / f"lib{number % 3}")
    assert recorder.receives(*(f"{tmp_path}/lib{number} changed" for number in range(3)))


def test_after_an_overflow_of_the_kernels_queue_all_paths_are_watched_again(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    # The length of the queue is fs.inotify.max_queued_events. The queue fills while its reader is blocked.
    held, go_on = threading.Event(), threading.Event()

    def slow(trigger: Trigger) -> None:
        held.set()
        go_on.wait()
        recorder.queue.put(trigger)

    (tmp_path / "replaced").mkdir()
    source = FileSource((str(tmp_path), *(f"{tmp_path}/{name}/file" for name in ("later", "replaced"))))
    source.start(slow)
    try:
        (tmp_path / "begin").touch()
        assert held.wait(PATIENCE_S)
        fill_the_queue(tmp_path)
        # The kernel does not report these changes.
        shutil.rmtree(tmp_path / "replaced")
        (tmp_path / "replaced").mkdir()
        (tmp_path / "later").mkdir()
        go_on.set()
        new = [f"{tmp_path}/{name}" for name in ("later", "replaced")]
        assert recorder.receives(
            "events were lost: too many at once", *(f"{folder} changed" for folder in new)
        )
        for folder in new:
            Path(folder, "file").touch()
        assert recorder.receives(*(f"{folder}/file changed" for folder in new))
        assert source.problem() == ""
    finally:
        go_on.set()
        source.stop()


def fill_the_queue(folder: Path) -> None:
    with open("/proc/sys/fs/inotify/max_queued_events") as file:
        length = int(file.read())
    # Links and unlinks alternate, because the kernel merges equal consecutive events.
    origin = folder / "begin"
    for _ in range(length // 2 + 100):
        os.link(origin, folder / "link")
        os.unlink(folder / "link")


@pytest.mark.parametrize("paths", ["one", "*"])
def test_a_flood_of_events_uses_little_memory_and_does_not_delay_the_stop(paths: str, tmp_path: Path) -> None:
    queue = TriggerQueue()
    source = FileSource((str(tmp_path / paths),))
    source.start(queue.put)
    (tmp_path / "new").touch()
    done = threading.Event()
    flood = threading.Thread(target=rename_until, args=(done, tmp_path))
    flood.start()
    try:
        assert until(lambda: queue.peek().events > 1000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert until(lambda: queue.peek().events > 3000)
        assert len(queue.peek().triggers) <= 32
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048

        def restart() -> None:
            source.stop()
            source.start(queue.put)

        assert quickest(restart) < 1
        source.stop()
    finally:
        done.set()
        flood.join()
        source.stop()
    assert queue.take().events
    assert not queue.wait(0.05)


def rename_until(done: threading.Event, folder: Path) -> None:
    while not done.is_set():
        for _ in range(50):
            os.rename(folder / "new", folder / "one")
            os.rename(folder / "one", folder / "new")
        time.sleep(0.005)


NO_WATCHES = """
import sys
from pathlib import Path
from support.daemon.watching import TriggerRecorder
from cdigen.watch.files import FileSource
from cdigen.watch.supervisor import Supervisor

limit, folder = Path("/proc/sys/user", sys.argv[1]), Path(sys.argv[2])
limit.write_text("0")
now, recorder = 0.0, TriggerRecorder()
supervisor = Supervisor((FileSource((str(folder),)),), recorder.queue, clock=lambda: now)
supervisor.start()
print(supervisor.health()["files"])
for now in (supervisor.tick(), supervisor.tick() + 1):
    supervisor.tick()
print(supervisor.health()["files"])
limit.write_text("1000")
now += 60
supervisor.tick()
assert recorder.receives("started again"), recorder.reasons
assert supervisor.health()["files"] == "", supervisor.health()
recorder.clear()
(folder / "file").touch()
assert recorder.receives(f"{folder}/file changed")
supervisor.stop()
"""


NO_WATCH = "/ is not watched: the limit of inotify watches is reached (sysctl fs.inotify.max_user_watches)"
NO_INSTANCE = (
    "the limit of inotify instances (sysctl fs.inotify.max_user_instances) or of open files is reached"
)


@pytest.mark.parametrize(
    ("limit", "problem"), [("max_inotify_watches", NO_WATCH), ("max_inotify_instances", NO_INSTANCE)]
)
def test_a_reached_inotify_limit_is_reported_until_the_limit_is_raised(
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


def test_a_lack_of_descriptors_is_reported_and_no_descriptor_stays_open() -> None:
    # The limit permits a descriptor for the instance, and no descriptor for the pipe that ends its thread.
    assert run_apart(NO_DESCRIPTORS, start=("unshare", "--user", "--uts")) == [NO_INSTANCE]


COMPARED = """
import os, sys
from pathlib import Path
from support.daemon.watching import TriggerRecorder
from cdigen.watch.files import FileSource

Path("/proc/sys/user", sys.argv[1]).write_text(sys.argv[2])
folder, recorder = Path(sys.argv[3]), TriggerRecorder()
source = FileSource((str(folder / "specs/*.json"), str(folder / "later/one")), compare_s=0.05)
(folder / "specs").mkdir()
(folder / "specs/there.json").write_text("{}")
source.start(recorder.queue.put)
def changes(reason, work):
    recorder.clear()
    work()
    assert recorder.receives(reason), (reason, recorder.reasons)
there, specs = folder / "specs/there.json", f"{folder}/specs changed"
recorder.clear()
(folder / "specs/notes").touch()
(folder / "else").mkdir()
assert recorder.receives_nothing(), recorder.reasons
changes(specs, there.unlink)
changes(specs, lambda: there.write_text("{}"))
changes(specs, lambda: there.write_text("[]"))
changes(specs, lambda: there.chmod(0o600))
changes(specs, lambda: os.replace(there, folder / "specs/other.json"))
# The path did not exist at the start. The trigger of its folder causes a check, which arms the source again.
changes(f"{folder} changed", (folder / "later").mkdir)
source.rearm((str(folder / "specs/*.json"), str(folder / "later/one")))
changes(f"{folder}/later changed", (folder / "later/one").touch)
print(source.problem())
source.stop()
recorder.clear()
there.touch()
assert recorder.receives_nothing(), recorder.reasons
"""


@pytest.mark.usefixtures("own_mounts")
@pytest.mark.parametrize(
    ("limit", "number"),
    [("max_inotify_instances", 0), ("max_inotify_watches", 0), ("max_inotify_watches", 3)],
)
def test_folders_that_cannot_be_watched_are_compared(limit: str, number: int, tmp_path: Path) -> None:
    (problem,) = run_apart(COMPARED, limit, str(number), str(tmp_path), start=OWN_USER)
    assert f"sysctl fs.inotify.max_user_{limit.rpartition('_')[2]}" in problem


FEW_WATCHES = """
import sys
from pathlib import Path
from support.daemon.watching import TriggerRecorder
from cdigen.watch.files import FileSource

folder, recorder = Path(sys.argv[1]), TriggerRecorder()
for name in "abcdef":
    (folder / name).mkdir()
above = len(folder.parents) + 1
Path("/proc/sys/user/max_inotify_watches").write_text(str(above + 3))
source = FileSource(tuple(str(folder / name) for name in "abcdef"))
source.start(recorder.queue.put)
print(source.problem())
(folder / "a/file").touch()
assert recorder.receives(f"{folder}/a/file changed")
"""


def test_without_enough_watches_the_first_unwatched_folder_is_named(tmp_path: Path) -> None:
    (problem,) = run_apart(FEW_WATCHES, str(tmp_path), start=OWN_USER)
    assert problem.startswith(f"{tmp_path}/d is not watched: the limit of inotify watches is reached")


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
def test_a_folder_without_read_permission_is_reported_as_a_problem() -> None:
    # Other users have no access to pytest's folders.
    with TemporaryDirectory() as closed:
        (problem,) = run_apart(FORBIDDEN, closed, start=("unshare", "--uts"))
    assert problem == f"{closed} is not watched: Permission denied"


@kills_threads
def test_a_killed_thread_is_reported_at_once(tmp_path: Path, recorder: TriggerRecorder) -> None:
    before = descriptors("inotify"), descriptors("pipe")
    source = recorder.watch(tmp_path / "file")
    kill(thread_of("files"))
    (tmp_path / "file").touch()
    assert recorder.receives("stopped unexpectedly")
    assert source.problem() == "the source's thread has ended: killed"
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
def test_an_ended_inotify_thread_is_reported_at_once_and_leaves_no_descriptor(
    end: Callable[[], None], why: str, tmp_path: Path, recorder: TriggerRecorder
) -> None:
    before = descriptors("inotify"), descriptors("pipe")
    source = recorder.watch(tmp_path / "file")
    end()
    (tmp_path / "file").touch()
    assert recorder.receives("stopped unexpectedly")
    assert source.problem() == f"the source's thread has ended: the inotify thread has ended: {why}"
    assert (descriptors("inotify"), descriptors("pipe")) == before
    source.stop()
    source.start(recorder.queue.put)
    (tmp_path / "file").unlink()
    assert recorder.receives(f"{tmp_path}/file changed")
    assert source.problem() == ""
