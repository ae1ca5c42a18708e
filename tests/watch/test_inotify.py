"""The watch numbers that the folder observer returns, and the lifetime of its file descriptors."""

from __future__ import annotations

from errno import EBADF, ENOTDIR
from typing import TYPE_CHECKING

import pytest
from support.daemon.watching import descriptors, watches
from support.waiting import PATIENCE_S

from cdigen.watch.inotify import IN_CREATE, FolderObserver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def ignore(*_: object) -> None:
    """Ignore an event."""


@pytest.fixture
def observer() -> Iterator[FolderObserver]:
    """Return an observer whose thread runs."""
    observer = FolderObserver(ignore, ignore)
    observer.start()
    yield observer
    observer.stop()
    observer.join(PATIENCE_S)
    assert not observer.is_alive()


def test_a_folder_keeps_its_watch_number_until_another_folder_replaces_it(
    tmp_path: Path, observer: FolderObserver
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    first = observer.watch(str(folder), IN_CREATE)
    assert observer.watch(str(tmp_path / "folder/../folder"), IN_CREATE) == first
    folder.rmdir()
    folder.mkdir()
    assert observer.watch(str(folder), IN_CREATE) != first
    # The kernel has already removed the watch.
    observer.forget(first)
    assert len(watches()) == 1


def test_links_and_files_are_not_watched(tmp_path: Path, observer: FolderObserver) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(OSError, match="Not a directory") as error:
            observer.watch(str(tmp_path / name), IN_CREATE)
        assert error.value.errno == ENOTDIR


def test_a_stopped_observer_that_never_started_keeps_no_descriptor() -> None:
    before = descriptors("inotify"), descriptors("pipe")
    observer = FolderObserver(ignore, ignore)
    observer.stop()
    observer.stop()
    assert (descriptors("inotify"), descriptors("pipe")) == before


def test_an_observer_that_has_ended_does_not_affect_another_observer(tmp_path: Path) -> None:
    ended = FolderObserver(ignore, ignore)
    numbers = descriptors("inotify")
    ended.stop()
    other = FolderObserver(ignore, ignore)
    # The kernel reuses the number of the closed descriptor.
    assert descriptors("inotify") == numbers
    other.watch(str(tmp_path), IN_CREATE)
    with pytest.raises(OSError, match="Bad file descriptor") as error:
        ended.watch(str(tmp_path.parent), IN_CREATE)
    ended.forget(1)
    assert error.value.errno == EBADF
    assert len(watches()) == 1
    other.stop()
