"""The observer of folders by itself: numbers of watches, and the life of its descriptors."""

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
    """Take an event."""


@pytest.fixture
def observer() -> Iterator[FolderObserver]:
    """Return an observer whose thread runs."""
    observer = FolderObserver(ignore, ignore)
    observer.start()
    yield observer
    observer.stop()
    observer.join(PATIENCE_S)
    assert not observer.is_alive()


def test_a_folder_keeps_its_number_until_it_is_another_folder(
    tmp_path: Path, observer: FolderObserver
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    first = observer.watch(str(folder), IN_CREATE)
    assert observer.watch(str(tmp_path / "folder/../folder"), IN_CREATE) == first
    folder.rmdir()
    folder.mkdir()
    assert observer.watch(str(folder), IN_CREATE) != first
    # The kernel has removed it already.
    observer.forget(first)
    assert len(watches()) == 1


def test_neither_a_link_nor_a_file_is_watched(tmp_path: Path, observer: FolderObserver) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(OSError, match="Not a directory") as error:
            observer.watch(str(tmp_path / name), IN_CREATE)
        assert error.value.errno == ENOTDIR


def test_an_observer_that_never_started_keeps_no_descriptor_once_stopped() -> None:
    before = descriptors("inotify"), descriptors("pipe")
    observer = FolderObserver(ignore, ignore)
    observer.stop()
    observer.stop()
    assert (descriptors("inotify"), descriptors("pipe")) == before


def test_an_observer_that_has_ended_touches_no_other_instance(tmp_path: Path) -> None:
    ended = FolderObserver(ignore, ignore)
    numbers = descriptors("inotify")
    ended.stop()
    other = FolderObserver(ignore, ignore)
    # The kernel gives a free number again.
    assert descriptors("inotify") == numbers
    other.watch(str(tmp_path), IN_CREATE)
    with pytest.raises(OSError, match="Bad file descriptor") as error:
        ended.watch(str(tmp_path.parent), IN_CREATE)
    ended.forget(1)
    assert error.value.errno == EBADF
    assert len(watches()) == 1
    other.stop()
