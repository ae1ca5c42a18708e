"""Measure ``cdigen kubelet``: how soon it is registered, how long a pod waits, what it costs to wait.

``make bench-kubelet`` runs it. The plugin is installed into a private venv as users install it, with its
modules compiled, on a host made here: 8 GPUs, whole and shared by 5,000 replicas; the kubelet is the double
of the tests. A start is compared with one of bare Python in the same run; an answer with that to
GetDevicePluginOptions, in which gRPC is all there is. What the double itself takes is in all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
TESTS = HERE.parent
# Not this folder, where this file would be taken for the tests' package of the same name.
sys.path[:1] = [str(TESTS), str(TESTS.parent)]

from bench.installed import install
from bench.tables import print_table, times_row
from support.kubelet.double import Endpoint, Kubelet
from support.kubelet.host_offering import put
from support.values import unhealthy_gpus

GPU = "nvidia.com/gpu"
REPLICAS = 625
COUNT = 8 * REPLICAS
SHARED = f"kubelet:\n  sharing:\n    - resource: {GPU}\n      replicas: {REPLICAS}\n"
REGISTERED_GOAL_MS = 500
P99_GOAL_MS = 5.0
LISTED_GOAL_MS = 300
MEMORY_GOAL_MB = 60
IDLE_GOAL_PERCENT = 0.05
PATIENCE_S = 30.0


def main() -> None:
    """Measure, and print tables or JSON."""
    options = _options()
    # In /tmp others come and go all the time; a folder on the way to the host's root is watched as well.
    with tempfile.TemporaryDirectory(prefix="k", dir="/var/tmp") as folder:
        bin_dir = install(Path(folder, "venv"), *_wanted(options.grpcio))
        whole, shared = Path(folder, "8"), Path(folder, "5000")
        for root, text in ((whole, ""), (shared, SHARED)):
            put(root, unhealthy_gpus.example())
            (root / "etc/cdigen").mkdir(parents=True)
            (root / "etc/cdigen/config.yaml").write_text(text)
        tables = {
            "from start": _starts(bin_dir, whole, options.starts),
            "from kubelet.sock": [
                row
                for name, root in (("8 GPUs", whole), (f"{COUNT:,} replicas", shared))
                for row in _registrations(bin_dir, root, name, options.starts)
            ],
            "from a change of health": [
                _changes(bin_dir, whole, "8 GPUs", options.starts),
                _changes(bin_dir, shared, f"{COUNT:,} replicas", options.starts),
            ],
            "8 GPUs": _answers(bin_dir, whole, options.requests),
            f"{COUNT:,} replicas": _answers(bin_dir, shared, options.requests),
            f"idle for {options.idle:g} s": [
                _idle(bin_dir, whole, "8 GPUs", options.idle),
                _idle(bin_dir, shared, f"{COUNT:,} replicas", options.idle),
            ],
        }
    if options.json:
        print(json.dumps(tables, indent=2))
        return
    for title, rows in tables.items():
        print_table(title, rows)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=10, help="starts, and changes (default: 10)")
    parser.add_argument("--requests", type=int, default=1000, help="requests of each kind (default: 1000)")
    parser.add_argument("--idle", type=float, default=60, help="seconds to watch it wait (default: 60)")
    parser.add_argument("--grpcio", default="", help="another release of grpcio, such as 1.51.1")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


# Making what is measured.


def _wanted(grpcio: str) -> list[str]:
    return [f"{REPOSITORY}[kubelet]", *([f"grpcio=={grpcio}"] if grpcio else [])]


@contextmanager
def _plugin(bin_dir: Path, root: Path) -> Iterator[subprocess.Popen[bytes]]:
    folders = ("--kubelet-dir", str(root / "kubelet"), "--spec-dir", str(root / "run/cdi"))
    process = subprocess.Popen(
        [str(bin_dir / "cdigen"), "kubelet", "--root", str(root), *folders],
        cwd="/",
        stderr=subprocess.DEVNULL,
        # As the unit has it.
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "MALLOC_ARENA_MAX": "1"},
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


@contextmanager
def _kubelet(root: Path) -> Iterator[Kubelet]:
    made = Kubelet(root / "kubelet")
    try:
        yield made
    finally:
        made.stop()


def _wait(reached: Callable[[], Any]) -> Any:
    """Return what REACHED returns as soon as that is something."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        if found := reached():
            return found
        time.sleep(0.001)
    sys.exit("nothing has come of it")


def _listed(kubelet: Kubelet) -> Endpoint:
    """Return what the resource is registered with, as soon as it has sent its list."""

    def listed() -> Endpoint | None:
        endpoint = kubelet.endpoints.get(GPU)
        return endpoint if endpoint is not None and endpoint.lists else None

    found: Endpoint = _wait(listed)
    return found


# Measuring.


def _starts(bin_dir: Path, root: Path, runs: int) -> list[dict[str, object]]:
    """Time a start, with a kubelet there, until the kubelet has the list."""
    bare: list[float] = []
    listed: list[float] = []
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run([str(bin_dir / "python"), "-I", "-c", "pass"], check=True, cwd="/")
        bare.append(time.perf_counter() - begin)
        with _kubelet(root) as kubelet:
            kubelet.start()
            begin = time.monotonic()
            with _plugin(bin_dir, root):
                listed.append(_listed(kubelet).times[0] - begin)
    one = statistics.median(bare)
    return [
        times_row("python3 -I -c pass", bare, ratio=1.0),
        times_row("to the list", listed, ratio=round(statistics.median(listed) / one, 1)),
    ]


def _registrations(bin_dir: Path, root: Path, name: str, runs: int) -> list[dict[str, object]]:
    """Time from a new kubelet.sock, with the process running, to Register and from there to the list."""
    registered: list[float] = []
    at_once: list[float] = []
    listed: list[float] = []
    with _plugin(bin_dir, root), _kubelet(root) as kubelet:
        kubelet.start()
        _listed(kubelet)
        for run in range(2 * runs):
            time.sleep(1.5)
            kubelet.kill()
            # A service manager's restart; and a kubelet that is there again at once.
            time.sleep(0.0 if run % 2 else 1.5)
            before = len(kubelet.registered)
            begin = time.monotonic()
            kubelet.start()
            endpoint = _listed(kubelet)
            moment = kubelet.registered[before][0]
            (at_once if run % 2 else registered).append(moment - begin)
            listed.append(endpoint.times[0] - moment)
    return [
        times_row(f"{name}: Register", registered, goal_ms=REGISTERED_GOAL_MS),
        times_row(f"{name}: Register, killed just before", at_once, goal_ms=REGISTERED_GOAL_MS),
        times_row(f"{name}: from Register to the list", listed, goal_ms=LISTED_GOAL_MS),
    ]


def _changes(bin_dir: Path, root: Path, name: str, runs: int) -> dict[str, object]:
    """Time from the daemon's new inventory to the kubelet's list."""
    host = unhealthy_gpus.example()
    times = []
    with _plugin(bin_dir, root), _kubelet(root) as kubelet:
        kubelet.start()
        endpoint = _listed(kubelet)
        for run in range(runs):
            time.sleep(1.5)
            before = len(endpoint.lists)
            begin = time.monotonic()
            unhealthy_gpus.save(
                root, unhealthy_gpus.ill(host, 0, unhealthy_gpus.FELL) if run % 2 == 0 else host
            )
            _wait(partial(_has_more, endpoint, before))
            times.append(endpoint.times[before] - begin)
        unhealthy_gpus.save(root, host)
    return times_row(name, times, goal_ms=1000)


def _has_more(endpoint: Endpoint, lists: int) -> bool:
    return len(endpoint.lists) > lists


def _answers(bin_dir: Path, root: Path, count: int) -> list[dict[str, object]]:
    chance = random.Random(1)
    with _plugin(bin_dir, root), _kubelet(root) as kubelet:
        kubelet.start()
        endpoint = _listed(kubelet)
        ids = list(endpoint.lists[-1])
        chance.shuffle(ids)

        def both(size: int) -> None:
            endpoint.allocate(*endpoint.prefer(ids, [], size))

        time.sleep(1.5)
        asked: dict[str, Callable[[], Any]] = {
            "GetDevicePluginOptions": endpoint.options,
            "Allocate of 1": lambda: endpoint.allocate(chance.choice(ids)),
            "Allocate of 8": lambda: endpoint.allocate(*chance.sample(ids, 8)),
            "a preference and Allocate of 1": lambda: both(1),
            "a preference and Allocate of 4": lambda: both(4),
        }
        times: dict[str, list[float]] = {name: [] for name in asked}
        for _ in range(count):
            for name, ask in asked.items():
                begin = time.perf_counter()
                ask()
                times[name].append(time.perf_counter() - begin)
        one = statistics.median(times["GetDevicePluginOptions"])
        return [_percentiles(name, found, one) for name, found in times.items()]


def _idle(bin_dir: Path, root: Path, name: str, for_s: float) -> dict[str, object]:
    with _plugin(bin_dir, root) as process, _kubelet(root) as kubelet:
        kubelet.start()
        _listed(kubelet)
        time.sleep(15)
        begin, cpu, wakeups = time.monotonic(), _processor_s(process), _wakeups(process)
        time.sleep(for_s)
        took_s = time.monotonic() - begin
        text = Path(f"/proc/{process.pid}/status").read_text()
        now, most = (int(text.partition(f"{key}:")[2].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
        return {
            "what": name,
            "cpu_percent": round((_processor_s(process) - cpu) / took_s * 100, 3),
            "goal_percent": IDLE_GOAL_PERCENT,
            "wakeups_per_minute": round((_wakeups(process) - wakeups) / took_s * 60),
            "rss_mb": round(now, 1),
            "peak_mb": round(most, 1),
            "goal_mb": MEMORY_GOAL_MB,
        }


def _processor_s(process: subprocess.Popen[bytes]) -> float:
    """Return the processor time of all its threads; /proc/PID/stat counts in steps of 10 ms."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _wakeups(process: subprocess.Popen[bytes]) -> int:
    """Return how often its threads have gone to sleep."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/status")
    texts = (task.read_text().partition("\nvoluntary_ctxt_switches:")[2] for task in tasks)
    return sum(int(text.split()[0]) for text in texts)


# Telling.


def _percentiles(what: str, times: list[float], one: float) -> dict[str, object]:
    ordered = sorted(times)
    return {
        "what": what,
        "p50_ms": round(ordered[len(ordered) // 2] * 1000, 2),
        "p99_ms": round(ordered[len(ordered) * 99 // 100] * 1000, 2),
        "goal_p99": P99_GOAL_MS,
        "max_ms": round(ordered[-1] * 1000, 2),
        "ratio": round(statistics.median(times) / one, 2),
    }


if __name__ == "__main__":
    main()
