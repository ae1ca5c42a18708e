"""Sources that are given something else to watch while they work."""

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

    from support.daemon.watching import Ear


def test_links_stay_within_a_root_that_is_given_later(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "root/there").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to("/there")
    source = ear.watch(tmp_path / "root/link/file")
    source.rearm((f"{tmp_path}/root/link/file",), roots=(str(tmp_path / "root"),))
    (tmp_path / "root/there/file").touch()
    assert ear.hears(f"{tmp_path}/root/there/file changed")


FLAP = """
import os, sys
while True:
    os.mkdir(sys.argv[1])
    os.rmdir(sys.argv[1])
"""


@pytest.mark.process
def test_a_folder_that_vanishes_while_watches_are_planned_is_watched_again(tmp_path: Path, ear: Ear) -> None:
    folder = tmp_path / "folder"
    # Planning all these takes longer than the folder exists.
    paths = (str(folder / "file"), *(f"{tmp_path}/{number}/file" for number in range(1000)))
    source = ear.watch(*paths)
    said = set()
    with subprocess.Popen([sys.executable, "-c", FLAP, str(folder)]) as flapping:
        assert until(lambda: ear.hears(f"{folder} changed"))
        for _ in range(10):
            source.rearm(paths)
            said.add(source.problem())
        flapping.kill()
    folder.mkdir(exist_ok=True)
    assert until(lambda: is_watched(folder))
    said.add(source.problem())
    ear.forget()
    (folder / "file").touch()
    assert ear.hears(f"{folder}/file changed")
    assert said == {""}


BOUND = """
import subprocess, sys
from pathlib import Path
from support.daemon.watching import Ear, watches
from cdigen.watch.files import FileSource

folder, ear = Path(sys.argv[1]), Ear()
(folder / "real/further").mkdir(parents=True)
(folder / "bound").mkdir()
subprocess.run(["mount", "--bind", folder / "real", folder / "bound"], check=True)
spec = folder / "real/spec"
spec.touch()
source = FileSource((str(spec), str(folder / "bound/further/file")))
source.start(ear.inbox.put)
spec.write_text("new")
assert ear.hears(f"{spec} changed", within_s=5), ear.reasons
# Both ways are one watch of the kernel's, which stays for the other when one is dropped.
before = watches()
source.rearm((str(spec),))
further = (folder / "real/further").stat().st_ino
assert watches() == [line for line in before if f" ino:{further:x} " not in line], (before, watches())
ear.forget()
spec.write_text("newer")
assert ear.hears(f"{spec} changed", within_s=5), ear.reasons
"""


def test_a_folder_that_is_bound_elsewhere_tells_of_what_either_wants(tmp_path: Path) -> None:
    assert run_apart(BOUND, str(tmp_path), start=(*OWN_USER, "--mount")) == []


def test_a_folder_that_is_removed_is_no_fault_of_a_thread(tmp_path: Path, ear: Ear) -> None:
    folder = tmp_path / "folder"
    source = ear.watch(folder / "file")
    said = set()
    for _ in range(10):
        folder.mkdir()
        assert until(lambda: is_watched(folder), within_s=5)
        folder.rmdir()
        asked_until_s = time.monotonic() + 0.02
        while time.monotonic() < asked_until_s:
            said.add(source.problem())
    assert said == {""}


UNMOUNTED = """
import subprocess, sys
from pathlib import Path
from support.daemon.watching import Ear
from cdigen.watch.files import FileSource

folder, ear = Path(sys.argv[1], "driver"), Ear()
folder.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
(folder / "lib").mkdir()
source = FileSource((str(folder / "lib/one"),))
source.start(ear.inbox.put)
subprocess.run(["umount", folder], check=True)
assert ear.hears(f"{folder} changed"), ear.reasons
ear.forget()
(folder / "lib").mkdir()
assert ear.hears(f"{folder}/lib changed"), ear.reasons
assert source.problem() == ""
"""


def test_a_file_system_that_is_unmounted_is_seen(tmp_path: Path) -> None:
    assert run_apart(UNMOUNTED, str(tmp_path), start=(*OWN_USER, "--mount")) == []


LOCKED = """
import os, sys
from pathlib import Path
from support.waiting import until
from support.daemon.watching import Ear
from cdigen.watch.files import FileSource

os.setresuid(65534, 65534, 65534)
folder, ear = Path(sys.argv[1], "folder"), Ear()
folder.mkdir()
source = FileSource((str(folder),))
source.start(ear.inbox.put)
folder.chmod(0)
assert ear.hears(f"{folder} changed"), ear.reasons
assert until(lambda: source.problem() == f"{folder} is not watched: Permission denied"), source.problem()
folder.chmod(0o700)
assert until(lambda: source.problem() == ""), source.problem()
ear.forget()
(folder / "file").touch()
assert ear.hears(f"{folder}/file changed"), ear.reasons
"""


@pytest.mark.usefixtures("real_root")
def test_a_folder_that_is_unreadable_for_a_while_is_watched_again() -> None:
    # Below pytest's own folders, others may not even see a folder.
    with TemporaryDirectory() as above:
        os.chmod(above, 0o777)
        assert run_apart(LOCKED, above, start=("unshare", "--uts")) == []


@pytest.mark.usefixtures("uevents")
def test_subsystems_that_are_given_later_are_heard_and_a_look_follows(ear: Ear) -> None:
    source = ear.start(UeventSource(("tty",)))
    source.rearm(("tty", "mem"))
    assert ear.hears("listening to more subsystems")
    send()
    assert ear.hears("mem change null")
    ear.forget()
    source.rearm(("mem",))
    assert ear.hears_nothing()
