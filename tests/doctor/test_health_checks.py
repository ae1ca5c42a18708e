"""What the doctor says of the devices' health, of the kernel's log, and of links that lost lanes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from support.values.unhealthy_gpus import FELL, example, ill, save

if TYPE_CHECKING:
    from pathlib import Path

    from support.doctor.broken_host import BrokenHost

GPU = "nvidia.com/gpu"
BUS = "sys/bus/pci/devices"


def say_of_log(host: BrokenHost, row: dict[str, object] | None) -> None:
    """Let the daemon's status have ROW on the kernel's log; None: nothing."""
    path = host.root / "run/cdigen/status.json"
    status = json.loads(path.read_text())
    status["sources"] = {} if row is None else {"kernel-log": row}
    path.write_text(json.dumps(status))


def lay_links(host: BrokenHost, address: str, lanes: list[tuple[str, int, int]]) -> Path:
    """Put the device at ADDRESS below bridges: (address, current, most lanes) from the root port down."""
    folder = host.root / "sys/devices/pci0000:40"
    for name, now, most in lanes:
        folder /= name
        (folder / "power").mkdir(parents=True, exist_ok=True)
        (folder / "current_link_width").write_text(f"{now}\n")
        (folder / "max_link_width").write_text(f"{most}\n")
        (folder / "power/runtime_status").write_text("active\n")
        bus = host.root / BUS / name
        if name == address:
            shutil.copytree(bus.resolve(strict=True), folder, symlinks=True, dirs_exist_ok=True)
            (folder / "driver").unlink()
            (folder / "driver").symlink_to("/sys/bus/pci/drivers/nvidia")
            bus.unlink()
        bus.symlink_to(f"/{folder.relative_to(host.root)}")
    return folder


def test_without_a_daemon_nothing_is_checked(host: BrokenHost) -> None:
    assert not host.result("device-health")["checked"]
    assert not host.result("kernel-log")["checked"]


def test_healthy_devices_are_counted(host: BrokenHost) -> None:
    save(host.root, example())
    row = host.result("device-health")
    assert (row["ok"], row["detail"]) == (True, "8 devices are healthy")


def test_an_unhealthy_device_is_a_warning_with_cause_and_what_ends_it(host: BrokenHost) -> None:
    save(host.root, ill(example(), 3, FELL))
    row = host.result("device-health")
    assert (row["ok"], row["severity"], row["topic"]) == (False, "warning", "health")
    words = (f"{GPU}=3 is unhealthy", "xid-79", FELL.since, FELL.detail, FELL.clears_when)
    assert [word for word in words if word not in row["detail"]] == []


@pytest.mark.parametrize("name", [f"{GPU}=3", f"{GPU}=GPU-e4d3c2b1-a098-4f76-b5c4-d3e2f1a0b9c8"])
def test_a_device_that_is_wanted_and_unhealthy_is_an_error(host: BrokenHost, name: str) -> None:
    save(host.root, ill(example(), 3, FELL))
    assert host.result("device-health", "--device", name)["severity"] == "error"
    assert host.result("device-health", "--device", f"{GPU}=1")["severity"] == "warning"


def test_a_cause_of_the_whole_gpu_is_told_once(host: BrokenHost) -> None:
    save(host.root, ill(example("ubuntu-2xmi300x-cpx"), 0, FELL, vendor="amd"))
    rows = [row for row in host.ask() if row["check"] == "device-health"]
    assert len(rows) == 1


def test_a_log_that_is_read_is_good_and_one_that_is_not_a_warning(host: BrokenHost) -> None:
    save(host.root, example())
    say_of_log(host, {"healthy": True, "problem": ""})
    assert host.result("kernel-log")["ok"]
    say_of_log(host, {"healthy": False, "problem": "the kernel's log cannot be read"})
    row = host.result("kernel-log")
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert "the kernel's log cannot be read" in row["detail"]
    assert host.result("daemon-cycle")["ok"]  # said once
    say_of_log(host, None)
    assert "is told not to read" in host.result("kernel-log")["detail"]


def test_a_socket_that_is_not_there_is_started(host: BrokenHost) -> None:
    save(host.root, example())
    say_of_log(host, {"healthy": False, "problem": "no socket"})
    for unit in ("cdigen.service", "cdigen-kernel-log.socket"):
        host.put(f"usr/lib/systemd/system/{unit}", "")
    host.put("etc/systemd/system/multi-user.target.wants/cdigen.service", "")
    told = host.told(host.result("kernel-log"))
    assert told == "systemctl start cdigen-kernel-log.socket"
    host.put("run/cdigen-kernel-log.sock", "")
    assert host.told(host.result("kernel-log")) == ""


ROOT_PORT, UPSTREAM, DOWNSTREAM = "0000:40:01.1", "0000:41:00.0", "0000:42:00.0"


def address_of(host: BrokenHost) -> str:
    """Return the address of the host's first GPU."""
    return min(path.name for path in (host.root / "proc/driver/nvidia/gpus").iterdir())


@pytest.mark.parametrize(
    ("lanes", "told"),
    [
        ([(ROOT_PORT, 16, 16), ("", 16, 16)], ""),
        ([(ROOT_PORT, 8, 16), ("", 8, 16)], f"8 of 16 lanes between {ROOT_PORT} and "),
        # The slot has no more.
        ([(ROOT_PORT, 8, 8), ("", 8, 16)], ""),
        # Behind a switch: its own link up is the one that is narrow.
        (
            [(ROOT_PORT, 4, 16), (UPSTREAM, 4, 16), (DOWNSTREAM, 16, 16), ("", 16, 16)],
            f"4 of 16 lanes between {ROOT_PORT} and {UPSTREAM}",
        ),
        # Within a switch there are no links, whatever its ports say.
        ([(ROOT_PORT, 16, 16), (UPSTREAM, 16, 16), (DOWNSTREAM, 8, 8), ("", 8, 16)], ""),
        # No lanes are known: a virtual function, a device off the bus.
        ([(ROOT_PORT, 16, 16), ("", 0, 0)], ""),
        ([(ROOT_PORT, 16, 16), ("", 63, 255)], ""),
    ],
)
def test_a_link_that_is_narrower_than_both_ends_can_is_a_warning(
    host: BrokenHost, lanes: list[tuple[str, int, int]], told: str
) -> None:
    address = address_of(host)
    lay_links(host, address, [(name or address, now, most) for name, now, most in lanes])
    row = host.result("pci-link")
    assert row["ok"] == (not told)
    assert told in row["detail"]


def test_a_device_that_sleeps_is_not_asked_for_its_link(host: BrokenHost) -> None:
    address = address_of(host)
    folder = lay_links(host, address, [(ROOT_PORT, 8, 16), (address, 8, 16)])
    assert not host.result("pci-link")["ok"]
    (folder / "power/runtime_status").write_text("suspended\n")
    assert host.result("pci-link")["ok"]


def test_an_idle_gpu_of_amd_that_turned_lanes_off_is_no_warning_and_a_narrow_switch_above_it_is(
    host: BrokenHost,
) -> None:
    address = address_of(host)
    folder = lay_links(
        host, address, [(ROOT_PORT, 16, 16), (UPSTREAM, 16, 16), (DOWNSTREAM, 1, 16), (address, 1, 16)]
    )
    assert not host.result("pci-link")["ok"]
    (folder / "vendor").write_text("0x1002\n")
    assert host.result("pci-link")["ok"]
    switch = folder.parent.parent
    for folder in (switch, switch.parent):
        (folder / "current_link_width").write_text("8\n")
    assert f"8 of 16 lanes between {ROOT_PORT} and {UPSTREAM}" in host.result("pci-link")["detail"]
