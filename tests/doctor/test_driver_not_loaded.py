"""The reasons why the driver's module is not loaded, and the remedy of each reason."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.kernel_records import FakeLog, record

if TYPE_CHECKING:
    from support.doctor.broken_host import BrokenHost

ABSENT = "the NVIDIA kernel module is not loaded"
GSP = (
    "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1b80)\\x0aNVRM: installed in this system is not "
    "supported by open nvidia.ko because it does not\\x0aNVRM: include the required GPU System Processor."
)
OPEN_ONLY = "NVRM: GPU 0000:01:00.0 in this system requires\\x0aNVRM: use of the NVIDIA open kernel modules."
UNKNOWN_KEY = "nvidia: loading of module with unavailable key is rejected"


def unloaded(host: BrokenHost, driver: str = "") -> None:
    """Unload the module nvidia, and bind the GPUs to DRIVER."""
    shutil.rmtree(host.root / "proc/driver")
    shutil.rmtree(host.root / "sys/module/nvidia", ignore_errors=True)
    for link in (host.root / "sys/devices").glob("*/*/driver"):
        link.unlink()
        if driver:
            link.symlink_to(f"../../../bus/pci/drivers/{driver}")
    if driver:
        (host.root / f"sys/bus/pci/drivers/{driver}").mkdir(exist_ok=True)


def diagnosed(host: BrokenHost) -> tuple[dict[str, Any], str]:
    """Return the doctor's first result, and its remedy for the host."""
    row = host.diagnosis()
    assert row["check"] == "driver-loaded"
    assert row["detail"].startswith(ABSENT)
    return row, host.remedy_on_host(row)


def test_the_remedy_unloads_novacore_by_the_name_of_its_module_and_first_its_users(host: BrokenHost) -> None:
    unloaded(host, "NovaCore")
    host.link("sys/bus/pci/drivers/NovaCore/module", "../../../../module/nova_core")
    for module in ("nova_core", "nova_drm"):
        (host.root / "sys/module" / module).mkdir(parents=True)
    host.put("proc/modules", "nova_core 1000 1 nova_drm, Live 0x0\nnova_drm 1000 0 - Live 0x0\n")
    row, remedy = diagnosed(host)
    assert "2 GPUs bound to the driver NovaCore" in row["detail"]
    assert remedy == "modprobe -r nova_drm nova_core && modprobe nvidia"


@pytest.mark.parametrize(
    ("file", "text", "place"),
    [
        (
            "etc/modprobe.d/vm.conf",
            "# VMs\noptions vfio-pci ids=10de:{id},10de:22ba\n",
            "/etc/modprobe.d/vm.conf:2",
        ),
        ("proc/cmdline", "quiet vfio-pci.ids=10de:{id} ro\n", "vfio-pci.ids= on the kernel command line"),
        ("etc/modprobe.d/vm.conf", "options vfio-pci ids=8086:56a0\n", ""),
    ],
)
def test_gpus_of_virtual_machines_have_the_setting_and_no_command(
    host: BrokenHost, file: str, text: str, place: str
) -> None:
    unloaded(host, "vfio-pci")
    device = next((host.root / "sys/bus/pci/devices").glob("*/device")).read_text().strip().removeprefix("0x")
    host.put(file, text.replace("{id}", device))
    row, remedy = diagnosed(host)
    assert "2 GPUs bound to the driver vfio-pci" in row["detail"]
    assert (f"for virtual machines ({place})" in row["detail"]) == bool(place)
    assert remedy == ""
    assert "modprobe nvidia" not in row["detail"]
    printed = json.loads(host.shell(f"cdigen generate --json --vendor nvidia --root {host.root}", code=3))
    assert "is bound to the driver vfio-pci" in printed["error"]["message"]
    assert printed["error"]["hint"].startswith("see 'cdigen doctor --vendor nvidia'")


@pytest.mark.parametrize(
    ("file", "text", "place"),
    [
        (
            "proc/cmdline",
            "ro module_blacklist=nouveau,nvidia\n",
            "module_blacklist=nvidia on the kernel command line",
        ),
        ("etc/modprobe.d/a.conf", "\ninstall nvidia /bin/false\n", "/etc/modprobe.d/a.conf:2"),
        ("usr/lib/modprobe.d/b.conf", "blacklist nvidia\nalias nvidia off\n", "/usr/lib/modprobe.d/b.conf:2"),
    ],
)
def test_a_setting_that_prevents_modprobe_has_its_place_and_no_command(
    host: BrokenHost, file: str, text: str, place: str
) -> None:
    unloaded(host)
    host.put(file, text)
    row, remedy = diagnosed(host)
    assert f"{place} prevents nvidia: remove it" in row["detail"]
    assert ("reboot" in row["detail"]) == file.startswith("proc")
    assert remedy == ""
    printed = json.loads(host.shell(f"cdigen generate --json --vendor nvidia --root {host.root}", code=3))
    assert printed["error"]["hint"].startswith("remove nvidia from ")


def test_a_blacklist_line_is_reported_and_modprobe_works_nevertheless(host: BrokenHost) -> None:
    unloaded(host)
    host.put("etc/modprobe.d/a.conf", "blacklist nvidia\n")
    row, remedy = diagnosed(host)
    assert "/etc/modprobe.d/a.conf:1 prevents the automatic loading of nvidia" in row["detail"]
    assert remedy == "modprobe nvidia"


@pytest.mark.parametrize("state", ["none [integrity] confidentiality", "[none] integrity confidentiality"])
def test_lockdown_is_a_possible_reason(host: BrokenHost, state: str) -> None:
    unloaded(host)
    host.put("sys/kernel/security/lockdown", f"{state}\n")
    row, remedy = diagnosed(host)
    assert ("Key was rejected by service" in row["detail"]) == ("[integrity]" in state)
    assert remedy == "modprobe nvidia"


@pytest.mark.parametrize("has_key", [False, True])
def test_a_rejected_signature_needs_an_enrolled_key(host: BrokenHost, *, has_key: bool) -> None:
    unloaded(host)
    if has_key:
        host.put("var/lib/dkms/mok.pub", "")
        host.put("usr/bin/mokutil", "", mode=0o755)
    log = FakeLog(host.path("dev/kmsg"))
    log.write(record("usb 1-1: loading of firmware", 1), record(UNKNOWN_KEY, 2))
    row, remedy = diagnosed(host)
    log.close()
    assert f"the kernel log has '{UNKNOWN_KEY}'" in row["detail"]
    assert "confirm the enrolment" in row["detail"]
    assert remedy == ("mokutil --import /var/lib/dkms/mok.pub" if has_key else "")


@pytest.mark.parametrize(
    ("text", "part"),
    [(GSP, "install the proprietary kernel module"), (OPEN_ONLY, "install the driver's open kernel module")],
)
@pytest.mark.parametrize("level", [4, 12])
def test_the_other_module_is_the_remedy_if_the_kernel_rejected_the_gpu(
    host: BrokenHost, text: str, part: str, level: int
) -> None:
    """A record with a level above 7 is from a program, and is not evidence."""
    unloaded(host)
    log = FakeLog(host.path("dev/kmsg"))
    log.write(record(text, 1, level=level))
    row, remedy = diagnosed(host)
    log.close()
    assert (part in row["detail"]) == (level == 4)
    assert remedy == ("" if level == 4 else "modprobe nvidia")
