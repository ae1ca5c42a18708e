"""Measure the daemon's page: how long it takes to make, and what 10,000 views leave in the daemon's memory.

``make bench-page`` runs it. A page is made within this process from a value that holds all that it shows
(tests/support/values/page_samples.py), without figures being asked for. The daemon is the real one on a
host made here, 8 GPUs without NVML, its modules compiled; views come one after the other over its socket.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TESTS = Path(__file__).resolve().parents[1]
# Not this folder, whose files have the names of the tests' packages.
sys.path[:1] = [str(TESTS), str(TESTS.parent)]

from bench.installed import REPOSITORY
from bench.processes import PATIENCE_S, processor_s
from bench.tables import parser
from support.daemon.host import Daemon, Host, daemon
from support.values.page_samples import SAMPLES

from cdigen.daemon.page.document import document
from cdigen.daemon.page.page import page

# Milliseconds of the daemon's time, by host; a missed goal is marked.
GOALS_MS = {"healthy": 30.0, "large": 100.0}
NAMES = {"healthy": "8 GPUs", "large": "16 GPUs, 64 partitions"}
MEMORY_GOAL_MB = 44.0


def main() -> None:
    """Measure, and print a table or JSON."""
    asked = parser(__doc__)
    asked.add_argument("--times", type=int, default=200, help="how often a page is made (default: 200)")
    asked.add_argument("--views", type=int, default=10_000, help="of the daemon's page (default: 10,000)")
    options = asked.parse_args()
    rows = [_made(name, options.times) for name in GOALS_MS]
    served = _served(options.views)
    if options.json:
        print(json.dumps({"made": rows, "daemon": served}, indent=2))
        return
    print(f"{'a page of':26} {'median ms':>10} {'p99 ms':>8} {'goal ms':>8} {'kB':>6} {'JSON ms':>8}")
    for row in rows:
        late = "  MISSED" if row["median_ms"] > row["goal_ms"] else ""
        print(
            f"{row['host']:26} {row['median_ms']:10.1f} {row['p99_ms']:8.1f} {row['goal_ms']:8.0f} "
            f"{row['kb']:6.0f} {row['json_ms']:8.1f}{late}"
        )
    print()
    for name, value in served.items():
        print(f"{name:40} {value:10.2f}")
    if served["MB after all views"] > MEMORY_GOAL_MB:
        print(f"MISSED: the goal is {MEMORY_GOAL_MB:g} MB")


def _made(name: str, times: int) -> dict[str, Any]:
    view = SAMPLES[name]()
    taken = _timed(lambda: page(view), times)
    return {
        "host": NAMES[name],
        "median_ms": statistics.median(taken),
        "p99_ms": taken[int(len(taken) * 0.99) - 1],
        "goal_ms": GOALS_MS[name],
        "kb": len(page(view).encode()) / 1000,
        "json_ms": statistics.median(_timed(lambda: json.dumps(document(view)), times)),
    }


def _timed(work: Callable[[], object], times: int) -> list[float]:
    """Return how long WORK took, in milliseconds of this process's time, the shortest first."""
    work()
    taken = []
    for _ in range(times):
        began = time.process_time()
        work()
        taken.append((time.process_time() - began) * 1000)
    return sorted(taken)


def _served(views: int) -> dict[str, float]:
    # Sources are compiled at their first import, which costs memory that an installed daemon does not need.
    subprocess.run([sys.executable, "-m", "compileall", "-q", REPOSITORY / "cdigen"], check=True)
    # In /tmp others come and go all the time; a folder on the way to the host's root is watched as well.
    with tempfile.TemporaryDirectory(prefix="page", dir="/var/tmp") as folder:
        host = Host(Path(folder, "host")).make(8)
        host.configure(poll_s=60)
        # As the unit has it.
        with daemon(host, MALLOC_ARENA_MAX="1") as running:
            running.rests(1.0)
            at_start = running.resident_kb() / 1000
            _get(running)
            first = running.resident_kb() / 1000
            used, began = processor_s(running.process), time.monotonic()
            for _ in range(views):
                _get(running)
            return {
                "MB at start": at_start,
                "MB after the first view": first,
                "MB after all views": running.resident_kb() / 1000,
                "ms of the daemon's time for a view": (processor_s(running.process) - used) * 1000 / views,
                "ms until a view is there": (time.monotonic() - began) * 1000 / views,
            }


def _get(running: Daemon) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(running.host.run_dir / "http.sock"))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        data = bytearray()
        while piece := client.recv(1 << 20):
            data += piece
    if not data.startswith(b"HTTP/1.0 200 ") or not data.endswith(b"</html>\n"):
        raise SystemExit(f"no page: {bytes(data[:200])!r}")


if __name__ == "__main__":
    main()
