"""The poll source reports created, removed and replaced roots, and waits briefly for its first reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.host import with_hanging_mounts
from support.daemon.watching import OWN_MOUNTS, run_apart
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from support.daemon.watching import TriggerRecorder


def test_changes_deep_in_a_root_are_not_reported(tmp_path: Path, recorder: TriggerRecorder) -> None:
    (tmp_path / "root/proc/1").mkdir(parents=True)
    recorder.poll().rearm((), (str(tmp_path / "root"),))
    (tmp_path / "root/proc/2").mkdir()
    assert recorder.receives_nothing()


def test_a_created_removed_or_replaced_root_is_reported(tmp_path: Path, recorder: TriggerRecorder) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    recorder.poll().rearm((), (str(root),))
    root.mkdir()
    assert recorder.receives(f"{root} changed")
    recorder.clear()
    other.mkdir()
    root.rename(tmp_path / "old")
    other.rename(root)
    assert recorder.receives(f"{root} changed")
    recorder.clear()
    root.rmdir()
    assert recorder.receives(f"{root} changed")


MOUNTED = """
import subprocess, sys, time
from support.daemon.watching import TriggerRecorder
root, tree = sys.argv[1:]
recorder = TriggerRecorder()
recorder.poll().rearm((), (root,))
def changes(*command):
    subprocess.run(command, check=True)
    print(recorder.receives(root + " changed"))
    recorder.clear()
changes("mount", "-t", "tmpfs", "none", root)
changes("umount", root)
changes("mount", "--bind", tree, root)
# The new mount is made at once. It may have the same device number and mount ID as the previous mount.
changes("sh", "-c", "umount $0; mount -t tmpfs none $0", root)
changes("sh", "-c", "umount $0; mount -t tmpfs none $0", root)
recorder.stop()
"""


@pytest.mark.usefixtures("own_mounts")
def test_a_mount_over_a_root_is_reported_even_if_it_is_similar_to_the_previous_mount(tmp_path: Path) -> None:
    for name in ("root", "tree"):
        (tmp_path / name).mkdir()
    folders = [f"{tmp_path}/{name}" for name in ("root", "tree")]
    assert run_apart(MOUNTED, *folders, start=OWN_MOUNTS) == ["True"] * 5


SLOW = """
import os, sys
from support.daemon import hanging_mount
from support.daemon.watching import TriggerRecorder, quickest
from cdigen.watch.poll import FIRST_S
folder, recorder = sys.argv[1], TriggerRecorder()
server = hanging_mount.mount(folder)
source = recorder.poll()
paths = [(folder + "/a",), (folder + "/a", "/b"), (folder + "/a", "/c")]
print(quickest(lambda: source.rearm(paths.pop(0))) < 4 * FIRST_S)
print(recorder.receives_nothing())
os.close(server)
print(recorder.receives("the first reading took long"))
recorder.clear()
print(recorder.receives_nothing())
recorder.stop()
"""


@pytest.mark.usefixtures("own_mounts")
def test_a_long_first_reading_does_not_delay_rearming_and_puts_a_trigger_at_its_end(
    tmp_path: Path,
) -> None:
    assert run_apart(SLOW, str(tmp_path), start=with_hanging_mounts()) == ["True"] * 4


def test_rearming_reads_new_paths_before_it_returns(tmp_path: Path, recorder: TriggerRecorder) -> None:
    path = tmp_path / "version"
    path.write_text("1")
    recorder.poll(interval_s=0.2).rearm((str(path),))
    path.write_text("2")
    assert recorder.receives(f"{path} changed")


def test_rearming_with_the_same_paths_puts_no_trigger(tmp_path: Path, recorder: TriggerRecorder) -> None:
    source = recorder.poll()
    source.rearm((str(tmp_path),), ("/",))
    source.rearm((), ("/",))
    source.rearm((), ("/",))
    assert until(lambda: source.problem() == "")
    assert recorder.receives_nothing()
