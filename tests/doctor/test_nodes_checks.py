"""What the doctor says of device nodes."""

import os
import stat

from support.doctor.broken_host import ALICE, BrokenHost
from support.hosts.nvidia_kernel import Node, make_node


def test_a_node_with_wrong_numbers_is_made_anew(host: BrokenHost) -> None:
    make_node(host.root, Node(path="/dev/nvidia0", major=195, minor=1))
    row = host.diagnosis()
    assert row["check"] == "node-wrong"
    assert "is 195:1, and must be 195:0" in row["detail"]
    host.fixed(row)
    assert os.minor(host.path("dev/nvidia0").stat().st_rdev) == 0


def test_a_file_in_the_place_of_a_node_is_replaced(host: BrokenHost) -> None:
    host.path("dev/nvidiactl").unlink()
    host.put("dev/nvidiactl", "no node")
    row = host.diagnosis()
    assert row["check"] == "node-wrong"
    host.fixed(row)
    assert stat.S_ISCHR(host.path("dev/nvidiactl").stat().st_mode)


def test_links_in_dev_char_matter_where_systemd_runs(host: BrokenHost) -> None:
    assert host.result("node-links")["ok"]
    (host.root / "run/systemd/system").mkdir(parents=True)
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("node-links", "warning")
    host.fixed(row)
    assert (host.root / "dev/char/195:0").samefile(host.path("dev/nvidia0"))


def test_a_node_that_is_open_to_a_group_wants_the_user_in_it(host: BrokenHost) -> None:
    host.put("etc/passwd", ALICE)
    host.put("etc/group", "render:x:105:\n")
    node = host.path("dev/nvidia0")
    os.chown(node, 0, 105)
    node.chmod(0o660)
    row = host.result("node-access", "--user", "alice")
    assert not row["ok"]
    assert host.told(row) == "usermod --append --groups render alice"
    host.put("etc/group", "render:x:105:alice\n")
    assert host.result("node-access", "--user", "alice")["ok"]
    assert "keep-groups" in host.result("node-groups", "--user", "alice")["detail"]


def test_a_node_that_is_open_to_root_alone_is_opened(host: BrokenHost) -> None:
    host.put("etc/passwd", ALICE)
    host.path("dev/nvidia0").chmod(0o600)
    row = host.result("node-access", "--user", "alice")
    assert not row["ok"]
    host.shell(row["remedy"])
    assert host.result("node-access", "--user", "alice")["ok"]
