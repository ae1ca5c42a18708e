"""The doctor's checks of device nodes."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.doctor.broken_host import ALICE, BrokenHost
from support.hosts import amd_tree, mig
from support.hosts.access_list import set_access_list
from support.hosts.nvidia_kernel import Node, make_node

from cdigen.vendors.kernel.nodes import RUN_AS_ROOT

# A program that runs the doctor as another user. It first imports all modules, because this user may not read
# the modules.
AS_USER = """
import encodings.idna, fractions, importlib, json, os, pkgutil, sys, cdigen
for module in pkgutil.walk_packages(cdigen.__path__, "cdigen."):
    if "child" not in module.name and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from cdigen.cli.main import main
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


def test_the_remedy_recreates_a_node_with_wrong_numbers(host: BrokenHost) -> None:
    make_node(host.root, Node(path="/dev/nvidia0", major=195, minor=1))
    row = host.diagnosis()
    assert row["check"] == "node-wrong"
    assert ": 195:1, must be 195:0" in row["detail"]
    host.fixed(row)
    assert os.minor(host.path("dev/nvidia0").stat().st_rdev) == 0


def test_the_remedy_replaces_a_file_by_a_node(host: BrokenHost) -> None:
    host.path("dev/nvidiactl").unlink()
    host.put("dev/nvidiactl", "no node")
    row = host.diagnosis()
    assert row["check"] == "node-wrong"
    host.fixed(row)
    assert stat.S_ISCHR(host.path("dev/nvidiactl").stat().st_mode)


def test_links_in_dev_char_are_needed_if_systemd_runs(host: BrokenHost) -> None:
    assert host.result("node-links")["ok"]
    (host.root / "run/systemd/system").mkdir(parents=True)
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("node-links", "warning")
    host.fixed(row)
    assert (host.root / "dev/char/195:0").samefile(host.path("dev/nvidia0"))


def test_the_remedy_adds_the_user_to_the_group_of_the_node(host: BrokenHost) -> None:
    host.put("etc/passwd", ALICE)
    host.put("etc/group", "render:x:105:\n")
    node = host.path("dev/nvidia0")
    os.chown(node, 0, 105)
    node.chmod(0o660)
    row = host.result("node-access", "--user", "alice")
    assert not row["ok"]
    assert host.remedy_on_host(row) == "usermod --append --groups render alice"
    host.put("etc/group", "render:x:105:alice\n")
    assert host.result("node-access", "--user", "alice")["ok"]
    assert "keep-groups" in host.result("node-groups", "--user", "alice")["detail"]


def test_an_access_list_for_the_user_opens_a_node(host: BrokenHost) -> None:
    host.put("etc/passwd", ALICE)
    node = host.path("dev/nvidia0")
    node.chmod(0o600)
    set_access_list(node, "user::rw-,user:1000:rw-,group::---,mask::rw-,other::---")
    row = host.result("node-access", "--user", "alice")
    assert row["ok"]
    assert "/dev/nvidia0: by an entry for this user in the access list" in row["detail"]
    set_access_list(node, "user::rw-,user:1001:rw-,group::---,mask::rw-,other::---")
    assert not host.result("node-access", "--user", "alice")["ok"]


def test_the_remedy_adds_the_user_to_the_group_in_the_access_list(host: BrokenHost) -> None:
    host.put("etc/passwd", ALICE)
    host.put("etc/group", "gpu:x:900:\nvideo:x:44:\n")
    node = host.path("dev/nvidia0")
    os.chown(node, 0, 44)
    # The group bits of the mode are the mask: the owning group may not open the node.
    set_access_list(node, "user::rw-,group::---,group:900:rw-,mask::rw-,other::---")
    row = host.result("node-access", "--user", "alice")
    assert host.remedy_on_host(row) == "usermod --append --groups gpu alice"
    host.put("etc/group", "gpu:x:900:alice\nvideo:x:44:\n")
    assert host.result("node-access", "--user", "alice")["ok"]


def test_rootless_docker_loses_the_groups_of_the_user(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    host.put("etc/passwd", ALICE)
    host.put("etc/group", "render:x:105:alice\n")
    node = host.path("dev/nvidia0")
    os.chown(node, 0, 105)
    node.chmod(0o660)
    assert host.result("node-groups", "--user", "alice")["ok"]
    host.put("home/alice/.config/docker/daemon.json", "{}")
    host.put("usr/bin/setfacl", "", mode=0o755)
    row = host.result("node-groups", "--user", "alice")
    assert (row["severity"], row["remedy"]) == ("warning", f"setfacl --modify user:1000:rw {node}")
    # setfacl changes the access list in this way.
    set_access_list(node, "user::rw-,user:1000:rw-,group::rw-,mask::rw-,other::---")
    rows = host.results("--user", "alice")
    assert "node-groups" not in {row["check"] for row in rows}


def test_joining_a_group_is_no_remedy_for_rootless_docker_alone(tmp_path: Path, real_nodes: None) -> None:  # noqa: ARG001
    host = BrokenHost(tmp_path / "host").make(
        "docker", lay=lambda root: amd_tree.write(root, amd_tree.mi210(1))
    )
    host.put("etc/passwd", ALICE)
    host.put("home/alice/.config/docker/daemon.json", "{}")
    host.put("usr/bin/setfacl", "", mode=0o755)
    row = host.result("node-access", "--user", "alice")
    assert row["severity"] == "error"
    assert row["remedy"].startswith(f"setfacl --modify user:1000:rw {host.root}/dev/")
    assert "permanent fix: a udev rule that sets OWNER" in row["detail"]


def test_the_remedy_permits_the_user_to_open_a_node(host: BrokenHost) -> None:
    host.put("etc/passwd", ALICE)
    host.path("dev/nvidia0").chmod(0o600)
    row = host.result("node-access", "--user", "alice")
    assert not row["ok"]
    host.shell(row["remedy"])
    assert host.result("node-access", "--user", "alice")["ok"]


def test_the_remedy_creates_missing_nodes_of_mig_instances(host: BrokenHost) -> None:
    mig.write_minors(host.root, 2)
    for gpu in range(2):
        mig.write_instance(host.root, gpu, 7, nodes=False)
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    assert (rows[0]["check"], rows[0]["severity"]) == ("node-missing", "error")
    gpus = next(row for row in rows if row["check"] == "gpus")
    assert "node-missing" in gpus["because"]
    host.shell(rows[0]["remedy"])
    assert host.result("node-missing")["ok"]


def test_a_wrong_node_has_the_severity_of_its_consequence(tmp_path: Path, real_nodes: None) -> None:  # noqa: ARG001
    host = BrokenHost(tmp_path / "host").make(
        "podman", lay=lambda root: amd_tree.write(root, amd_tree.mi210(2))
    )
    for node in host.path("dev/dri").glob("renderD*"):
        node.unlink()
        node.write_text("no node")
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("node-wrong", "error")
    host.fixed(row)


def test_the_remedy_replaces_a_link_by_a_node(tmp_path: Path, real_nodes: None) -> None:  # noqa: ARG001
    host = BrokenHost(tmp_path / "host").make(
        "podman", lay=lambda root: amd_tree.write(root, amd_tree.mi210(1))
    )
    node = host.path("dev/dri/renderD128")
    node.unlink()
    node.symlink_to(node.name)
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("node-wrong", "error")
    assert "udev" not in row["detail"]
    host.fixed(row)


@pytest.mark.usefixtures("real_nodes", "other_users")
def test_the_check_is_skipped_for_a_user_who_may_not_list_the_nodes() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        host = BrokenHost(Path(folder, "host")).make("podman")
        host.path("dev").chmod(0o700)
        command = [sys.executable, "-c", AS_USER, "doctor", "--json", "--root", str(host.root)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    row = next(row for row in json.loads(done.stdout) if row["check"] == "node-missing")
    assert (row["checked"], row["remedy"]) == (False, "")
    assert row["detail"].endswith(f"Permission denied; {RUN_AS_ROOT}")
