"""The doctor's checks of device health, of the kernel log, and of links that lost lanes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from support.values.unhealthy_gpus import FELL, example, save, with_causes

if TYPE_CHECKING:
    from pathlib import Path

    from support.doctor.broken_host import BrokenHost

GPU = "nvidia.com/gpu"
BUS = "sys/bus/pci/devices"


def write_log_source(host: BrokenHost, row: dict[str, object] | None) -> None:
    """Write ROW as the source kernel-log to the daemon's status. None removes the row."""
    path = host.root / "run/cdigen/status.json"
    status = json.loads(path.read_text())
    status["sources"] = {} if row is None else {"kernel-log": row}
    path.write_text(json.dumps(status))


def lay_links(host: BrokenHost, address: str, lanes: list[tuple[str, int, int]]) -> Path:
    """Create the device at ADDRESS and its bridges from LANES: (address, current lanes, maximum lanes)."""
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


def test_without_a_daemon_the_checks_are_skipped(host: BrokenHost) -> None:
    assert not host.result("device-health")["checked"]
    assert not host.result("kernel-log")["checked"]


def test_healthy_devices_are_counted(host: BrokenHost) -> None:
    save(host.root, example())
    row = host.result("device-health")
    assert (row["ok"], row["detail"]) == (True, "8 devices are healthy")


def test_an_unhealthy_device_is_a_warning_with_its_cause_and_clearance(host: BrokenHost) -> None:
    save(host.root, with_causes(example(), 3, FELL))
    row = host.result("device-health")
    assert (row["ok"], row["severity"], row["topic"]) == (False, "warning", "health")
    parts = (f"{GPU}=3 (", "): unhealthy", "xid-79", FELL.since, FELL.detail, FELL.clears_when)
    assert [part for part in parts if part not in row["detail"]] == []


@pytest.mark.parametrize("name", [f"{GPU}=3", f"{GPU}=GPU-e4d3c2b1-a098-4f76-b5c4-d3e2f1a0b9c8"])
def test_a_requested_device_that_is_unhealthy_is_an_error(host: BrokenHost, name: str) -> None:
    save(host.root, with_causes(example(), 3, FELL))
    assert host.result("device-health", "--device", name)["severity"] == "error"
    assert host.result("device-health", "--device", f"{GPU}=1")["severity"] == "warning"


def test_a_cause_of_the_whole_gpu_is_reported_once(host: BrokenHost) -> None:
    save(host.root, with_causes(example("ubuntu-2xmi300x-cpx"), 0, FELL, vendor="amd"))
    rows = [row for row in host.results() if row["check"] == "device-health"]
    assert len(rows) == 1


def test_an_unreadable_kernel_log_is_a_warning(host: BrokenHost) -> None:
    save(host.root, example())
    write_log_source(host, {"healthy": True, "problem": ""})
    assert host.result("kernel-log")["ok"]
    write_log_source(host, {"healthy": False, "problem": "the kernel log cannot be read"})
    row = host.result("kernel-log")
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert "the kernel log cannot be read" in row["detail"]
    assert host.result("daemon-cycle")["ok"]  # reported once
    write_log_source(host, None)
    assert "is not read" in host.result("kernel-log")["detail"]


def test_the_remedy_starts_a_missing_socket(host: BrokenHost) -> None:
    save(host.root, example())
    write_log_source(host, {"healthy": False, "problem": "no socket"})
    for unit in ("cdigen.service", "cdigen-kernel-log.socket"):
        host.put(f"usr/lib/systemd/system/{unit}", "")
    host.put("etc/systemd/system/multi-user.target.wants/cdigen.service", "")
    remedy = host.remedy_on_host(host.result("kernel-log"))
    assert remedy == "systemctl start cdigen-kernel-log.socket"
    host.put("run/cdigen-kernel-log.sock", "")
    assert host.remedy_on_host(host.result("kernel-log")) == ""


ROOT_PORT, UPSTREAM, DOWNSTREAM = "0000:40:01.1", "0000:41:00.0", "0000:42:00.0"


def address_of(host: BrokenHost) -> str:
    """Return the address of the host's first GPU."""
    return min(path.name for path in (host.root / "proc/driver/nvidia/gpus").iterdir())


@pytest.mark.parametrize(
    ("lanes", "detail"),
    [
        ([(ROOT_PORT, 16, 16), ("", 16, 16)], ""),
        ([(ROOT_PORT, 8, 16), ("", 8, 16)], f"8 of 16 lanes between {ROOT_PORT} and "),
        # The slot has only 8 lanes.
        ([(ROOT_PORT, 8, 8), ("", 8, 16)], ""),
        # The GPU is below a switch. The link above the switch has fewer lanes.
        (
            [(ROOT_PORT, 4, 16), (UPSTREAM, 4, 16), (DOWNSTREAM, 16, 16), ("", 16, 16)],
            f"4 of 16 lanes between {ROOT_PORT} and {UPSTREAM}",
        ),
        # The connection between the two ports of a switch is not a link.
        ([(ROOT_PORT, 16, 16), (UPSTREAM, 16, 16), (DOWNSTREAM, 8, 8), ("", 8, 16)], ""),
        # The lanes of a virtual function, or of a device that fell off the bus, are unknown.
        ([(ROOT_PORT, 16, 16), ("", 0, 0)], ""),
        ([(ROOT_PORT, 16, 16), ("", 63, 255)], ""),
    ],
)
def test_a_link_with_fewer_lanes_than_both_ends_support_is_a_warning(
    host: BrokenHost, lanes: list[tuple[str, int, int]], detail: str
) -> None:
    address = address_of(host)
    lay_links(host, address, [(name or address, now, most) for name, now, most in lanes])
    row = host.result("pci-link")
    assert row["ok"] == (not detail)
    assert detail in row["detail"]


def test_the_link_of_a_suspended_device_is_not_read(host: BrokenHost) -> None:
    address = address_of(host)
    folder = lay_links(host, address, [(ROOT_PORT, 8, 16), (address, 8, 16)])
    assert not host.result("pci-link")["ok"]
    (folder / "power/runtime_status").write_text("suspended\n")
    assert host.result("pci-link")["ok"]


def test_fewer_lanes_are_a_warning_above_the_switch_of_an_amd_gpu_but_not_below(
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
