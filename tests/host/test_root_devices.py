"""``Root`` never opens a device, because opening a device can have side effects."""

import ctypes
import errno
import os
import stat
import sys
from pathlib import Path

import pytest
from support.abilities import cannot_run
from support.hosts.driver_files import link, put

from cdigen.host.root import Root

IN_OPEN = 0x20  # inotify(7)
OTHER = 65534  # the overflow user
NULL = os.makedev(1, 3)


class Watch:
    """An inotify watch that reports whether any process opened the file PATH."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0 or libc.inotify_add_watch(self.descriptor, os.fsencode(path), IN_OPEN) < 0:
            cannot_run(f"a file cannot be watched here: {os.strerror(ctypes.get_errno())}")

    def was_opened(self) -> bool:
        try:
            return bool(os.read(self.descriptor, 4096))
        except BlockingIOError:
            return False
        finally:
            os.close(self.descriptor)


class Swap:
    """An audit hook that replaces the folder of the file ``name`` by a link before the file is opened."""

    name = ""

    @classmethod
    def note(cls, event: str, arguments: tuple[object, ...]) -> None:
        if cls.name and event == "open" and str(arguments[0]).endswith(cls.name):
            folder, cls.name = os.path.dirname(str(arguments[0])), ""
            os.rename(folder, f"{folder} kept")
            os.symlink("dev", folder)


sys.addaudithook(Swap.note)


@pytest.fixture
def node(tmp_path: Path, real_nodes: None) -> Path:  # noqa: ARG001 - skips if nodes cannot be created
    """Return a character device for which the kernel reports opens."""
    path = tmp_path / "dev/watchdog"
    path.parent.mkdir()
    os.mknod(path, stat.S_IFCHR | 0o600, NULL)
    watch = Watch(path)
    os.close(os.open(path, os.O_RDONLY))
    if not watch.was_opened():
        cannot_run("the kernel does not report that a device was opened")
    return path


def refused(root: Root, path: str) -> bool:
    with pytest.raises(OSError, match="not a regular file") as caught:
        root.read(path)
    return caught.value.errno == errno.EISDIR


def test_a_device_is_refused_without_being_opened(tmp_path: Path, node: Path) -> None:
    watch = Watch(node)
    assert refused(Root(str(tmp_path)), "/dev/watchdog")
    assert not watch.was_opened()


def test_a_device_behind_a_users_link_is_refused_without_being_opened(tmp_path: Path, node: Path) -> None:
    link(tmp_path / "home/cdi/w.json", "/dev/watchdog")
    watch = Watch(node)
    assert refused(Root(str(tmp_path)), "/home/cdi/w.json")
    assert not watch.was_opened()


def test_a_device_behind_a_link_to_its_folder_is_refused_without_being_opened(
    tmp_path: Path, node: Path
) -> None:
    link(tmp_path / "home/cdi", "/dev")
    watch = Watch(node)
    assert refused(Root(str(tmp_path)), "/home/cdi/watchdog")
    assert not watch.was_opened()


def test_a_device_swapped_in_by_the_owner_of_a_file_is_not_opened(tmp_path: Path, node: Path) -> None:
    put(tmp_path / "home/watchdog", b"a user's")
    os.chown(tmp_path / "home/watchdog", OTHER, OTHER)
    watch = Watch(node)
    Swap.name = "/home/watchdog"
    assert refused(Root(str(tmp_path)), "/home/watchdog")
    assert (tmp_path / "home").is_symlink()
    assert not watch.was_opened()


def test_a_file_of_another_user_is_read_and_no_descriptor_is_left(tmp_path: Path, real_root: None) -> None:  # noqa: ARG001 - skips without root
    put(tmp_path / "a", b"content")
    os.chown(tmp_path / "a", OTHER, OTHER)
    before = os.listdir("/proc/self/fd")
    assert Root(str(tmp_path)).read("/a") == b"content"
    assert os.listdir("/proc/self/fd") == before
