"""The daemon's reaction to events: delay, number of cycles, floods, and missing events."""

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
from support.daemon.host import NEW, OLD, PRETENDED, TWO_KINDS, Daemon, Host, daemon, unshared
from support.daemon.stats import got
from support.daemon.threads import beside
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia_kernel import example_gpus, make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")
# With the default times, the daemon reacts to an event within half a second. The limit for a busy machine is
# ten times as long. Without an event, the next cycle starts after minutes.
SOON_S = 5.0
POLL_S = 1.0


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host whose daemon has the default times."""
    host = Host(tmp_path / "host").make()
    host.put("etc/cdigen/config.yaml", PRETENDED)
    return host


def timed(what: str, running: Daemon, change: Callable[[], object], truth: Callable[[], object]) -> float:
    """Call CHANGE, and return the seconds until TRUTH returns a true value."""
    running.rests(0.35)
    change()
    took = running.sees(truth)
    print(f"\n{what}: {took * 1000:.0f} ms")
    return took


@pytest.mark.wall_clock
def test_a_change_with_an_event_updates_the_spec_within_seconds(host: Host) -> None:
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
def test_a_change_without_an_event_is_found_within_the_poll_interval(host: Host) -> None:
    write_minors(host.root, 2)
    with daemon(host) as running:
        took = timed(
            "a MIG instance",
            running,
            lambda: write_instance(host.root, 0, 7),
            lambda: host.devices() == {"0:gi7-ci0", "1", "all"},
        )
    assert took < POLL_S + SOON_S


def test_a_late_device_node_ends_the_state_settling(host: Host) -> None:
    (host.root / "dev/nvidia1").unlink()
    with daemon(host) as running:
        assert running.state == "settling"
        assert host.devices() == {"0", "all"}
        make_node(host.root, example_gpus(2)[1].nodes[0])
        running.sees(lambda: running.state == "ready" and host.devices() == {"0", "1", "all"})


def test_an_installation_of_hundreds_of_files_causes_at_most_three_writes(host: Host) -> None:
    with daemon(host, "--layout", "view", "--hook", "none") as running:
        host.install(NEW)
        host.set_version(NEW)
        running.sees(lambda: running.state == "ready" and host.driver_of_view() == NEW)
        running.rests()
        written = [entry for entry in running.status["journal"] if entry["result"] == "written"]
        assert len(written) <= 3


@pytest.mark.parametrize("layout", ["view", "files"])
def test_a_continuous_reader_always_finds_a_complete_spec(layout: str, host: Host) -> None:
    host.configure()
    with daemon(host, "--layout", layout, "--hook", "none") as running, reader(host) as counts:
        for gpus in (3, 4, 5, 6):
            host.load(gpus=gpus)
            running.sees(lambda gpus=gpus: len(host.devices()) == gpus + 1)  # type: ignore[misc]
    assert counts
    assert counts <= {3, 4, 5, 6, 7}


@contextmanager
def reader(host: Host) -> Iterator[set[int]]:
    """Read the spec continuously; collect its numbers of devices (0 for a missing or incomplete spec)."""
    counts: set[int] = set()
    done = threading.Event()

    def read() -> None:
        while not done.wait(0.001):
            try:
                counts.add(len(host.devices()))
            except json.JSONDecodeError:
                counts.add(0)

    with beside(read):
        try:
            yield counts
        finally:
            done.set()


def test_while_one_spec_is_foreign_the_other_spec_is_kept_up_to_date(host: Host) -> None:
    host.configure(TWO_KINDS)
    with daemon(host) as running:
        host.spec.write_text("{}")
        running.sees(lambda: "cdigen did not write this file" in running.status["last_cycle"]["error"])
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
def test_ten_thousand_events_per_second_cause_few_cycles_and_use_little_memory(host: Host) -> None:
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


def test_specs_follow_repeated_unloading_and_loading_of_the_driver(host: Host) -> None:
    with daemon(host) as running:
        for _ in range(2):
            host.unload()
            running.sees(lambda: running.state == "absent" and not host.spec.exists())
            host.load()
            running.sees(lambda: running.state == "ready" and host.driver() == OLD)


@pytest.mark.wall_clock
@pytest.mark.parametrize("limit", ["max_inotify_instances", "max_inotify_watches"])
def test_without_inotify_a_removed_spec_is_written_again_and_the_problem_is_reported(
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
        # The daemon polls the files of added GPUs, with and without inotify.
        host.load(gpus=3)
        running.sees(lambda: host.devices() == {"0", "1", "2", "all"})
        files = running.status["sources"]["files"]
        assert not files["healthy"]
        assert f"sysctl fs.inotify.max_user_{limit.rpartition('_')[2]}" in files["problem"]
        (line,) = running.lines("source")
        assert (line["level"], line["source"]) == ("warning", "files")
        assert line["message"] == files["problem"]
        assert 'cdigen_watch_source_up{source="files"} 0.0' in got(running, "/metrics")[1]
