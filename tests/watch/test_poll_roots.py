"""What a poll makes of roots, and who waits for its first reading."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run
from support.daemon.watching import Ear, run_apart
from support.waiting import until

from cdigen.watch.poll import PollSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INTERVAL_S = 0.02


@pytest.fixture
def source(ear: Ear) -> Iterator[PollSource]:
    """Return a poll of nothing that tells the ear."""
    made = PollSource((), INTERVAL_S)
    made.start(ear.inbox.put)
    yield made
    made.stop()


def test_what_happens_deep_in_a_root_is_not_told(tmp_path: Path, ear: Ear, source: PollSource) -> None:
    (tmp_path / "root/proc/1").mkdir(parents=True)
    source.rearm((), (str(tmp_path / "root"),))
    (tmp_path / "root/proc/2").mkdir()
    assert ear.hears_nothing()


def test_a_root_that_comes_goes_or_is_another_folder_is_told(
    tmp_path: Path, ear: Ear, source: PollSource
) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    source.rearm((), (str(root),))
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
from cdigen.watch.poll import PollSource
root, tree = sys.argv[1:]
ear, source = Ear(), PollSource((), 0.02)
source.start(ear.inbox.put)
source.rearm((), (root,))
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
source.stop()
"""


@pytest.mark.usefixtures("own_mounts")
def test_what_is_mounted_over_a_root_is_told_even_if_it_is_much_like_the_last(tmp_path: Path) -> None:
    for name in ("root", "tree"):
        (tmp_path / name).mkdir()
    said = run_apart(
        MOUNTED,
        str(tmp_path / "root"),
        str(tmp_path / "tree"),
        start=("unshare", "--mount", "--propagation", "private"),
    )
    assert said == ["True"] * 5


# A file system in user space whose server does not answer until it ends.
SLOW = """
import ctypes, os, sys
from support.daemon.watching import Ear, quickest
from cdigen.watch.poll import FIRST_S, PollSource
folder = sys.argv[1]
server = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"fuse", folder.encode(), b"fuse", 0, options):
    print("no fuse:", os.strerror(ctypes.get_errno()))
    sys.exit(0)
ear, source = Ear(), PollSource((), 0.02)
source.start(ear.inbox.put)
paths = [(folder + "/a",), (folder + "/a", "/b"), (folder + "/a", "/c")]
print(quickest(lambda: source.rearm(paths.pop(0))) < 4 * FIRST_S)
print(ear.hears_nothing())
os.close(server)
print(ear.hears("the first reading took long"))
ear.forget()
print(ear.hears_nothing())
source.stop()
"""


@pytest.mark.usefixtures("own_mounts")
def test_a_first_reading_that_takes_long_is_not_waited_for_and_makes_a_trigger_when_it_has_ended(
    tmp_path: Path,
) -> None:
    if not os.access("/dev/fuse", os.W_OK):
        cannot_run("/dev/fuse cannot be opened: run as root, on a kernel with FUSE")
    said = run_apart(SLOW, str(tmp_path), start=("unshare", "--mount", "--propagation", "private"))
    if said[0].startswith("no fuse"):
        cannot_run(said[0])
    assert said == ["True"] * 4


def test_what_is_new_has_been_read_when_rearming_ends(tmp_path: Path, ear: Ear) -> None:
    path = tmp_path / "version"
    path.write_text("1")
    source = PollSource((), 0.2)
    source.start(ear.inbox.put)
    try:
        source.rearm((str(path),))
        path.write_text("2")
        assert ear.hears(f"{path} changed")
    finally:
        source.stop()


def test_rearming_with_what_is_polled_already_does_not_wake_anybody(
    tmp_path: Path, ear: Ear, source: PollSource
) -> None:
    source.rearm((str(tmp_path),), ("/",))
    source.rearm((), ("/",))
    source.rearm((), ("/",))
    assert until(lambda: source.problem() == "")
    assert ear.hears_nothing()
