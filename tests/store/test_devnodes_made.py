"""Device nodes are made whole, with the numbers, owner and mode that were asked for, or not at all."""

import os
import stat
from pathlib import Path

import pytest

from cdigen.model.errors import StoreError
from cdigen.model.inventory import HostNode
from cdigen.store.devnodes import make_node

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
        assert make_node(str(path), NODE) is True
    finally:
        os.umask(before)
    status = path.lstat()
    assert stat.S_ISCHR(status.st_mode)
    assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (511, 3)
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (0o444, 0, 44)
    assert path.parent.stat().st_mode & 0o777 == 0o755
    assert os.listdir(path.parent) == ["nvidia-cap3"]


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-cap3"
    path.write_text("something else")
    assert make_node(str(path), NODE) is False
    assert path.read_text() == "something else"
    assert os.listdir(tmp_path) == ["nvidia-cap3"]


def test_a_dangling_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-cap3"
    path.symlink_to(tmp_path / "elsewhere")
    assert make_node(str(path), NODE) is False
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_in_place_of_the_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "dev").write_text("")
    with pytest.raises(StoreError, match="dev"):
        make_node(str(tmp_path / "dev/nvidia0"), NODE)


def test_rubbish_of_a_killed_process_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / f".cdigen-nvidia-cap3.{os.getpid()}.tmp").write_text("")
    assert make_node(str(tmp_path / "nvidia-cap3"), NODE) is True
    assert os.listdir(tmp_path) == ["nvidia-cap3"]
