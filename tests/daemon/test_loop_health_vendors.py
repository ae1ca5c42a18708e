"""The real daemon detects errors of AMD's and Intel's devices in their PCI files and in the kernel log."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from support.daemon.host import Host, daemon
from support.daemon.kernel_records import recent
from support.hosts import amd_tree, intel_tree
from support.hosts.driver_files import put

if TYPE_CHECKING:
    from pathlib import Path

    from support.daemon.kernel_records import FakeLog

pytestmark = [pytest.mark.usefixtures("real_nodes"), pytest.mark.process]

AMD, XE = amd_tree.ADDRESSES[0], "0000:13:00.0"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host(tmp_path / "host").prepare()
    host.boot()
    host.configure("health: {ignore: [node-unusable]}\n", resync_s=1)
    return host


def lay(host: Host, address: str, config: bytes = bytes(64)) -> Path:
    """Write the PCI files of the device at ADDRESS."""
    folder = next((host.root / "sys/devices").glob(f"pci*/{address}"))
    put(folder / "config", config)
    put(folder / "power/runtime_status", b"active\n")
    return folder


def causes(host: Host, vendor: str) -> dict[str, tuple[str, list[str]]]:
    """Return health and causes of each device and partition."""
    devices = host.accelerators(vendor)
    named = [(one["address"], one) for one in devices]
    # The first partition has its GPU's address.
    named += [(f"part {part['instance']}", part) for one in devices for part in one.get("partitions", ())]
    return {name: (one["health"], [cause["cause"] for cause in one["causes"]]) for name, one in named}


def test_a_reset_of_an_amd_gpu_affects_the_gpu_and_its_partitions(host: Host, log: FakeLog) -> None:
    amd_tree.write(host.root, amd_tree.mi300x(2, count=1))
    lay(host, AMD)

    def all_are(health: str, *expected: str) -> bool:
        found = list(causes(host, "amd").values())
        return found == [(health, list(expected))] * 3

    with daemon(host) as running:
        running.sees(lambda: all_are("healthy"))
        log.write(recent(f"amdgpu {AMD}: amdgpu: GPU reset begin!. Source:  1", 1))
        running.sees(lambda: all_are("unhealthy", "amdgpu-resetting"))
        log.write(recent(f"amdgpu {AMD}: amdgpu: GPU reset succeeded, trying to resume", 2))
        log.write(recent(f"amdgpu {AMD}: amdgpu: GPU reset(1) succeeded!", 3))
        running.sees(lambda: all_are("healthy"))


@pytest.mark.usefixtures("log")
def test_a_device_is_unhealthy_while_its_config_space_is_all_ones_or_its_link_is_narrow(host: Host) -> None:
    intel_tree.lay(host.root, intel_tree.gpu(1, XE, intel_tree.B60, "xe"))
    folder = lay(host, XE)
    put(folder / "current_link_width", b"16\n")
    with daemon(host) as running:
        running.sees(lambda: causes(host, "intel") == {XE: ("healthy", [])})
        put(folder / "config", b"\xff" * 64)
        running.sees(lambda: causes(host, "intel") == {XE: ("unhealthy", ["pci-off-bus"])})
        put(folder / "config", bytes(64))
        running.sees(lambda: causes(host, "intel") == {XE: ("healthy", [])})
        put(folder / "current_link_width", b"8\n")
        running.sees(lambda: causes(host, "intel") == {XE: ("unhealthy", ["pci-link-narrow"])})
        put(folder / "current_link_width", b"16\n")
        running.sees(lambda: causes(host, "intel") == {XE: ("healthy", [])})


def test_a_wedged_xe_gpu_stays_unhealthy_after_a_restart_of_the_daemon(host: Host, log: FakeLog) -> None:
    intel_tree.lay(host.root, intel_tree.gpu(1, XE, intel_tree.B60, "xe"))
    lay(host, XE)
    with daemon(host) as running:
        log.write(recent(f"xe {XE}: [drm] *ERROR* CRITICAL: Xe has declared device {XE} as wedged.", 1))
        running.sees(lambda: causes(host, "intel") == {XE: ("unhealthy", ["xe-wedged"])})
        running.rests()
        running.stop(signal.SIGKILL)
    with daemon(host) as running:
        running.rests()
        assert causes(host, "intel") == {XE: ("unhealthy", ["xe-wedged"])}
        log.write(recent(f"xe {XE}: [drm] Initialized xe 1.1.0 for {XE} on minor 1", 2))
        running.sees(lambda: causes(host, "intel") == {XE: ("healthy", [])})
