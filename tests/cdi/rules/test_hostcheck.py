"""Checks of a document against its host."""

import os
import stat
from pathlib import Path

import pytest
from support.hosts.driver_files import link, put

from cdigen.cdi.rules.hostcheck import check_host
from cdigen.host.root import Root

NODE, BLOCK = "/dev/nvidia0", "/dev/block"
WHERE = "$.devices[0].containerEdits.deviceNodes[0]"


pytestmark = pytest.mark.usefixtures("real_nodes")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host with a GPU's node, a block device, a FIFO, a library and a hook."""
    (tmp_path / "dev").mkdir()
    os.mknod(tmp_path / "dev/nvidia0", stat.S_IFCHR | 0o666, os.makedev(195, 0))
    os.mknod(tmp_path / "dev/block", stat.S_IFBLK | 0o600, os.makedev(7, 1))
    os.mkfifo(tmp_path / "dev/fifo")
    link(tmp_path / "dev/link", "nvidia0")
    link(tmp_path / "dev/loop", "loop")
    put(tmp_path / "lib/libcuda.so.1")
    link(tmp_path / "lib/libcuda.so", "libcuda.so.1")
    link(tmp_path / "lib/dangling", "nowhere")
    put(tmp_path / "bin/hook", mode=0o755)
    put(tmp_path / "bin/text")
    return tmp_path


def document(**edits: object) -> dict[str, object]:
    return {"kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": edits}]}


def problems(root: Path, spec: dict[str, object]) -> list[tuple[str, str, str]]:
    found = check_host(spec, Root(str(root)))
    assert all(finding.severity == "error" for finding in found)
    return [(finding.rule, finding.path, finding.message) for finding in found]


def node_problem(root: Path, **node: object) -> str:
    ((rule, path, message),) = problems(root, document(deviceNodes=[node]))
    assert (rule, path) == ("host-node-wrong", WHERE)
    return message


@pytest.mark.parametrize(
    "node",
    [
        {"path": NODE},
        {"path": "/dev/other", "hostPath": NODE},
        {"path": NODE, "type": "c", "major": 195, "minor": 0},
        {"path": BLOCK, "type": "b"},
        {"path": "/dev/fifo", "type": "p"},
        {"path": NODE, "minor": 7},
    ],
    ids=["plain", "host path", "numbers", "block", "FIFO", "minor without major"],
)
def test_a_node_of_the_declared_type_is_valid(root: Path, node: dict[str, object]) -> None:
    assert problems(root, document(deviceNodes=[node])) == []


@pytest.mark.parametrize(
    "node",
    [
        {"path": BLOCK},
        {"path": "/dev/fifo"},
        {"path": "/lib/libcuda.so.1"},
        {"path": "/dev"},
        {"path": NODE, "type": "b"},
        {"path": "/dev/other", "hostPath": BLOCK},
    ],
    ids=["block", "FIFO", "file", "folder", "other type", "host path"],
)
def test_a_node_whose_type_is_not_the_declared_type_is_wrong(root: Path, node: dict[str, object]) -> None:
    assert "is not a device of type" in node_problem(root, **node)


def test_a_link_to_a_node_is_wrong_because_runtimes_do_not_follow_links(root: Path) -> None:
    assert "is not a device of type 'c'" in node_problem(root, path="/dev/link")


def test_a_missing_node_is_wrong(root: Path) -> None:
    assert node_problem(root, path="/dev/nvidia1") == "/dev/nvidia1 on the host: No such file or directory"


def test_a_node_whose_numbers_differ_from_those_on_the_host_is_wrong(root: Path) -> None:
    node = {"path": NODE, "major": 510, "minor": 0}
    message = "/dev/nvidia0 on the host has the numbers 195:0, not 510:0"
    assert problems(root, document(deviceNodes=[node])) == [("host-node-numbers", WHERE, message)]


@pytest.mark.parametrize("path", ["/lib/libcuda.so.1", "/lib/libcuda.so", "/lib"])
def test_a_mount_of_an_existing_path_is_valid(root: Path, path: str) -> None:
    assert problems(root, document(mounts=[{"hostPath": path, "containerPath": "/x"}])) == []


@pytest.mark.parametrize("path", ["/lib/missing", "/lib/dangling", "/dev/loop", "/lib/libcuda.so.1/below"])
def test_a_mount_of_a_missing_path_is_wrong(root: Path, path: str) -> None:
    good = {"hostPath": "/lib", "containerPath": "/y"}
    spec = document(mounts=[good, {"hostPath": path, "containerPath": "/x"}])
    ((rule, where, message),) = problems(root, spec)
    assert (rule, where) == ("host-path-missing", "$.devices[0].containerEdits.mounts[1].hostPath")
    assert message.startswith(f"{path} on the host: ")


@pytest.mark.parametrize("path", ["/bin/missing", "/bin/text", "/bin"])
def test_a_hook_that_cannot_be_executed_is_wrong(root: Path, path: str) -> None:
    ((rule, where, _),) = problems(root, document(hooks=[{"hookName": "createContainer", "path": path}]))
    assert (rule, where) == ("host-hook-wrong", "$.devices[0].containerEdits.hooks[0].path")


def test_an_executable_hook_is_valid(root: Path) -> None:
    assert problems(root, document(hooks=[{"hookName": "createContainer", "path": "/bin/hook"}])) == []


def test_the_edits_that_all_devices_share_are_checked_as_well(root: Path) -> None:
    spec = {**document(), "containerEdits": {"mounts": [{"hostPath": "/no", "containerPath": "/x"}]}}
    assert [path for _, path, _ in problems(root, spec)] == ["$.containerEdits.mounts[0].hostPath"]


def test_every_problem_on_the_host_is_reported(root: Path) -> None:
    mounts = [{"hostPath": path, "containerPath": "/x"} for path in ("/no", "/lib", "/no")]
    spec = document(mounts=mounts, deviceNodes=[{"path": "/dev/no"}])
    assert len(problems(root, spec)) == 3


def test_a_path_that_exists_only_outside_of_the_root_is_missing(root: Path) -> None:
    link(root / "lib/escape", str(Path(__file__)))
    spec = document(mounts=[{"hostPath": "/lib/escape", "containerPath": "/x"}])
    assert [rule for rule, _, _ in problems(root, spec)] == ["host-path-missing"]
