"""The creation of missing device nodes and of links in /dev/char; failures are findings."""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.hosts import driver_files
from support.hosts.mig import cap_node, minor_of, write_instance, write_minors
from support.hosts.nvidia import boot, make_any_instead, places

from cdigen.pipeline.driver.device_nodes import create_nodes
from cdigen.store.devnodes import make_node
from cdigen.vendors.nvidia.boot_nodes import BOOT_NODES
from cdigen.vendors.nvidia.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.findings import Finding

pytestmark = pytest.mark.usefixtures("real_nodes")
CAP = cap_node(minor_of(0, 7))


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Create a booted host with a MIG instance, and without /dev/nvidia-caps and the nodes in this folder."""
    driver_files.debian_13(tmp_path)
    boot(tmp_path, 1)
    write_minors(tmp_path, 1)
    write_instance(tmp_path, 0, 7, nodes=False)
    assert not (tmp_path / "dev/nvidia-caps").exists()
    return tmp_path


def created(host: Path) -> tuple[Finding, ...]:
    return create_nodes(BOOT_NODES, places(host))


def paths(findings: tuple[Finding, ...], rule: str) -> set[str]:
    return {finding.path for finding in findings if finding.rule == rule}


def set_parameter(host: Path, name: str, value: int) -> None:
    file = host / "proc/driver/nvidia/params"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{name}:")]
    file.write_text("\n".join([*lines, f"{name}: {value}"]) + "\n")


def test_missing_nodes_are_created_and_reported(host: Path) -> None:
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"):
        (host / "dev" / name).unlink()
    made = paths(created(host), "node-created")
    assert {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset", CAP.path} <= made
    assert VENDOR.missing_nodes(places(host)) == ()
    status = os.lstat(host / "dev/nvidia-uvm")
    assert (status.st_rdev, stat.S_IMODE(status.st_mode)) == (os.makedev(510, 0), 0o666)


def test_a_second_run_changes_nothing(host: Path) -> None:
    assert created(host)
    assert created(host) == ()


def test_every_node_has_a_link_by_its_numbers(host: Path) -> None:
    made = paths(created(host), "node-link-created")
    assert {"/dev/char/195:0", "/dev/char/195:255", "/dev/char/510:0", f"/dev/char/511:{CAP.minor}"} <= made
    assert os.readlink(host / "dev/char/195:0") == "../nvidia0"
    assert os.readlink(host / f"dev/char/511:{CAP.minor}") == f"../nvidia-caps/nvidia-cap{CAP.minor}"
    assert os.stat(host / "dev/char/510:0").st_rdev == os.makedev(510, 0)


def test_a_link_to_another_device_is_replaced(host: Path) -> None:
    (host / "dev/char").mkdir()
    (host / "dev/char/195:0").symlink_to("../nvidiactl")
    (host / "dev/char/195:255").symlink_to("../nothing")
    assert {"/dev/char/195:0", "/dev/char/195:255"} <= paths(created(host), "node-link-created")
    assert os.stat(host / "dev/char/195:0").st_rdev == os.makedev(195, 0)
    assert os.stat(host / "dev/char/195:255").st_rdev == os.makedev(195, 255)


def test_a_created_node_has_the_owner_and_mode_of_the_drivers_parameters(host: Path) -> None:
    for name, value in (("DeviceFileUID", 7), ("DeviceFileGID", 44), ("DeviceFileMode", 0o640)):
        set_parameter(host, name, value)
    (host / "dev/nvidia0").unlink()
    created(host)
    status = os.lstat(host / "dev/nvidia0")
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (7, 44, 0o640)


def test_nothing_is_created_if_the_driver_forbids_it(host: Path) -> None:
    set_parameter(host, "ModifyDeviceFiles", 0)
    (host / "dev/nvidia0").unlink()
    (finding,) = created(host)
    assert (finding.severity, finding.rule) == ("info", "node-creation-refused")
    assert "ModifyDeviceFiles is 0" in finding.message
    assert not (host / "dev/nvidia0").exists()
    assert not (host / "dev/char").exists()


@pytest.mark.parametrize("major", [1, 10, 226])
def test_no_node_is_created_with_the_major_of_another_device(host: Path, major: int) -> None:
    devices = host / "proc/devices"
    devices.write_text(devices.read_text().replace("510 nvidia-uvm", f"{major} nvidia-uvm"))
    for name in ("nvidia-uvm", "nvidia-uvm-tools"):
        (host / "dev" / name).unlink()
    created(host)
    assert not (host / "dev/nvidia-uvm").exists()


def test_a_node_that_cannot_be_created_does_not_prevent_other_nodes(host: Path) -> None:
    (host / "dev/nvidia-caps").write_text("")
    (host / "dev/nvidia0").unlink()
    findings = created(host)
    failed = [finding for finding in findings if finding.severity == "error"]
    assert {finding.rule for finding in failed} == {"node-not-created"}
    assert CAP.path in {finding.path for finding in failed}
    assert "/dev/nvidia0" in paths(findings, "node-created")


def test_a_folder_at_the_path_of_a_link_is_an_error_and_is_not_removed(host: Path) -> None:
    (host / "dev/char/195:0").mkdir(parents=True)
    findings = created(host)
    assert paths(findings, "node-link-not-created") == {"/dev/char/195:0"}
    assert (host / "dev/char/195:0").is_dir()


def test_a_node_with_numbers_from_before_a_reload_of_the_module_is_replaced(host: Path) -> None:
    uvm = host / "dev/nvidia-uvm"
    uvm.unlink()
    os.mknod(uvm, stat.S_IFCHR | 0o666, os.makedev(499, 0))
    (finding,) = (each for each in created(host) if each.path == "/dev/nvidia-uvm")
    assert (finding.severity, finding.message) == (
        "info",
        "the device node /dev/nvidia-uvm (510:0) was replaced",
    )
    assert uvm.lstat().st_rdev == os.makedev(510, 0)
    assert created(host) == ()


@pytest.mark.parametrize("kind", ["regular file", "folder", "FIFO", "block device", "looping link"])
def test_another_file_type_at_the_path_of_a_node_is_an_error_in_each_run(host: Path, kind: str) -> None:
    make_any_instead(host / "dev/nvidia-uvm", kind)
    (host / "dev/nvidia0").unlink()
    findings = created(host)
    assert paths(findings, "node-not-created") == {"/dev/nvidia-uvm"}
    assert "/dev/nvidia0" in paths(findings, "node-created")
    assert paths(created(host), "node-not-created") == {"/dev/nvidia-uvm"}


@pytest.mark.parametrize("name", ["nvidia-uvm", "nvidia-caps"])
def test_nothing_is_created_outside_dev_through_a_dangling_link(host: Path, name: str) -> None:
    (host / "dev/nvidia-uvm").unlink()
    (host / "dev" / name).symlink_to("/srv/data/node")
    assert paths(created(host), "node-not-created")
    assert not (host / "srv").exists()


def test_temporary_files_of_a_killed_run_are_removed(host: Path) -> None:
    killed = subprocess.Popen(["/bin/true"])
    killed.wait()
    for folder in ("dev", "dev/char"):
        (host / folder).mkdir(exist_ok=True)
        (host / folder / f".cdigen-x.{killed.pid}.tmp").symlink_to("nowhere")
    created(host)
    assert not list((host / "dev").rglob("*.tmp"))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("mig/config", "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 0\n"),
        ("mig/config", "DeviceFileMinor: 1\n"),
        ("mig/config", ""),
        ("gpu0/mig/gi7/access", f"DeviceFileMinor: {CAP.minor}\nDeviceFileModify: 1\n"),
    ],
)
def test_a_capability_without_a_mode_or_with_modify_0_gets_no_node(host: Path, path: str, text: str) -> None:
    (host / "proc/driver/nvidia/capabilities" / path).write_text(text)
    expected = "/dev/nvidia-caps/nvidia-cap1" if path == "mig/config" else CAP.path
    findings = created(host)
    assert expected not in {finding.path for finding in findings}
    assert "/dev/nvidia-caps/nvidia-cap2" in paths(findings, "node-created")


def test_nodes_that_udev_created_meanwhile_are_found(host: Path) -> None:
    context = places(host)
    for node in VENDOR.missing_nodes(context):
        assert make_node(f"{host}{node.path}", node)
    assert not context.dev.exists(CAP.path)
    assert paths(create_nodes(BOOT_NODES, context), "node-created") == set()
    assert VENDOR.missing_nodes(context) == ()


def test_links_to_nodes_of_a_driver_container_are_created_on_the_host(host: Path) -> None:
    inner = host / "run/nvidia/driver"
    inner.mkdir(parents=True)
    (host / "dev").rename(inner / "dev")
    create_nodes(BOOT_NODES, places(host, dev="/run/nvidia/driver"))
    assert os.readlink(host / "dev/char/195:0") == "/run/nvidia/driver/dev/nvidia0"
