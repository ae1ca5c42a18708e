"""Measure the daemon's page: the time to create it, and the memory of the daemon after 10,000 views.

``make bench-page`` runs it. This process creates a page from a complete value
(tests/support/values/page_samples.py), without reading device stats. The daemon is real, with compiled
modules, on a created host with 8 GPUs without NVML. The benchmark requests one page at a time over
the daemon's socket.
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
# Replace this folder in sys.path, because its files have the same names as packages of the tests.
sys.path[:1] = [str(TESTS), str(TESTS.parent)]

from bench.installed import REPOSITORY
from bench.processes import TIMEOUT_S, processor_s
from bench.tables import parser
from support.daemon.host import Daemon, Host, daemon
from support.values.page_samples import SAMPLES

from cdigen.page.document import document
from cdigen.page.page import page

# The goal for each host, in milliseconds of processor time. The table marks a missed goal.
GOALS_MS = {"healthy": 30.0, "large": 100.0}
NAMES = {"healthy": "8 GPUs", "large": "16 GPUs, 64 partitions"}
MEMORY_GOAL_MB = 44.0


def main() -> None:
    """Run the benchmark; prints a table or JSON."""
    arguments = parser(__doc__)
    arguments.add_argument("--times", type=int, default=200, help="number of pages (default: 200)")
    arguments.add_argument(
        "--views", type=int, default=10_000, help="requests of the daemon's page (default: 10,000)"
    )
    options = arguments.parse_args()
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
    durations = _timed(lambda: page(view), times)
    return {
        "host": NAMES[name],
        "median_ms": statistics.median(durations),
        "p99_ms": durations[int(len(durations) * 0.99) - 1],
        "goal_ms": GOALS_MS[name],
        "kb": len(page(view).encode()) / 1000,
        "json_ms": statistics.median(_timed(lambda: json.dumps(document(view)), times)),
    }


def _timed(work: Callable[[], object], times: int) -> list[float]:
    """Return the durations of WORK in milliseconds of processor time, in ascending order."""
    work()
    durations = []
    for _ in range(times):
        began = time.process_time()
        work()
        durations.append((time.process_time() - began) * 1000)
    return sorted(durations)


def _served(views: int) -> dict[str, float]:
    # Sources are compiled at their first import, which costs memory that an installed daemon does not need.
    subprocess.run([sys.executable, "-m", "compileall", "-q", REPOSITORY / "cdigen"], check=True)
    # Not in /tmp: the daemon watches all folders on the path of the host's root, and /tmp changes often.
    with tempfile.TemporaryDirectory(prefix="page", dir="/var/tmp") as folder:
        host = Host(Path(folder, "host")).make(8)
        host.configure(poll_s=60)
        # MALLOC_ARENA_MAX is set as in the daemon's systemd unit.
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
        client.settimeout(TIMEOUT_S)
        client.connect(str(running.host.run_dir / "http.sock"))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        data = bytearray()
        while piece := client.recv(1 << 20):
            data += piece
    if not data.startswith(b"HTTP/1.1 200 ") or not data.endswith(b"</html>\n"):
        raise SystemExit(f"no page: {bytes(data[:200])!r}")


if __name__ == "__main__":
    main()
