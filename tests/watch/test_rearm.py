"""Sources that are given something else to watch while they work."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from waiting import until
from watch.test_uevent_source import send
from watch.watching import KILLS, descriptors, is_watched, kill, run_apart
from watchdog.observers.api import BaseObserver

from cdigen.watch import files
from cdigen.watch.uevents import UeventSource
from cdigen.watch.waypoints import interests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from watch.watching import Ear

    from cdigen.watch.files import FileSource
    from cdigen.watch.waypoints import Interest


def test_links_stay_within_a_root_that_is_given_later(
    tmp_path: Path, ear: Ear, watch: Callable[..., FileSource]
) -> None:
    (tmp_path / "root/there").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to("/there")
    source = watch(tmp_path / "root/link/file")
    source.rearm((f"{tmp_path}/root/link/file",), roots=(str(tmp_path / "root"),))
    (tmp_path / "root/there/file").touch()
    assert ear.hears(f"{tmp_path}/root/there/file changed")


def test_a_folder_that_vanishes_while_watches_are_planned_is_watched_again(
    tmp_path: Path, ear: Ear, watch: Callable[..., FileSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise watchdog keeps the watch of the folder that was, and takes the next one for watched.
    folder = tmp_path / "folder"
    folder.mkdir()
    source = watch(folder / "file")

    def found(*given: tuple[str, ...]) -> dict[str, Interest]:
        planned = interests(*given)
        if folder.exists():
            folder.rmdir()
        return planned

    with monkeypatch.context() as patch:
        patch.setattr(files, "interests", found)
        source.rearm((f"{folder}/file",))
    # Its end is an event too, after which the folder would be watched again in any case.
    ear.forget()
    folder.mkdir()
    assert until(lambda: is_watched(folder))
    assert source.problem() == ""
    ear.forget()
    (folder / "file").touch()
    assert ear.hears(f"{folder}/file changed")


BOUND = """
import subprocess, sys
from pathlib import Path
from watch.watching import Ear
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
"""


def test_a_folder_that_is_bound_elsewhere_tells_of_what_either_wants(tmp_path: Path) -> None:
    assert run_apart(BOUND, str(tmp_path), start=("unshare", "--user", "--map-root-user", "--mount")) == []


def test_a_folder_that_is_removed_is_no_fault_of_a_thread(
    tmp_path: Path, watch: Callable[..., FileSource]
) -> None:
    folder = tmp_path / "folder"
    source = watch(folder / "file")
    said = set()
    for _ in range(10):
        folder.mkdir()
        assert until(lambda: is_watched(folder), within_s=5)
        folder.rmdir()
        asked_until_s = time.monotonic() + 0.02
        while time.monotonic() < asked_until_s:
            said.add(source.problem())
    assert said == {""}


@KILLS
def test_a_dead_observer_leaves_nothing_when_the_source_is_started_again(
    tmp_path: Path, ear: Ear, watch: Callable[..., FileSource]
) -> None:
    source = watch(tmp_path / "file")
    before = len(descriptors("inotify"))
    (observer,) = [thread for thread in threading.enumerate() if isinstance(thread, BaseObserver)]
    kill(observer, within="run")
    (tmp_path / "file").touch()
    assert until(lambda: source.problem() == "a thread of watchdog's has ended")
    source.stop()
    source.start(ear.inbox.put)
    assert len(descriptors("inotify")) == before


def test_subsystems_that_are_given_later_are_heard_and_a_look_follows(ear: Ear) -> None:
    source = UeventSource(("tty",))
    source.start(ear.inbox.put)
    try:
        source.rearm(("tty", "mem"))
        assert ear.hears("listening to more subsystems")
        send()
        assert ear.hears("mem change null")
        ear.forget()
        source.rearm(("mem",))
        assert ear.hears_nothing()
    finally:
        source.stop()
