"""The doctor's checks of the driver."""

import shutil

from support.doctor.broken_host import BrokenHost
from support.hosts.nvidia_kernel import write_driver


def test_a_module_that_is_not_loaded_is_the_first_failure(host: BrokenHost) -> None:
    shutil.rmtree(host.root / "proc/driver")
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    assert (rows[0]["check"], host.remedy_on_host(rows[0])) == ("driver-loaded", "modprobe nvidia")


def test_a_missing_driver_is_the_cause_of_an_invalid_spec(host: BrokenHost) -> None:
    shutil.rmtree(host.root / "proc/driver")
    host.path("dev/nvidiactl").unlink()
    rows = [row for row in host.doctor(wrong=True) if not row["ok"]]
    assert [row["check"] for row in rows] == ["driver-loaded", "spec-files"]
    assert "driver-loaded" in rows[1]["because"]


def test_gpus_that_are_bound_to_nouveau_are_reported(host: BrokenHost) -> None:
    shutil.rmtree(host.root / "proc/driver")
    for link in (host.root / "sys/devices").glob("*/*/driver"):
        link.unlink()
        link.symlink_to("../../../bus/pci/drivers/nouveau")
    (host.root / "sys/bus/pci/drivers/nouveau").mkdir()
    row = host.diagnosis()
    assert "2 GPUs bound to the driver nouveau" in row["detail"]
    assert host.remedy_on_host(row) == "modprobe -r nouveau && modprobe nvidia"


def test_the_remedy_for_a_kernel_without_the_module_is_dkms(host: BrokenHost) -> None:
    shutil.rmtree(host.root / "proc/driver")
    host.put("proc/sys/kernel/osrelease", "6.12.1-amd64\n")
    host.put("lib/modules/6.12.1-amd64/modules.dep", "kernel/fs/ext4/ext4.ko:\n")
    host.put("usr/sbin/dkms", "", mode=0o755)
    host.put("var/lib/dkms/nvidia/550.163.01/source/dkms.conf", "")
    row = host.diagnosis()
    assert "no module for the kernel 6.12.1-amd64" in row["detail"]
    assert host.remedy_on_host(row) == "dkms autoinstall && modprobe nvidia"


def test_a_module_with_another_version_than_the_libraries_is_reported(host: BrokenHost) -> None:
    write_driver(host.root / "proc/driver/nvidia", "560.35.03", open_module=False)
    row = host.diagnosis()
    assert row["check"] == "driver-version"
    assert "560.35.03" in row["detail"]
    assert host.remedy_on_host(row) == "rmmod nvidia && modprobe nvidia"
    assert row["detail"].count("rmmod") == 1
    assert "stop the programs that use the GPUs" in row["detail"]
    (host.root / "sys/module/nvidia_uvm").mkdir()
    assert host.remedy_on_host(host.diagnosis()) == "rmmod nvidia_uvm nvidia && modprobe nvidia"
    (host.root / "sys/module/nvidia_peermem").mkdir()
    host.put("proc/modules", "nvidia 56717312 1 nvidia_peermem, Live 0x0 (POE)\nusbcore 4096 0 - Live 0x0\n")
    unload = "rmmod nvidia_uvm nvidia_peermem nvidia && modprobe nvidia"
    assert host.remedy_on_host(host.diagnosis()) == unload


def test_the_remedy_for_a_missing_library_is_its_package(host: BrokenHost) -> None:
    own = host.root / "usr/lib/x86_64-linux-gnu/nvidia/current"
    for file in own.glob("libnvidia-ml.so*"):
        file.unlink()
    host.put("usr/bin/apt-get", "", mode=0o755)
    listed = "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1\n"
    host.put("var/lib/dpkg/info/libnvidia-ml1:amd64.list", listed)
    row = host.result("driver-files")
    assert not row["ok"]
    assert host.remedy_on_host(row) == "apt-get install --reinstall --yes libnvidia-ml1"


def test_a_host_without_a_gpu_on_its_bus_has_a_single_message_about_the_bus(host: BrokenHost) -> None:
    shutil.rmtree(host.root / "proc/driver")
    for folder in ("sys/bus/pci/devices", "sys/devices"):
        shutil.rmtree(host.root / folder)
        (host.root / folder).mkdir()
    row = host.diagnosis()
    assert row["check"] == "driver-loaded"
    assert row["detail"].count("PCI bus") == 1
