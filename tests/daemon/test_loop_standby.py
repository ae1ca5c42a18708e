"""`cdigen run --standby` takes over at once, and uses no processor time while it waits."""

from __future__ import annotations

import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon.host import Daemon, Host, daemon
from support.waiting import limited, pause, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("real_nodes")
# Measured: 20 ms; a busy machine may take longer.
AT_ONCE_S = 2.0


@pytest.fixture
def gpu_host(tmp_path: Path) -> Host:
    host = Host(tmp_path / "host").make()
    host.configure()
    return host


@contextmanager
def standby(host: Host) -> Iterator[Daemon]:
    """Start another instance, and wait until this instance is on standby."""
    with daemon(host, "--standby", wait=False) as made:
        made.sees(lambda: made.lines("standby"))
        yield made


@pytest.fixture
def both(gpu_host: Host) -> Iterator[tuple[Daemon, Daemon]]:
    """Return an active instance and a standby."""
    with daemon(gpu_host, "--standby") as first, standby(gpu_host) as second:
        first.rests()
        yield first, second


@limited(AT_ONCE_S)
def test_a_standby_takes_over_at_once_and_does_not_rewrite_a_correct_spec(
    gpu_host: Host, both: tuple[Daemon, Daemon], within_s: float
) -> None:
    first, second = both
    before = gpu_host.spec.stat().st_ino
    began = time.monotonic()
    first.process.terminate()
    second.sees(lambda: second.status)
    assert time.monotonic() - began < within_s
    second.sees(lambda: second.state == "ready")
    assert gpu_host.spec.stat().st_ino == before


@pytest.mark.wall_clock
def test_a_standby_uses_no_processor_time(both: tuple[Daemon, Daemon]) -> None:
    first, second = both
    # The standby imports its modules before it waits.
    until(lambda: not is_working(second))
    first.rests()
    used = cpu_ticks(second)
    time.sleep(1.0)
    assert cpu_ticks(second) == used


@limited(AT_ONCE_S)
@pytest.mark.parametrize("removed", ["lock", "."])
def test_only_one_instance_serves_after_the_removal_of_the_lock_or_the_run_directory(
    gpu_host: Host, both: tuple[Daemon, Daemon], removed: str, within_s: float
) -> None:
    first, second = both
    target = gpu_host.run_dir / removed
    if removed == "lock":
        target.unlink()
    else:
        shutil.rmtree(gpu_host.run_dir)
    first.sees(lambda: (gpu_host.run_dir / "lock").exists() and first.status)
    first.rests()
    assert second.lines("active") == []
    with standby(gpu_host) as third:
        began = time.monotonic()
        first.process.terminate()
        assert until(lambda: second.status or third.status)
        assert time.monotonic() - began < within_s
        assert bool(second.status) != bool(third.status)


def cpu_ticks(running: Daemon) -> int:
    """Return the processor time that RUNNING has used, in the kernel's ticks (proc(5), stat)."""
    fields = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def is_working(running: Daemon) -> bool:
    """Return whether RUNNING uses processor time within 0.2 s."""
    before = cpu_ticks(running)
    pause(0.2)
    return cpu_ticks(running) != before
