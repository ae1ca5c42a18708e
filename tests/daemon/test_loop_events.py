"""What the daemon makes of events: how soon, how often, and what if there are too many or none."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.daemon.figures import got
from support.daemon.host import NEW, OLD, TWO_KINDS, Daemon, Host, daemon, unshared
from support.daemon.threads import beside
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia_kernel import example_gpus, make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")
# What the defaults promise is half a second; a busy machine gets ten times that. Without an event: minutes.
SOON_S = 5.0
POLL_S = 1.0


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host without a configuration: the defaults count."""
    return Host(tmp_path / "host").make()


def timed(what: str, running: Daemon, change: Callable[[], object], truth: Callable[[], object]) -> float:
    """Make a CHANGE and return how long it took until TRUTH held."""
    running.rests(0.35)
    change()
    took = running.sees(truth)
    print(f"\n{what}: {took * 1000:.0f} ms")
    return took


@pytest.mark.wall_clock
def test_an_event_is_followed_by_a_spec_within_half_a_second_or_so(host: Host) -> None:
    program = host.root / "usr/bin/nvidia-debugdump"
    with daemon(host) as running:
        took = [
            timed("a program removed", running, program.unlink, lambda: mentions(host, program) is False),
            timed(
                "a program that came by rename",
                running,
                lambda: host.put("usr/bin/nvidia-debugdump", "new").chmod(0o755),
                lambda: mentions(host, program),
            ),
            timed("the spec removed", running, host.spec.unlink, host.spec.exists),
            timed("the spec directory removed", running, lambda: shutil.rmtree(host.specs), host.spec.exists),
        ]
    assert statistics.median(took) < SOON_S


def mentions(host: Host, program: Path) -> bool | None:
    try:
        return program.name in host.spec.read_text()
    except FileNotFoundError:
        return None


@pytest.mark.wall_clock
def test_what_the_kernel_does_not_announce_is_seen_within_the_time_of_the_poll(host: Host) -> None:
    write_minors(host.root, 2)
    with daemon(host) as running:
        took = timed(
            "a MIG instance",
            running,
            lambda: write_instance(host.root, 0, 7),
            lambda: host.devices() == {"0:gi7-ci0", "1", "all"},
        )
    assert took < POLL_S + SOON_S


def test_a_node_that_is_late_ends_the_waiting(host: Host) -> None:
    (host.root / "dev/nvidia1").unlink()
    with daemon(host) as running:
        assert running.state == "settling"
        assert host.devices() == {"0", "all"}
        make_node(host.root, example_gpus(2)[1].nodes[0])
        running.sees(lambda: running.state == "ready" and host.devices() == {"0", "1", "all"})


def test_an_installation_of_hundreds_of_files_is_few_writes_and_ends_in_the_right_spec(host: Host) -> None:
    with daemon(host, "--layout", "view", "--hook", "none") as running:
        host.install(NEW)
        host.say_version(NEW)
        running.sees(lambda: running.state == "ready" and host.driver_of_view() == NEW)
        running.rests()
        written = [entry for entry in running.status["journal"] if entry["result"] == "written"]
        assert len(written) <= 3


@pytest.mark.parametrize("layout", ["view", "files"])
def test_whoever_reads_all_the_while_sees_a_whole_spec_each_time(layout: str, host: Host) -> None:
    host.configure()
    with daemon(host, "--layout", layout, "--hook", "none") as running, reader(host) as seen:
        for gpus in (3, 4, 5, 6):
            host.load(gpus=gpus)
            running.sees(lambda gpus=gpus: len(host.devices()) == gpus + 1)  # type: ignore[misc]
    assert seen
    assert seen <= {3, 4, 5, 6, 7}


@contextmanager
def reader(host: Host) -> Iterator[set[int]]:
    """Read the spec all the while; gather how many devices it had, 0 where it was missing or torn."""
    seen: set[int] = set()
    done = threading.Event()

    def read() -> None:
        while not done.wait(0.001):
            try:
                seen.add(len(host.devices()))
            except json.JSONDecodeError:
                seen.add(0)

    with beside(read):
        try:
            yield seen
        finally:
            done.set()


def test_while_one_spec_is_somebody_elses_the_other_is_kept_true_until_that_one_is_gone(host: Host) -> None:
    host.configure(TWO_KINDS)
    with daemon(host) as running:
        host.spec.write_text("{}")
        running.sees(lambda: "not known as ours" in running.status["last_cycle"]["error"])
        host.load(gpus=3)
        running.sees(lambda: host.devices("nvidia.com-other.json") == {"0", "1", "2", "all"})
        host.spec.unlink()
        running.sees(lambda: host.devices() == {"0", "1", "2", "all"})
        running.sees(lambda: running.status["last_cycle"]["error"] == "")


FLOOD = """
import os, sys, time

folder, seconds, rate = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
one, two = f"{folder}/libnvidia-one.so", f"{folder}/libnvidia-two.so"
open(one, "w").close()
began = time.monotonic()
done = 0
while (now := time.monotonic() - began) < seconds:
    while done < now * rate:
        os.rename(one, two)
        os.rename(two, one)
        done += 4  # each rename is two events
    time.sleep(0.002)
print(done)
"""
FLOOD_S, FLOOD_RATE = 5, 10_000


@pytest.mark.wall_clock
def test_ten_thousand_events_a_second_are_few_cycles_little_memory_and_settle(host: Host) -> None:
    host.configure(debounce_s=0.2)
    with daemon(host) as running:
        first, memory, busy = running.rests(), running.resident_kb(), processor_s(running)
        command = [sys.executable, "-I", "-S", "-c", FLOOD, f"{host.root}/usr/lib/x86_64-linux-gnu"]
        numbers = [str(FLOOD_S), str(FLOOD_RATE)]
        done = subprocess.run([*command, *numbers], check=True, capture_output=True, text=True)
        running.sees(lambda: running.cycles > first)
        last = running.rests(0.5)
        grown, used = running.resident_kb() - memory, processor_s(running) - busy
        print(f"\n{done.stdout.strip()} events: {last - first} cycles, {used:.1f} s of CPU, {grown} kB more")
        assert 1 <= last - first <= 5
        assert grown < 4096
        assert running.state == "ready"
        took = timed("afterwards, the spec removed", running, host.spec.unlink, host.spec.exists)
        assert took < SOON_S


def processor_s(running: Daemon) -> float:
    with open(f"/proc/{running.process.pid}/stat") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_the_driver_comes_goes_and_comes_back(host: Host) -> None:
    with daemon(host) as running:
        for _ in range(2):
            host.unload()
            running.sees(lambda: running.state == "absent" and not host.spec.exists())
            host.load()
            running.sees(lambda: running.state == "ready" and host.driver() == OLD)


@pytest.mark.wall_clock
@pytest.mark.parametrize("limit", ["max_inotify_instances", "max_inotify_watches"])
def test_without_inotify_a_spec_that_was_removed_is_back_within_5_seconds_and_the_trouble_is_said(
    limit: str, host: Host
) -> None:
    exhausted = f'echo 0 > /proc/sys/user/{limit}; exec "$@"'
    start = (*unshared("--user", "--map-root-user"), "sh", "-euc", exhausted, "sh")
    with daemon(host, before=start) as running:
        took = [
            timed("the spec removed", running, host.spec.unlink, host.spec.exists),
            timed("the spec directory removed", running, lambda: shutil.rmtree(host.specs), host.spec.exists),
        ]
        assert min(took) < 5.0
        # What is polled in any case.
        host.load(gpus=3)
        running.sees(lambda: host.devices() == {"0", "1", "2", "all"})
        files = running.status["sources"]["files"]
        assert not files["healthy"]
        assert f"sysctl fs.inotify.max_user_{limit.rpartition('_')[2]}" in files["problem"]
        (line,) = running.lines("source")
        assert (line["level"], line["source"]) == ("warning", "files")
        assert line["message"] == files["problem"]
        assert 'cdigen_source_healthy{source="files"} 0.0' in got(running, "/metrics")[1]
