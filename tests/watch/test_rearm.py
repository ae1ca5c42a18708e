"""Sources that are given something else to watch while they work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from watch.test_uevent_source import send

from cdigen.watch.uevents import UeventSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from watch.watching import Ear

    from cdigen.watch.files import FileSource


def test_links_stay_within_a_root_that_is_given_later(
    tmp_path: Path, ear: Ear, watch: Callable[..., FileSource]
) -> None:
    (tmp_path / "root/there").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to("/there")
    source = watch(tmp_path / "root/link/file")
    source.rearm((f"{tmp_path}/root/link/file",), roots=(str(tmp_path / "root"),))
    (tmp_path / "root/there/file").touch()
    assert ear.hears(f"{tmp_path}/root/there/file changed")


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
