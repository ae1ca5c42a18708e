"""Measure ``cdigen kubelet``: the time to register, the delay of a pod's start, and the cost while idle.

``make bench-kubelet`` runs it. The plugin is installed into a private venv as users install it, with compiled
modules, on a created host: 8 GPUs, whole and as 5,000 replicas. The kubelet is the fake of the tests. The
benchmark compares a start with a start of bare Python in the same run, and a response with the response to
GetDevicePluginOptions, which needs only gRPC. All times include the time of the fake kubelet.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

TESTS = Path(__file__).resolve().parents[1]
# Replace this folder in sys.path, because its files have the same names as packages of the tests.
sys.path[:1] = [str(TESTS), str(TESTS.parent)]

from bench.installed import REPOSITORY, install
from bench.processes import idle, memory_mb, reached, running
from bench.tables import parser, percentile, report, times_row
from support.kubelet.double import Endpoint, Kubelet
from support.kubelet.host_resources import put
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


def main() -> None:
    """Run the benchmark; prints tables or JSON."""
    arguments = parser(__doc__)
    arguments.add_argument("--starts", type=int, default=10, help="starts, and changes (default: 10)")
    arguments.add_argument("--requests", type=int, default=1000, help="requests of each kind (default: 1000)")
    arguments.add_argument(
        "--idle", type=float, default=60, help="seconds to observe the idle process (default: 60)"
    )
    arguments.add_argument("--grpcio", default="", help="another release of grpcio, such as 1.51.1")
    options = arguments.parse_args()
    # Not in /tmp: the plugin watches all folders on the path of the host's root, and /tmp changes often.
    with tempfile.TemporaryDirectory(prefix="k", dir="/var/tmp") as folder:
        bin_dir = install(Path(folder, "venv"), *_packages(options.grpcio))
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
    report(tables, as_json=options.json)


# Set-up.


def _packages(grpcio: str) -> list[str]:
    return [f"{REPOSITORY}[kubelet]", *([f"grpcio=={grpcio}"] if grpcio else [])]


def _plugin(bin_dir: Path, root: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    folders = ("--kubelet-dir", root / "kubelet", "--spec-dir", root / "run/cdi")
    return running(bin_dir / "cdigen", "kubelet", "--root", root, *folders)


@contextmanager
def _kubelet(root: Path) -> Iterator[Kubelet]:
    made = Kubelet(root / "kubelet")
    try:
        yield made
    finally:
        made.stop()


def _listed(kubelet: Kubelet) -> Endpoint:
    """Wait until the plugin has sent the list of the resource; return the endpoint of the resource."""

    def listed() -> Endpoint | None:
        endpoint = kubelet.endpoints.get(GPU)
        return endpoint if endpoint is not None and endpoint.lists else None

    found = reached(listed, "the list of the resource")
    assert found
    return found


# Measurements.


def _starts(bin_dir: Path, root: Path, runs: int) -> list[dict[str, object]]:
    """Measure the time from the start of the plugin until the kubelet, which runs already, has the list."""
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
    """Measure the time from a new kubelet.sock to Register, and from Register to the list."""
    registered: list[float] = []
    at_once: list[float] = []
    listed: list[float] = []
    with _plugin(bin_dir, root), _kubelet(root) as kubelet:
        kubelet.start()
        _listed(kubelet)
        for run in range(2 * runs):
            time.sleep(1.5)
            kubelet.kill()
            # Alternately, a restart by the service manager and an immediate restart of the kubelet.
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
    """Measure the time from a new inventory of the daemon to the kubelet's list."""
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
                root, unhealthy_gpus.with_causes(host, 0, unhealthy_gpus.FELL) if run % 2 == 0 else host
            )
            reached(lambda before=before: len(endpoint.lists) > before, "another list")  # type: ignore[misc]
            times.append(endpoint.times[before] - begin)
        unhealthy_gpus.save(root, host)
    return times_row(name, times, goal_ms=1000)


def _answers(bin_dir: Path, root: Path, count: int) -> list[dict[str, object]]:
    chance = random.Random(1)
    with _plugin(bin_dir, root), _kubelet(root) as kubelet:
        kubelet.start()
        endpoint = _listed(kubelet)
        ids = list(endpoint.lists[-1])
        chance.shuffle(ids)

        def both(size: int) -> None:
            endpoint.allocate(*endpoint.preferred_allocation(ids, [], size))

        time.sleep(1.5)
        kinds: dict[str, Callable[[], Any]] = {
            "GetDevicePluginOptions": endpoint.options,
            "Allocate of 1": lambda: endpoint.allocate(chance.choice(ids)),
            "Allocate of 8": lambda: endpoint.allocate(*chance.sample(ids, 8)),
            "a preference and Allocate of 1": lambda: both(1),
            "a preference and Allocate of 4": lambda: both(4),
        }
        times: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(count):
            for name, allocate in kinds.items():
                begin = time.perf_counter()
                allocate()
                times[name].append(time.perf_counter() - begin)
        one = statistics.median(times["GetDevicePluginOptions"])
        return [_percentiles(name, found, one) for name, found in times.items()]


def _idle(bin_dir: Path, root: Path, name: str, for_s: float) -> dict[str, object]:
    with _plugin(bin_dir, root) as process, _kubelet(root) as kubelet:
        kubelet.start()
        _listed(kubelet)
        time.sleep(15)
        return {
            "what": name,
            **idle(process, for_s),
            "goal_percent": IDLE_GOAL_PERCENT,
            **memory_mb(process),
            "goal_mb": MEMORY_GOAL_MB,
        }


def _percentiles(what: str, times: list[float], one: float) -> dict[str, object]:
    return {
        "what": what,
        "p50_ms": round(percentile(times, 50), 2),
        "p99_ms": round(percentile(times, 99), 2),
        "goal_p99": P99_GOAL_MS,
        "max_ms": round(max(times) * 1000, 2),
        "ratio": round(statistics.median(times) / one, 2),
    }


if __name__ == "__main__":
    main()
