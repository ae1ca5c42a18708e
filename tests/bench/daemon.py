"""Measure ``cdigen run``: the delay from an event to the spec, the cost of a cycle, and the cost while idle.

``make bench-daemon`` runs it, as root (it creates device nodes). The benchmark creates the hosts: the driver
files of the example inventory with the kernel interfaces of 8 GPUs, of 8 GPUs in 56 MIG instances, and of
1,000 GPUs. cdigen is installed into a private venv as users install it, with compiled modules. The daemon
uses its default times; only the measurement of memory shortens the debounce. NVML is not used: ``make bench``
measures the child process that loads NVML.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTS = Path(__file__).resolve().parents[1]
# Replace this folder in sys.path, because its files have the same names as packages of the tests.
sys.path[:1] = [str(TESTS), str(TESTS.parent)]

from bench.installed import install
from bench.processes import idle, memory_mb, reached, running
from bench.tables import parser, report, times_row
from support.hosts import driver_files
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side

SPEC = "run/cdi/nvidia.com-gpu.json"
FILES = ("--layout", "files", "--hook", "none")
VIEW = ("--layout", "view", "--hook", "none")
GOALS_MS = {"8 GPUs": 15, "56 MIG instances": 25, "1,000 GPUs": 1000}
EVENT_GOAL_MS = 500
IDLE_GOAL_PERCENT = 0.1
THREADS_GOAL = 10
INOTIFY_GOAL = 3
MEMORY_GOAL_MB = 45

# A program for the Python of the private venv. It measures cycles of the daemon on an unchanged host.
CYCLES = """
import json, sys, time
from cdigen.cli.services import run
from cdigen.cli.main import command_parser
from cdigen.daemon.cycle.reconciler import Reconciler
from cdigen.watch.triggers import Batch
arguments = command_parser("run").parse_args(sys.argv[2:])
reconciler = Reconciler()
times = []
for number in range(int(sys.argv[1]) + 3):
    begin = time.perf_counter()
    cycle = reconciler.cycle(run.setup(arguments), Batch())
    times.append(time.perf_counter() - begin)
    if number:
        assert cycle.report.result == "unchanged", cycle.report
print(json.dumps(times[3:]))
"""


class Daemon:
    """A running daemon, and the kernel's statistics of it."""

    def __init__(self, root: Path, process: subprocess.Popen[bytes]) -> None:
        self.root = root
        self.process = process

    def status(self) -> dict[str, object]:
        try:
            found: dict[str, object] = json.loads((self.root / "run/cdigen/status.json").read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def cycles(self) -> int:
        last = self.status().get("last_cycle")
        return int(last.get("number", 0)) if isinstance(last, dict) else 0

    def wait_until_idle(self, for_s: float = 1.5) -> None:
        """Wait until the daemon has started no cycle for FOR_S."""
        before = -1
        while before != (before := self.cycles()) or before == 0:
            time.sleep(for_s)

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def inotify_instances(self) -> int:
        files = Path(f"/proc/{self.process.pid}/fd").iterdir()
        return sum(os.readlink(file) == "anon_inode:inotify" for file in files)


def main() -> None:
    """Run the benchmark; prints tables or JSON."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--runs", type=int, default=25, help="events and cycles of each kind (default: 25)"
    )
    arguments.add_argument(
        "--idle", type=float, default=60, help="seconds to observe the idle process (default: 60)"
    )
    arguments.add_argument("--cycles", type=int, default=500, help="cycles between sizes (default: 500)")
    options = arguments.parse_args()
    if os.geteuid() != 0:
        sys.exit("run it as root: it makes device nodes")
    # Not in /tmp: the daemon watches all folders on the path of the host's root, and /tmp changes often.
    with tempfile.TemporaryDirectory(prefix="cdigen-bench-", dir="/var/tmp") as folder:
        work = Path(folder)
        python = install(work / "venv") / "python"
        hosts = {
            "8 GPUs": _host(work / "host-8", 8),
            "2 GPUs": _host(work / "host-2", 2),
            "56 MIG instances": _mig_host(work / "host-mig"),
            "1,000 GPUs": _host(work / "host-1000", 1000),
        }
        tables = {
            "last event to spec on disk": _events(python, hosts["8 GPUs"], options.runs),
            "warm cycle": [_cycles(python, name, host, options.runs) for name, host in hosts.items()],
            f"idle for {options.idle:g} s": [
                _idle(python, name, hosts[name], options.idle)
                for name in ("2 GPUs", "8 GPUs", "56 MIG instances")
            ],
            "memory": _memory(python, hosts["8 GPUs"], options.cycles),
        }
    report(tables, as_json=options.json)


# Set-up.


def _host(root: Path, count: int) -> Path:
    root.mkdir()
    driver_files.debian_13(root)
    for folder in ("run", "var"):
        (root / folder).mkdir(exist_ok=True)
    (root / "var/run").symlink_to("/run")
    write_kernel_side(root, example_gpus(count))
    return root


def _mig_host(root: Path) -> Path:
    _host(root, 8)
    write_minors(root, 8)
    for gpu in range(8):
        for instance in range(7, 14):
            write_instance(root, gpu, instance)
    return root


@contextmanager
def _running(python: Path, root: Path, *options: str) -> Iterator[Daemon]:
    with running(python, "-m", "cdigen", "run", "--root", root, "--nvml", "off", *options) as process:
        daemon = Daemon(root, process)
        reached(daemon.cycles, "the first cycle")
        yield daemon


# Measurements.


def _events(python: Path, root: Path, runs: int) -> list[dict[str, object]]:
    """Measure the time from the last change of the host to the rename of the new spec."""
    folder = root / "usr/lib/x86_64-linux-gnu"
    library = next(path for path in sorted(folder.rglob("libnvidia-opencl.so.*")) if not path.is_symlink())
    node = root / "dev/nvidia7"
    capability = root / "proc/driver/nvidia/gpus" / example_gpus(8)[7].bdf
    aside = root / "kept"
    aside.mkdir()

    def package(path: Path) -> None:
        """Unlink the file PATH or, if it is missing, install it as dpkg does: by a rename in its folder."""
        kept = aside / path.name
        if path.exists():
            os.link(path, kept)
            path.unlink()
        else:
            os.rename(kept, path.with_name(f"{path.name}.dpkg-new"))
            os.rename(path.with_name(f"{path.name}.dpkg-new"), path)

    def move(path: Path) -> None:
        kept = aside / path.name
        os.rename(*((path, kept) if path.exists() else (kept, path)))

    rows = []
    for name, change, options, goal in (
        ("a library comes or goes, files", lambda: package(library), FILES, EVENT_GOAL_MS),
        ("a library comes or goes, view", lambda: package(library), VIEW, EVENT_GOAL_MS),
        ("a GPU's node comes or goes", lambda: package(node), FILES, EVENT_GOAL_MS),
        ("a library is moved out and in", lambda: move(library), FILES, EVENT_GOAL_MS),
        ("a GPU in /proc comes or goes (polled)", lambda: move(capability), FILES, 0),
    ):
        with _running(python, root, *options) as daemon:
            daemon.wait_until_idle()
            times = [_event(root / SPEC, change) for _ in range(max(2, runs // 2 * 2))]
        rows.append(times_row(name, times, goal_ms=goal or ""))
    return rows


def _event(spec: Path, change: Callable[[], None]) -> float:
    before = spec.stat().st_ino
    change()
    begin = time.perf_counter()
    reached(lambda: spec.exists() and spec.stat().st_ino != before, f"a new {spec}")
    took = time.perf_counter() - begin
    # Not a multiple of the polling interval, so that events occur at different times within the interval.
    time.sleep(0.6 + (begin % 1) / 2)
    return took


def _cycles(python: Path, name: str, root: Path, runs: int) -> dict[str, object]:
    command = [str(python), "-c", CYCLES, str(runs), "--root", str(root), "--nvml", "off", *FILES]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/")
    return times_row(name, json.loads(done.stdout), goal_ms=GOALS_MS.get(name, ""))


def _idle(python: Path, name: str, root: Path, for_s: float) -> dict[str, object]:
    with _running(python, root, *FILES) as daemon:
        daemon.wait_until_idle()
        cycles = daemon.cycles()
        return {
            "what": name,
            **idle(daemon.process, for_s),
            "goal_percent": IDLE_GOAL_PERCENT,
            "cycles": daemon.cycles() - cycles,
            "threads": daemon.threads(),
            "goal_threads": THREADS_GOAL,
            "inotify_instances": daemon.inotify_instances(),
            "goal_instances": INOTIFY_GOAL,
        }


def _memory(python: Path, root: Path, cycles: int) -> list[dict[str, object]]:
    """Return the resident size after the start, and after cycles that each write a new spec."""
    config = root / "etc/cdigen/config.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("daemon: {debounce_s: 0.01}\n")
    rows: list[dict[str, object]] = []

    def measure(daemon: Daemon, name: str) -> None:
        size_mb = memory_mb(daemon.process)["rss_mb"]
        rows.append({"what": name, "rss_mb": size_mb, "goal_mb": MEMORY_GOAL_MB})

    node, aside = root / "dev/nvidia7", root / "aside"
    try:
        with _running(python, root, *FILES) as daemon:
            daemon.wait_until_idle(0.5)
            measure(daemon, "after the start")
            for part in (0.1, 0.5, 1.0):
                while daemon.cycles() < cycles * part:
                    before = daemon.cycles()
                    os.rename(*((node, aside) if node.exists() else (aside, node)))
                    reached(lambda before=before: daemon.cycles() > before, "the next cycle")  # type: ignore[misc]
                measure(daemon, f"after {daemon.cycles()} cycles, each with a write")
    finally:
        if aside.exists():
            aside.rename(node)
        config.unlink()
    return rows


if __name__ == "__main__":
    main()
