"""Device nodes are made completely, with the requested numbers, owner and mode, or not at all."""

import os
import stat
import subprocess
from collections.abc import Callable
from errno import EPERM
from pathlib import Path

import pytest
from support.hosts.nvidia import make_any_instead

from cdigen.model.errors import StoreError
from cdigen.model.inventory import HostNode
from cdigen.store.devnodes import link_node, make_node, sweep_nodes
from cdigen.value import replace

pytestmark = pytest.mark.usefixtures("real_nodes")

NODE = HostNode(
    path="/dev/nvidia-caps/nvidia-cap3",
    host_path="/dev/nvidia-caps/nvidia-cap3",
    role="capability",
    major=511,
    minor=3,
    mode=0o444,
    uid=0,
    gid=44,
)


def test_a_node_is_made_with_its_folder_numbers_owner_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "dev/nvidia-caps/nvidia-cap3"
    before = os.umask(0o077)
    try:
        assert make_node(str(path), NODE) == "created"
    finally:
        os.umask(before)
    status = path.lstat()
    assert stat.S_ISCHR(status.st_mode)
    assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (511, 3)
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o444, 0, 44)
    assert path.parent.stat().st_mode & 0o777 == 0o755
    assert os.listdir(path.parent) == ["nvidia-cap3"]


def test_an_existing_node_of_the_same_device_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-cap3"
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(511, 3))
    os.chown(path, 7, 7)
    assert make_node(str(path), NODE) == ""
    assert (path.lstat().st_uid, stat.S_IMODE(path.lstat().st_mode)) == (7, 0o600)


def test_another_character_device_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-cap3"
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(510, 3))
    assert make_node(str(path), NODE) == "replaced"
    assert (path.lstat().st_rdev, stat.S_IMODE(path.lstat().st_mode)) == (os.makedev(511, 3), 0o444)
    assert os.listdir(tmp_path) == ["nvidia-cap3"]


def status_of(path: Path) -> tuple[int, ...]:
    """Return the status of PATH without the access time."""
    found = path.lstat()
    return (
        found.st_ino,
        found.st_mode,
        found.st_uid,
        found.st_rdev,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


@pytest.mark.parametrize(
    ("kind", "called", "command"),
    [
        ("regular file", "a regular file", "rm "),
        ("folder", "a folder", "rmdir "),
        ("FIFO", "a FIFO", "rm "),
        ("block device", "a block device", "rm "),
        ("dangling link", "a symbolic link", "rm "),
        ("looping link", "a symbolic link", "rm "),
    ],
)
def test_a_file_that_is_not_a_character_device_is_an_error_and_stays(
    tmp_path: Path, kind: str, called: str, command: str
) -> None:
    path = tmp_path / "nvidia-cap3"
    make_any_instead(path, kind)
    before = status_of(path)
    with pytest.raises(StoreError, match=called) as caught:
        make_node(str(path), NODE)
    assert caught.value.hint == f"{command}{path}"
    assert status_of(path) == before
    assert os.listdir(tmp_path) == ["nvidia-cap3"]


def link(path: str) -> str:
    return link_node(path, "../nvidia0", NODE)


def make(path: str) -> str:
    return make_node(path, NODE)


@pytest.mark.parametrize("function", [make, link])
def test_no_node_or_link_is_made_in_a_directory_that_another_user_can_write_to(
    tmp_path: Path, function: Callable[[str], str]
) -> None:
    for change in (lambda folder: os.chown(folder, 1000, 0), lambda folder: folder.chmod(0o777)):
        folder = tmp_path / "dev"
        folder.mkdir()
        change(folder)
        with pytest.raises(StoreError, match=r"belongs to uid 1000|writable by everyone"):
            function(f"{folder}/nvidia0")
        folder.rmdir()


def test_a_file_at_the_path_of_a_link_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "511:3").write_text("something else")
    with pytest.raises(StoreError, match="a regular file"):
        link(str(tmp_path / "511:3"))
    assert (tmp_path / "511:3").read_text() == "something else"


def test_temporary_nodes_of_killed_processes_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    os.mknod(tmp_path / f".cdigen-nvidia0.{ended.pid}.tmp", stat.S_IFCHR | 0o600, os.makedev(195, 0))
    running = f".cdigen-nvidia0.{os.getpid()}.tmp"
    (tmp_path / running).symlink_to("../nvidia0")
    (tmp_path / "nvidia0.1.tmp").touch()
    sweep_nodes(str(tmp_path))
    assert set(os.listdir(tmp_path)) == {running, "nvidia0.1.tmp"}


def test_a_file_at_the_path_of_the_folder_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "dev").write_text("")
    with pytest.raises(StoreError, match="dev"):
        make_node(str(tmp_path / "dev/nvidia0"), NODE)


def test_a_temporary_file_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f".cdigen-nvidia-cap3.{os.getpid()}.tmp").write_text("")
    assert make_node(str(tmp_path / "nvidia-cap3"), NODE) == "created"
    assert os.listdir(tmp_path) == ["nvidia-cap3"]


def test_a_node_whose_owner_cannot_be_set_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.chown

    def chown(path: str, uid: int, gid: int, **options: int) -> None:
        if uid > 0:
            raise PermissionError(EPERM, os.strerror(EPERM), path)
        real(path, uid, gid, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "chown", chown)
    with pytest.raises(StoreError, match="not permitted"):
        make_node(str(tmp_path / "nvidia-cap3"), replace(NODE, uid=1000))
    assert os.listdir(tmp_path) == []
