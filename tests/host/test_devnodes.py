"""Device nodes are read as the runtimes read them."""

import os
import stat
from pathlib import Path

import pytest
from support.hosts.driver_files import link
from support.hosts.nvidia import make_any_instead, make_instead

from cdigen.host.devnodes import NotADevice, read_node
from cdigen.host.root import Root

pytestmark = pytest.mark.usefixtures("real_nodes")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    os.mknod(tmp_path / "dev/gpu", stat.S_IFCHR | 0o600, os.makedev(4095, 1048575))
    (tmp_path / "dev/gpu").chmod(0o664)
    os.chown(tmp_path / "dev/gpu", 7, 44)
    return tmp_path


def test_a_node_is_read_with_its_numbers_mode_and_owner(root: Path) -> None:
    node = read_node(Root(str(root)), "/dev/gpu", role="gpu", capabilities=("compute",))
    assert (node.major, node.minor) == (4095, 1048575)
    assert (node.mode, node.uid, node.gid) == (0o664, 7, 44)
    assert (node.path, node.host_path) == ("/dev/gpu", "/dev/gpu")
    assert (node.role, node.capabilities) == ("gpu", ("compute",))


def test_a_link_keeps_its_container_path_and_has_its_target_as_host_path(root: Path) -> None:
    link(root / "dev/alias", "gpu")
    node = read_node(Root(str(root)), "/dev/alias", role="gpu")
    assert (node.path, node.host_path) == ("/dev/alias", "/dev/gpu")


def test_the_host_path_of_a_node_below_another_root_has_the_prefix_of_this_root(root: Path) -> None:
    (root / "srv").mkdir()
    (root / "dev").rename(root / "srv/dev")
    node = read_node(Root(str(root)).below("/srv"), "/dev/gpu", role="gpu")
    assert (node.path, node.host_path) == ("/dev/gpu", "/srv/dev/gpu")


@pytest.mark.parametrize("kind", ["regular file", "folder", "FIFO", "block device"])
def test_the_error_for_a_file_of_another_type_contains_the_type(root: Path, kind: str) -> None:
    make_any_instead(root / "dev/gpu", kind)
    with pytest.raises(NotADevice, match=f"/dev/gpu is a {kind}, not a character device"):
        read_node(Root(str(root)), "/dev/gpu", role="gpu")


@pytest.mark.parametrize("kind", ["dangling link", "looping link"])
def test_a_dangling_or_circular_link_raises_an_os_error(root: Path, kind: str) -> None:
    make_instead(root / "dev/gpu", kind)
    with pytest.raises(OSError, match=r"No such file|Too many levels"):
        read_node(Root(str(root)), "/dev/gpu", role="gpu")
