"""`cdigen run --standby`: another instance serves, and this one takes its place when that ends."""

from __future__ import annotations

import shutil
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon.host import Daemon, Host, daemon
from support.waiting import PATIENCE_S, limited, pause, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")
POD = "cdigen-x7k2p"
# Measured: 20 ms; a busy machine may take longer.
AT_ONCE_S = 2.0


@pytest.fixture
def gpu_host(tmp_path: Path) -> Host:
    host = Host(tmp_path / "host").make()
    host.configure()
    return host


class Instances:
    """The instances of one host, of which one serves."""

    def __init__(self, host: Host, held: ExitStack) -> None:
        self._host = host
        self._held = held

    def serve(self, pod: str = "") -> Daemon:
        """Start one with nobody else there, in a POD of the namespace cdigen if it is named."""
        names = {"CDIGEN_POD_NAME": pod, "CDIGEN_POD_NAMESPACE": "cdigen"}
        before = ("env", *(f"{name}={value}" for name, value in names.items())) if pod else ()
        return self._held.enter_context(daemon(self._host, "--standby", before=before))

    def wait(self) -> Daemon:
        """Start one that stands by, and wait until it does."""
        made = self._held.enter_context(daemon(self._host, "--standby", wait=False))
        made.sees(lambda: made.lines("stands by"))
        return made


@pytest.fixture
def instances(gpu_host: Host) -> Iterator[Instances]:
    with ExitStack() as held:
        yield Instances(gpu_host, held)


@limited(AT_ONCE_S)
def test_it_says_who_serves_and_takes_the_place_at_once_when_that_ends(
    gpu_host: Host, instances: Instances, within_s: float
) -> None:
    first = instances.serve(POD)
    second = instances.wait()
    (line,) = second.lines("stands by")
    assert line["message"] == "pod cdigen/cdigen-x7k2p serves this host"
    assert second.manager.hears("READY=1", "stands by: pod cdigen/cdigen-x7k2p") is not None
    first.rests()
    before = gpu_host.spec.stat().st_ino
    began = time.monotonic()
    first.process.terminate()
    second.sees(lambda: second.status)
    took_s = time.monotonic() - began
    assert first.process.wait(PATIENCE_S) == 0
    second.sees(lambda: second.state == "ready")
    assert took_s < within_s
    (line,) = second.lines("takes over")
    assert line["message"] == "pod cdigen/cdigen-x7k2p has ended"
    # The spec that is there is as good as one that it would write.
    assert gpu_host.spec.stat().st_ino == before


def test_while_it_stands_by_it_writes_nothing(gpu_host: Host, instances: Instances) -> None:
    first = instances.serve()
    second = instances.wait()
    first.rests()
    before = gpu_host.files()
    second.process.send_signal(signal.SIGHUP)
    assert second.manager.hears("RELOADING=1") is not None
    assert second.manager.hears("READY=1", "stands by") is not None
    assert gpu_host.files() == before
    assert first.status["pid"] == first.process.pid


@pytest.mark.wall_clock
def test_while_it_stands_by_it_costs_nothing(instances: Instances) -> None:
    first = instances.serve()
    second = instances.wait()
    # All that it imports, it imports before.
    until(lambda: not is_working(second))
    first.rests()
    used = cpu_ticks(second)
    time.sleep(1.0)
    assert cpu_ticks(second) == used


@limited(AT_ONCE_S)
def test_it_ends_at_once_when_it_is_told_to_while_it_stands_by(
    gpu_host: Host, instances: Instances, within_s: float
) -> None:
    first = instances.serve()
    second = instances.wait()
    code, took_s = second.stop()
    assert (code, took_s < within_s) == (0, True), second.text
    assert second.lines("started") == []
    assert first.status["pid"] == first.process.pid
    assert (gpu_host.run_dir / "http.sock").exists()


def test_where_the_one_that_serves_is_killed_one_of_those_that_stand_by_takes_its_place(
    instances: Instances,
) -> None:
    serving = instances.serve()
    waiting = [instances.wait(), instances.wait()]
    while waiting:
        serving.process.kill()
        assert until(lambda: [one for one in waiting if one.status])
        (serving,) = [one for one in waiting if one.status]
        assert until(states(serving, "ready"))
        waiting.remove(serving)
        # The others go on waiting.
        assert all(one.process.poll() is None and not one.lines("takes over") for one in waiting)


@limited(AT_ONCE_S)
@pytest.mark.parametrize("gone", ["lock", "."])
def test_a_lock_or_run_directory_that_was_removed_lets_no_second_one_serve(
    gpu_host: Host, instances: Instances, gone: str, within_s: float
) -> None:
    first = instances.serve()
    second = instances.wait()
    first.rests()
    target = gpu_host.run_dir / gone
    if gone == "lock":
        target.unlink()
    else:
        shutil.rmtree(gpu_host.run_dir)
    first.sees(lambda: (gpu_host.run_dir / "lock").exists() and first.status)
    first.rests()
    assert second.lines("takes over") == []
    third = instances.wait()
    began = time.monotonic()
    first.process.terminate()
    assert until(lambda: second.status or third.status)
    assert time.monotonic() - began < within_s
    assert bool(second.status) != bool(third.status)


def test_a_configuration_that_has_changed_meanwhile_counts_from_the_beginning(
    gpu_host: Host, instances: Instances
) -> None:
    first = instances.serve()
    second = instances.wait()
    gpu_host.configure("profiles: [{name: other, class: other}]\n")
    second.process.send_signal(signal.SIGHUP)
    assert second.manager.hears("RELOADING=1") is not None
    assert second.manager.hears("READY=1", "stands by") is not None
    first.process.terminate()
    second.sees(lambda: [row["kind"] for row in second.status.get("specs", ())] == ["nvidia.com/other"])


def test_without_the_option_it_fails_and_names_who_serves(
    gpu_host: Host, instances: Instances, cdigen_process: Run
) -> None:
    instances.serve(POD)
    assert cdigen_process("run", "--root", gpu_host.root).failed(5, "held by pod cdigen/cdigen-x7k2p")
    assert "pod cdigen/cdigen-x7k2p" in cdigen_process("status", "--root", gpu_host.root).out


def states(running: Daemon, state: str) -> Callable[[], bool]:
    """Return what says whether RUNNING has STATE."""
    return lambda: running.state == state


def cpu_ticks(running: Daemon) -> int:
    """Return how much processor time it has used, in the kernel's ticks (proc(5), stat)."""
    fields = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def is_working(running: Daemon) -> bool:
    """Return whether it has used processor time within a moment."""
    before = cpu_ticks(running)
    pause(0.2)
    return cpu_ticks(running) != before
