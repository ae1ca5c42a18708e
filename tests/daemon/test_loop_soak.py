"""The daemon is killed repeatedly, or runs many cycles. `make soak` raises the numbers."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from pathlib import Path

import pytest
from support.daemon.host import NEW, OLD, Daemon, Host, daemon
from support.waiting import pause

pytestmark = pytest.mark.usefixtures("real_nodes")
KILLS = int(os.environ.get("CDIGEN_SOAK_KILLS", "20"))
CYCLES = int(os.environ.get("CDIGEN_SOAK_CYCLES", "300"))
WARM = 100
GROWTH_KB = 2048
FEW = ("--library-search-path", "/usr/lib/x86_64-linux-gnu", "--config-search-path", "/usr/share")
VIEW = ("--layout", "view", "--hook", "none")


@pytest.fixture
def host(host: Host) -> Host:
    host.configure(debounce_s=0.01)
    return host


def become(host: Host, version: str) -> None:
    """Replace the driver in three steps.

    Between the steps, the host has the old driver, no driver, or files and a module of different versions.
    Single files are not replaced, because an incomplete driver could then look like a complete driver. Only
    the lock of a package manager shows the difference.
    """
    old, new = (host.root / f"usr.{name}" for name in (OLD if version == NEW else NEW, version))
    if new.exists():
        if (host.root / "usr").exists():
            (host.root / "usr").rename(old)
        new.rename(host.root / "usr")
    host.set_version(version)


def settled(running: Daemon, host: Host, version: str) -> bytes:
    """Wait for the spec of the driver VERSION; return the content of the spec."""
    running.sees(lambda: running.state == "ready" and host.driver_of_view() == version)
    return host.spec.read_bytes()


def test_after_a_kill_the_spec_is_old_or_new_and_temporary_files_are_removed(host: Host) -> None:
    whole = {}
    (host.root / "usr").rename(host.root / f"usr.{OLD}")
    host.install(NEW)
    (host.root / "usr").rename(host.root / f"usr.{NEW}")
    become(host, OLD)
    with daemon(host, *VIEW) as running:
        for version in (NEW, OLD):
            become(host, version)
            whole[version] = settled(running, host, version)
    version, rubbish, found = OLD, 0, set()
    for _ in range(KILLS):
        with daemon(host, *VIEW) as running:
            assert settled(running, host, version) == whole[version]
            running.sees(lambda: host.rubbish() == [])
            version = NEW if version == OLD else OLD
            # The daemon is stopped, because a cycle between the renames of ``become`` would find no driver
            # and withdraw the spec.
            running.process.send_signal(signal.SIGSTOP)
            become(host, version)
            running.process.send_signal(signal.SIGHUP)
            running.process.send_signal(signal.SIGCONT)
            pause(random.uniform(0, 0.1))
            running.stop(signal.SIGKILL)
        content = host.spec.read_bytes()
        assert content in whole.values()
        found.add(content == whole[version])
        rubbish += len(host.rubbish())
    print(f"\n{KILLS} kills: {rubbish} temporary files left and removed; old and new spec: {len(found) == 2}")


def test_the_memory_of_the_daemon_does_not_grow() -> None:
    # The host is in memory, because with files on a disk, each cycle would wait for the disk.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        keep_busy(Host(Path(folder)).make())


def keep_busy(host: Host) -> None:
    # With fewer driver files, a cycle takes less time. The daemon's memory does not depend on this number.
    host.configure("profiles: [{name: gpu, class: gpu, capabilities: [utility]}]\n", debounce_s=0.01)
    with daemon(host, *FEW) as running:
        running.rests()
        running.manager.drain()
        sizes = {0: running.resident_kb()}
        for number in range(1, CYCLES + 1):
            if number % 10 == 0:
                host.load(gpus=2 + number // 10 % 2)
            running.process.send_signal(signal.SIGHUP)
            assert running.manager.receives("READY=1") is not None
            if number % WARM == 0:
                sizes[number] = running.resident_kb()
        print(f"\n{running.cycles} cycles, resident kB: {sizes}")
        assert sizes[CYCLES] - sizes[WARM] < GROWTH_KB
        assert sizes[CYCLES] < 45 * 1024
