"""Measure ``cdigen nri``: the time to register, the delay of a container's creation, and the memory.

``make bench-nri`` runs it. The plugin is installed into a private venv as users install it, with compiled
modules, on a created host (64 GPUs, each named by index and UUID; an inventory). The runtime is the fake of
the tests, on the other end of the plugin's socket. The benchmark compares a start with a start of bare Python
in the same run, and a response with the response for a container without a request. Both responses need the
same bytes, system calls and parsing. Their difference is the time of the decision. All times include the time
of the client.
"""

from __future__ import annotations

import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from contextlib import AbstractContextManager
    from typing import Any

    from cdigen.nri.decision.context import DecisionContext

TESTS = Path(__file__).resolve().parents[1]
# Replace this folder in sys.path, because its files have the same names as packages of the tests.
sys.path[:1] = [str(TESTS), str(TESTS.parent)]

from bench.installed import install
from bench.processes import TIMEOUT_S, memory_mb, running
from bench.tables import parser, percentile, report, times_row
from support.nri.plugin import INJECTS_08, Host, gpu_request
from support.nri.runtime import Runtime, SocketTransport, container, pod
from support.nri.serving import SETTINGS, context_on
from support.nri.vendor_claims import write_claim

from cdigen.nri.decision.result.compat import abilities
from cdigen.nri.decision.result.injection import adjust_container
from cdigen.nri.wire import mux
from cdigen.nri.wire.messages import CLASSES
from cdigen.nri.wire.session import CreateContainer, Session

GPUS = 64
UUIDS = [f"GPU-{number:08x}-0000-4000-8000-000000000000" for number in range(GPUS)]
REGISTERED_GOAL_MS = 150
P50_GOAL_MS, P99_GOAL_MS = 0.5, 2.0
FLIGHT, FLIGHT_GOAL_MS = 100, 80
MEMORY_GOAL_MB = 40
PODS = 5000
# The number of spec files of ResourceClaims, the goal for the additional time of a response after a change of
# one file, and the time between two containers.
CLAIMS, CHANGED_GOAL_MS, PAUSE_S = 1000, 5.0, 0.05
HEADER = struct.Struct(">II")
ANNOTATION = "devices.cdigen.dev"


def main() -> None:
    """Run the benchmark; prints tables or JSON."""
    arguments = parser(__doc__)
    arguments.add_argument("--starts", type=int, default=25, help="starts (default: 25)")
    arguments.add_argument("--requests", type=int, default=2000, help="requests of each kind (default: 2000)")
    arguments.add_argument("--flights", type=int, default=25, help="rounds of 100 requests (default: 25)")
    arguments.add_argument("--changes", type=int, default=100, help="changed files (default: 100)")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="cdigen-") as folder:
        bin_dir = install(Path(folder, "venv"))
        host = Host(Path(folder, "host"))
        host.write_spec([name for number in range(GPUS) for name in (str(number), UUIDS[number])])
        host.write_spec(["all", *UUIDS], kind="nvidia.com/whole", file="whole.json")
        host.write_inventory()
        host.listen()
        tables = {"from start": _starts(bin_dir, host, options.starts)}
        with _plugin(bin_dir, host) as process:
            runtime = _registered(host)
            _wait_until_idle(runtime)
            context = context_on(host.root, SETTINGS)
            tables["processor time of an answer"] = [
                _alone(context, name, requests, options.requests) for name, requests in _requests().items()
            ]
            tables["one request at a time"] = [
                _answers(host, name, frames, options.requests) for name, frames in _requests().items()
            ]
            tables[f"{FLIGHT} requests in flight"] = [
                _flight(host, name, frames, options.flights) for name, frames in _requests().items()
            ]
            tables["memory"] = [_memory("after these requests", process)]
        runtime.close()
        tables["memory"] = [*_idle(bin_dir, host), *tables["memory"]]
        tables[f"{CLAIMS:,} files of 4 kB"] = _claims(bin_dir, host, options.changes)
        host.close()
    report(tables, as_json=options.json)


# Set-up.


def _plugin(bin_dir: Path, host: Host) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return running(bin_dir / "cdigen", "nri", "--root", host.root)


def _registered(host: Host, *, pods: int = 0) -> Runtime:
    """Return a runtime that has sent its state, and is ready for requests."""
    rows = [_running(number) for number in range(pods)]
    return host.runtime([row[0] for row in rows], [row[1] for row in rows])


def _running(number: int) -> tuple[Any, Any]:
    """Return a pod and its container, as large as real ones: about 3 kB."""
    notes = {f"example.com/note{note}": "x" * 150 for note in range(6)}
    variables = [f"VARIABLE_{one}={'y' * 40}" for one in range(20)]
    mounts = [{"destination": f"/mnt/{one}", "source": "/var/lib/kubelet/pods/volumes"} for one in range(10)]
    return (
        pod(
            id=f"p{number}", name=f"pod-{number}", namespace="ml" if number % 2 else "web", annotations=notes
        ),
        container(
            id=f"c{number}",
            pod_sandbox_id=f"p{number}",
            env=[*variables, "NVIDIA_VISIBLE_DEVICES=all"],
            mounts=mounts,
        ),
    )


def _requests() -> dict[str, list[bytes]]:
    """Return the requests of each kind: one request that is repeated, or different requests."""
    chance = random.Random(1)
    listed = ",".join(UUIDS)
    shuffled = [",".join(chance.sample(UUIDS, GPUS)) for _ in range(250)]
    needs = "NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=535"
    names = ",".join(f"nvidia.com/gpu={uuid}" for uuid in UUIDS)
    return {
        "no request": [_create(*gpu_request(None))],
        "one GPU": [_create(*gpu_request("0"))],
        "all of 64": [_create(*gpu_request("all"))],
        "64 UUIDs, repeated": [_create(*gpu_request(listed))],
        "64 UUIDs, each time different": [_create(*gpu_request(text)) for text in shuffled],
        "64 UUIDs, different, requirements": [_create(*gpu_request(text, needs)) for text in shuffled],
        "64 names in an annotation": [
            _create(*gpu_request(None, annotations={ANNOTATION: names, "number": str(number)}))
            for number in range(250)
        ],
        "an unknown device": [_create(*gpu_request("GPU-77"))],
    }


def _create(pod_sandbox: Any, requested: Any) -> bytes:
    """Return the ttrpc message of a CreateContainer, without its header."""
    # The request is as large as the request for a real container.
    _, real = _running(0)
    requested.env.extend(entry for entry in real.env if not entry.startswith("NVIDIA"))
    requested.mounts.extend(real.mounts)
    create = CLASSES["CreateContainerRequest"](pod=pod_sandbox, container=requested)
    request = CLASSES["Request"](
        service="nri.pkg.api.v1alpha1.Plugin",
        method="CreateContainer",
        payload=create.SerializeToString(),
        timeout_nano=2_000_000_000,
    )
    data: bytes = request.SerializeToString()
    return data


def _configure() -> bytes:
    """Return the ttrpc message of a Configure, without its header."""
    request = CLASSES["Request"](service="nri.pkg.api.v1alpha1.Plugin", method="Configure")
    data: bytes = request.SerializeToString()
    return data


def _frames(stream: int, data: bytes) -> bytes:
    return mux.frames(mux.PLUGIN, struct.pack(">IIBB", len(data), stream, 1, 0) + data)


class Client:
    """The runtime's end of a connection: it sends prepared frames, and only counts the responses."""

    def __init__(self, host: Host) -> None:
        self._connection: socket.socket = host._connections[-1]
        self._connection.settimeout(TIMEOUT_S)
        self._got = b""

    def send(self, frames: bytes, answers: int = 1) -> float:
        """Send FRAMES, and read responses (their number is ANSWERS); return the seconds."""
        begin = time.perf_counter()
        self._connection.sendall(frames)
        for _ in range(answers):
            self._answer()
        return time.perf_counter() - begin

    def _answer(self) -> None:
        head = self._frame()
        (length,) = struct.unpack_from(">I", head)
        left = length + 10 - len(head)
        while left > 0:
            left -= len(self._frame())

    def _frame(self) -> bytes:
        (length,) = struct.unpack(">4xI", self._read(HEADER.size))
        return self._read(length)

    def _read(self, size: int) -> bytes:
        while len(self._got) < size:
            data = self._connection.recv(1 << 18)
            if not data:
                sys.exit("the plugin has closed the connection")
            self._got += data
        data, self._got = self._got[:size], self._got[size:]
        return data


_STREAMS = iter(range(1_000_001, 1 << 31, 2))


# Measurements.


def _starts(bin_dir: Path, host: Host, runs: int) -> list[dict[str, object]]:
    """Measure the time from a start to the connection, and to the registration of the plugin."""
    bare: list[float] = []
    connected: list[float] = []
    registered: list[float] = []
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run([str(bin_dir / "python"), "-I", "-c", "pass"], check=True, cwd="/")
        bare.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        with _plugin(bin_dir, host):
            connection = host.accept()
            connected.append(time.perf_counter() - begin)
            runtime = Runtime(SocketTransport(connection), **INJECTS_08)
            runtime.start()
            runtime.synchronize()
            registered.append(time.perf_counter() - begin)
        # Close the runtime only after the plugin has ended. Otherwise this plugin would connect again.
        runtime.close()
    one = statistics.median(bare)
    rows: tuple[tuple[str, list[float], object], ...] = (
        ("python3 -I -c pass", bare, ""),
        ("to the connection", connected, ""),
        ("to the registration", registered, REGISTERED_GOAL_MS),
    )
    return [
        times_row(what, times, goal_ms=goal, ratio=round(statistics.median(times) / one, 2))
        for what, times, goal in rows
    ]


def _wait_until_idle(runtime: Runtime) -> None:
    """Wait until the plugin has completed its start and has read the host."""
    begin = time.monotonic()
    while time.monotonic() - begin < 2:
        runtime.create(*gpu_request("0"))
        time.sleep(0.1)


def _answers(host: Host, name: str, requests: list[bytes], count: int) -> dict[str, object]:
    client = Client(host)
    frames = [_frames(next(_STREAMS), requests[one % len(requests)]) for one in range(count)]
    return _percentiles(name, [client.send(frame) for frame in frames])


def _alone(context: DecisionContext, name: str, requests: list[bytes], count: int) -> dict[str, object]:
    """Measure the processor time of a request in this process, from its bytes to the response's bytes."""
    able = abilities("containerd", "2.1.9")
    session = Session("cdigen", "20")
    session.feed(_frames(1, _configure()))
    session.subscribe(1, able.events)
    times = []
    for one in range(count):
        frames = _frames(3 + 2 * one, requests[one % len(requests)])
        begin = time.thread_time()
        _, (event,) = session.feed(frames)
        assert isinstance(event, CreateContainer)
        found = adjust_container(event.pod, event.container, context, able)
        assert context.host.is_current()
        if found.outcome == "refuse":
            sent = session.refuse(event.call, found.reason)
        else:
            sent = session.adjust(event.call, found.adjustment)
        times.append(time.thread_time() - begin)
        assert sent
    return _percentiles(name, times)


def _flight(host: Host, name: str, requests: list[bytes], runs: int) -> dict[str, object]:
    client = Client(host)
    times = []
    for _ in range(runs):
        frames = [_frames(next(_STREAMS), requests[one % len(requests)]) for one in range(FLIGHT)]
        times.append(client.send(b"".join(frames), FLIGHT))
    return times_row(name, times, goal_ms=FLIGHT_GOAL_MS)


def _claims(bin_dir: Path, host: Host, count: int) -> list[dict[str, object]]:
    """Measure responses with many spec files: without a change, and after the replacement of one file."""
    aside = host.root / "aside"
    aside.mkdir()
    for claim in range(CLAIMS):
        write_claim(host.specs, claim)
    (request,) = _requests()["one GPU"]
    rows: list[dict[str, object]] = []
    with _plugin(bin_dir, host) as process:
        runtime = _registered(host)
        _wait_until_idle(runtime)
        client = Client(host)
        # Both cases write a file, so that the processor's caches are in the same state.
        for what, folder in (("none was changed", aside), ("one was changed", host.specs)):
            times = []
            for number in range(count):
                time.sleep(PAUSE_S)
                write_claim(folder, number % CLAIMS, version=number)
                times.append(client.send(_frames(next(_STREAMS), request)))
            rows.append(_percentiles(what, times))
        memory = _memory("", process)
    runtime.close()
    first = float(str(rows[0]["p50_ms"]))
    return [
        {
            **{key: row[key] for key in ("what", "p50_ms", "p99_ms", "max_ms")},
            "more_ms": round(float(str(row["p50_ms"])) - first, 3),
            "goal_more": CHANGED_GOAL_MS,
            "ratio": round(float(str(row["p50_ms"])) / first, 1),
            "rss_mb": memory["rss_mb"],
        }
        for row in rows
    ]


def _idle(bin_dir: Path, host: Host) -> list[dict[str, object]]:
    """Measure the memory of an idle plugin, and of a plugin on a full node."""
    rows = []
    for name, pods in (("registered, idle", 0), (f"after {PODS:,} pods, each with a container", PODS)):
        with _plugin(bin_dir, host) as process:
            runtime = _registered(host, pods=pods)
            _wait_until_idle(runtime)
            rows.append(_memory(name, process))
        runtime.close()
    return rows


def _memory(name: str, process: subprocess.Popen[bytes]) -> dict[str, object]:
    return {"what": name, **memory_mb(process), "goal_mb": MEMORY_GOAL_MB}


def _percentiles(what: str, times: list[float]) -> dict[str, object]:
    return {
        "what": what,
        "p50_ms": round(percentile(times, 50), 3),
        "goal_p50": P50_GOAL_MS,
        "p99_ms": round(percentile(times, 99), 3),
        "goal_p99": P99_GOAL_MS,
        "max_ms": round(max(times) * 1000, 2),
    }


if __name__ == "__main__":
    main()
