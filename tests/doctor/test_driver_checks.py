"""What the doctor says of the driver and its nodes."""

import os
import shutil
import stat

from doctor.brokenhost import BrokenHost
from kernelside import Node, make_node, write_driver


def test_a_module_that_is_not_loaded_is_the_cause_of_all_that_follows(host: BrokenHost) -> None:
    shutil.rmtree(host.root / "proc/driver")
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    assert (rows[0]["check"], host.told(rows[0])) == ("driver-loaded", "modprobe nvidia")


def test_a_driver_that_is_gone_is_why_the_spec_does_not_hold(host: BrokenHost) -> None:
    shutil.rmtree(host.root / "proc/driver")
    host.path("dev/nvidiactl").unlink()
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    assert [row["check"] for row in rows] == ["driver-loaded", "spec-files"]
    assert "driver-loaded" in rows[1]["because"]


def test_nouveau_is_named_where_it_holds_the_gpus(host: BrokenHost) -> None:
    shutil.rmtree(host.root / "proc/driver")
    for link in (host.root / "sys/devices").glob("*/*/driver"):
        link.unlink()
        link.symlink_to("../../../bus/pci/drivers/nouveau")
    (host.root / "sys/bus/pci/drivers/nouveau").mkdir()
    row = host.diagnosis()
    assert "nouveau holds 2 GPUs" in row["detail"]
    assert host.told(row) == "modprobe -r nouveau && modprobe nvidia"


def test_a_kernel_without_the_module_gets_one_from_dkms(host: BrokenHost) -> None:
    shutil.rmtree(host.root / "proc/driver")
    host.put("proc/sys/kernel/osrelease", "6.12.1-amd64\n")
    host.put("lib/modules/6.12.1-amd64/modules.dep", "kernel/fs/ext4/ext4.ko:\n")
    host.put("usr/sbin/dkms", "", mode=0o755)
    row = host.diagnosis()
    assert "no module of it for the kernel 6.12.1-amd64" in row["detail"]
    assert host.told(row) == "dkms autoinstall && modprobe nvidia"


def test_a_module_of_another_version_than_the_libraries_is_said(host: BrokenHost) -> None:
    write_driver(host.root / "proc/driver/nvidia", "560.35.03", open_module=False)
    row = host.diagnosis()
    assert row["check"] == "driver-version"
    assert "560.35.03" in row["detail"]
    assert host.told(row) == "rmmod nvidia && modprobe nvidia"
    (host.root / "sys/module/nvidia_uvm").mkdir()
    assert host.told(host.diagnosis()) == "rmmod nvidia_uvm nvidia && modprobe nvidia"


def test_a_missing_library_names_the_package_that_has_it(host: BrokenHost) -> None:
    own = host.root / "usr/lib/x86_64-linux-gnu/nvidia/current"
    for file in own.glob("libnvidia-ml.so*"):
        file.unlink()
    host.put("usr/bin/apt-get", "", mode=0o755)
    listed = "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1\n"
    host.put("var/lib/dpkg/info/libnvidia-ml1:amd64.list", listed)
    row = host.result("driver-files")
    assert not row["ok"]
    assert host.told(row) == "apt-get install --reinstall --yes libnvidia-ml1"


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
    host.put("etc/passwd", "alice:x:1000:1000::/home/alice:/bin/sh\n")
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
    host.put("etc/passwd", "alice:x:1000:1000::/home/alice:/bin/sh\n")
    host.path("dev/nvidia0").chmod(0o600)
    row = host.result("node-access", "--user", "alice")
    assert not row["ok"]
    host.shell(row["remedy"])
    assert host.result("node-access", "--user", "alice")["ok"]


def test_a_host_without_a_gpu_is_said_once_to_have_none_on_its_bus(host: BrokenHost) -> None:
    shutil.rmtree(host.root / "proc/driver")
    for folder in ("sys/bus/pci/devices", "sys/devices"):
        shutil.rmtree(host.root / folder)
        (host.root / folder).mkdir()
    row = host.diagnosis()
    assert row["check"] == "driver-loaded"
    assert row["detail"].count("PCI bus") == 1
