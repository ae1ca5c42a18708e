"""What a poll makes of roots, and who waits for its first reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.host import with_hanging_mounts
from support.daemon.watching import OWN_MOUNTS, run_apart
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from support.daemon.watching import Ear


def test_what_happens_deep_in_a_root_is_not_told(tmp_path: Path, ear: Ear) -> None:
    (tmp_path / "root/proc/1").mkdir(parents=True)
    ear.poll().rearm((), (str(tmp_path / "root"),))
    (tmp_path / "root/proc/2").mkdir()
    assert ear.hears_nothing()


def test_a_root_that_comes_goes_or_is_another_folder_is_told(tmp_path: Path, ear: Ear) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    ear.poll().rearm((), (str(root),))
    root.mkdir()
    assert ear.hears(f"{root} changed")
    ear.forget()
    other.mkdir()
    root.rename(tmp_path / "old")
    other.rename(root)
    assert ear.hears(f"{root} changed")
    ear.forget()
    root.rmdir()
    assert ear.hears(f"{root} changed")


MOUNTED = """
import subprocess, sys, time
from support.daemon.watching import Ear
root, tree = sys.argv[1:]
ear = Ear()
ear.poll().rearm((), (root,))
def changes(*command):
    subprocess.run(command, check=True)
    print(ear.hears(root + " changed"))
    ear.forget()
changes("mount", "-t", "tmpfs", "none", root)
changes("umount", root)
changes("mount", "--bind", tree, root)
# At once, and perhaps with the numbers of device and mount that the last one had.
changes("sh", "-c", "umount $0; mount -t tmpfs none $0", root)
changes("sh", "-c", "umount $0; mount -t tmpfs none $0", root)
ear.stop()
"""


@pytest.mark.usefixtures("own_mounts")
def test_what_is_mounted_over_a_root_is_told_even_if_it_is_much_like_the_last(tmp_path: Path) -> None:
    for name in ("root", "tree"):
        (tmp_path / name).mkdir()
    folders = [f"{tmp_path}/{name}" for name in ("root", "tree")]
    assert run_apart(MOUNTED, *folders, start=OWN_MOUNTS) == ["True"] * 5


SLOW = """
import os, sys
from support.daemon import hanging_mount
from support.daemon.watching import Ear, quickest
from cdigen.watch.poll import FIRST_S
folder, ear = sys.argv[1], Ear()
server = hanging_mount.mount(folder)
source = ear.poll()
paths = [(folder + "/a",), (folder + "/a", "/b"), (folder + "/a", "/c")]
print(quickest(lambda: source.rearm(paths.pop(0))) < 4 * FIRST_S)
print(ear.hears_nothing())
os.close(server)
print(ear.hears("the first reading took long"))
ear.forget()
print(ear.hears_nothing())
ear.stop()
"""


@pytest.mark.usefixtures("own_mounts")
def test_a_first_reading_that_takes_long_is_not_waited_for_and_makes_a_trigger_when_it_has_ended(
    tmp_path: Path,
) -> None:
    assert run_apart(SLOW, str(tmp_path), start=with_hanging_mounts()) == ["True"] * 4


def test_what_is_new_has_been_read_when_rearming_ends(tmp_path: Path, ear: Ear) -> None:
    path = tmp_path / "version"
    path.write_text("1")
    ear.poll(interval_s=0.2).rearm((str(path),))
    path.write_text("2")
    assert ear.hears(f"{path} changed")


def test_rearming_with_what_is_polled_already_does_not_wake_anybody(tmp_path: Path, ear: Ear) -> None:
    source = ear.poll()
    source.rearm((str(tmp_path),), ("/",))
    source.rearm((), ("/",))
    source.rearm((), ("/",))
    assert until(lambda: source.problem() == "")
    assert ear.hears_nothing()
