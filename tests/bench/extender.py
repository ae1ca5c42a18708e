"""Measure ``cdigen extender`` with a large cluster: filter, prioritize, bind, start, memory.

``make bench-extender`` runs it. The API server is the fake of the tests, in this process; its response time
is subtracted from the time of a bind. Pods have 5 kB, like real pods. The scheduler's requests name all
nodes.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# Replace this folder in sys.path, because its files have the same names as packages of the tests.
sys.path[:1] = [str(TESTS), str(TESTS.parent)]

from bench.tables import parser
from support.kubernetes.api_server import ApiServer
from support.kubernetes.big_cluster import big_cluster
from support.kubernetes.extender_process import PREFIX, Extender, ready
from support.kubernetes.gpu_memory_pods import pod_object

FILTER_GOAL_MS, BIND_GOAL_MS, MEMORY_GOAL_MB = 50.0, 100.0, 120.0


def main() -> None:
    """Run the benchmark; prints a table or JSON."""
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--pods", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=100)
    options = arguments.parse_args()
    cluster = big_cluster(options.nodes, options.pods, bare=options.pods)
    nodes = sorted(path.rsplit("/", 1)[-1] for path in cluster.objects if "/nodes/" in path)
    with tempfile.TemporaryDirectory(prefix="cdigen-") as folder, ApiServer(cluster) as server:
        begun_s = time.perf_counter()
        with ready(server, Path(folder, "e")) as extender:
            found = {"start, s": [time.perf_counter() - begun_s]}
            for verb in ("filter", "prioritize"):
                for units in ([4], [70], [20, 20, 20], [500]):
                    name = f"{verb} {'+'.join(map(str, units))}, ms"
                    found[name] = _times_ms(
                        extender, verb, pod_object("requesting", *units), nodes, options.rounds
                    )
            found["bind without the API's time, ms"] = _bind_times_ms(server, extender, nodes, options.rounds)
            found["RSS, MB"] = [_rss_mb(extender.process.pid)]
    if options.json:
        print(json.dumps({name: [_p(times, 0.5), _p(times, 0.99)] for name, times in found.items()}))
        return
    print(f"{options.nodes} nodes with 8 GPUs, {options.pods} pods with a request, and as many without")
    for name, times in found.items():
        print(f"{name:34} median {statistics.median(times):8.2f}   p99 {_p(times, 0.99):8.2f}")
    print(f"goals: filter {FILTER_GOAL_MS} ms, bind {BIND_GOAL_MS} ms, RSS {MEMORY_GOAL_MB} MB")


def _times_ms(
    extender: Extender, verb: str, pod: dict[str, object], nodes: list[str], rounds: int
) -> list[float]:
    body = json.dumps({"Pod": pod, "NodeNames": nodes}).encode()
    times = []
    for _ in range(rounds):
        begun_s = time.perf_counter()
        status, _answer = extender.request("POST", f"{PREFIX}/{verb}", body)
        times.append((time.perf_counter() - begun_s) * 1000)
        assert status == 200
    return times


def _bind_times_ms(server: ApiServer, extender: Extender, nodes: list[str], rounds: int) -> list[float]:
    times = []
    for number in range(rounds):
        pod = pod_object(f"new-{number}", 1)
        server.change(lambda cluster, pod=pod: cluster.add_pod(pod))  # type: ignore[misc]
        spent_s, begun_s = server.spent_s, time.perf_counter()
        problem = extender.bind(f"new-{number}", nodes[number % len(nodes)])
        took_s = time.perf_counter() - begun_s
        assert problem == "", problem
        times.append((took_s - (server.spent_s - spent_s)) * 1000)
    return times


def _rss_mb(pid: int) -> float:
    line = next(
        row for row in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if row[:4] == "Rss:"
    )
    return int(line.split()[1]) / 1000


def _p(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


if __name__ == "__main__":
    main()
