"""Sources whose paths are changed while the sources run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from support.daemon.watching import OWN_USER, is_watched, run_apart, send
from support.waiting import until

from cdigen.watch.uevents import UeventSource

if TYPE_CHECKING:
    from pathlib import Path

    from support.daemon.watching import TriggerRecorder


def test_links_stay_within_a_root_that_is_added_later(tmp_path: Path, recorder: TriggerRecorder) -> None:
    (tmp_path / "root/there").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to("/there")
    source = recorder.watch(tmp_path / "root/link/file")
    source.rearm((f"{tmp_path}/root/link/file",), roots=(str(tmp_path / "root"),))
    (tmp_path / "root/there/file").touch()
    assert recorder.receives(f"{tmp_path}/root/there/file changed")


FLAP = """
import os, sys
while True:
    os.mkdir(sys.argv[1])
    os.rmdir(sys.argv[1])
"""


@pytest.mark.process
def test_a_folder_that_vanishes_while_watches_are_planned_is_watched_again(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    folder = tmp_path / "folder"
    # The planning for all these paths takes longer than the folder exists.
    paths = (str(folder / "file"), *(f"{tmp_path}/{number}/file" for number in range(1000)))
    source = recorder.watch(*paths)
    problems = set()
    with subprocess.Popen([sys.executable, "-c", FLAP, str(folder)]) as flapping:
        assert until(lambda: recorder.receives(f"{folder} changed"))
        for _ in range(10):
            source.rearm(paths)
            problems.add(source.problem())
        flapping.kill()
    folder.mkdir(exist_ok=True)
    assert until(lambda: is_watched(folder))
    problems.add(source.problem())
    recorder.clear()
    (folder / "file").touch()
    assert recorder.receives(f"{folder}/file changed")
    assert problems == {""}


BOUND = """
import subprocess, sys
from pathlib import Path
from support.daemon.watching import TriggerRecorder, watches
from cdigen.watch.files import FileSource

folder, recorder = Path(sys.argv[1]), TriggerRecorder()
(folder / "real/further").mkdir(parents=True)
(folder / "bound").mkdir()
subprocess.run(["mount", "--bind", folder / "real", folder / "bound"], check=True)
spec = folder / "real/spec"
spec.touch()
source = FileSource((str(spec), str(folder / "bound/further/file")))
source.start(recorder.queue.put)
spec.write_text("new")
assert recorder.receives(f"{spec} changed", within_s=5), recorder.reasons
# Both paths share one watch of the kernel. The watch stays for one path when the other path is dropped.
before = watches()
source.rearm((str(spec),))
further = (folder / "real/further").stat().st_ino
assert watches() == [line for line in before if f" ino:{further:x} " not in line], (before, watches())
recorder.clear()
spec.write_text("newer")
assert recorder.receives(f"{spec} changed", within_s=5), recorder.reasons
"""


def test_a_bind_mounted_folder_is_watched_for_both_paths(tmp_path: Path) -> None:
    assert run_apart(BOUND, str(tmp_path), start=(*OWN_USER, "--mount")) == []


def test_a_removed_folder_is_not_a_fault_of_a_thread(tmp_path: Path, recorder: TriggerRecorder) -> None:
    folder = tmp_path / "folder"
    source = recorder.watch(folder / "file")
    problems = set()
    for _ in range(10):
        folder.mkdir()
        assert until(lambda: is_watched(folder), within_s=5)
        folder.rmdir()
        until_s = time.monotonic() + 0.02
        while time.monotonic() < until_s:
            problems.add(source.problem())
    assert problems == {""}


UNMOUNTED = """
import subprocess, sys
from pathlib import Path
from support.daemon.watching import TriggerRecorder
from cdigen.watch.files import FileSource

folder, recorder = Path(sys.argv[1], "driver"), TriggerRecorder()
folder.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
(folder / "lib").mkdir()
source = FileSource((str(folder / "lib/one"),))
source.start(recorder.queue.put)
subprocess.run(["umount", folder], check=True)
assert recorder.receives(f"{folder} changed"), recorder.reasons
recorder.clear()
(folder / "lib").mkdir()
assert recorder.receives(f"{folder}/lib changed"), recorder.reasons
assert source.problem() == ""
"""


def test_an_unmounted_file_system_is_reported(tmp_path: Path) -> None:
    assert run_apart(UNMOUNTED, str(tmp_path), start=(*OWN_USER, "--mount")) == []


LOCKED = """
import os, sys
from pathlib import Path
from support.waiting import until
from support.daemon.watching import TriggerRecorder
from cdigen.watch.files import FileSource

os.setresuid(65534, 65534, 65534)
folder, recorder = Path(sys.argv[1], "folder"), TriggerRecorder()
folder.mkdir()
source = FileSource((str(folder),))
source.start(recorder.queue.put)
folder.chmod(0)
assert recorder.receives(f"{folder} changed"), recorder.reasons
assert until(lambda: source.problem() == f"{folder} is not watched: Permission denied"), source.problem()
folder.chmod(0o700)
assert until(lambda: source.problem() == ""), source.problem()
recorder.clear()
(folder / "file").touch()
assert recorder.receives(f"{folder}/file changed"), recorder.reasons
"""


@pytest.mark.usefixtures("real_root")
def test_a_folder_that_becomes_readable_again_is_watched_again() -> None:
    # Other users have no access to pytest's folders.
    with TemporaryDirectory() as above:
        os.chmod(above, 0o777)
        assert run_apart(LOCKED, above, start=("unshare", "--uts")) == []


@pytest.mark.usefixtures("uevents")
def test_events_of_subsystems_that_are_added_later_are_received(
    recorder: TriggerRecorder,
) -> None:
    source = recorder.start(UeventSource(("tty",)))
    source.rearm(("tty", "mem"))
    assert recorder.receives("further subsystems are watched")
    send()
    assert recorder.receives("mem change null")
    recorder.clear()
    source.rearm(("mem",))
    assert recorder.receives_nothing()
