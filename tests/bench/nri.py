"""Measure ``cdigen nri``: how soon it is registered, how long a container waits, how large it is.

``make bench-nri`` runs it. The plugin is installed into a private venv as users install it, with its modules
compiled, on a host made here (64 GPUs by index and UUID, an inventory of the driver); the runtime is that of
the tests, on the other end of the plugin's socket. A start is compared with one of bare Python in the same
run; an answer with that to a container which asks for nothing, which costs the same bytes, system calls and
reading: what is above is the decision. What the client itself takes is in all of them.
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
# Not this folder, whose files have the names of the tests' packages.
sys.path[:1] = [str(TESTS), str(TESTS.parent)]

from bench.installed import install
from bench.processes import PATIENCE_S, memory_mb, running
from bench.tables import parser, percentile, report, times_row
from support.nri.claims import write_claim
from support.nri.plugin import INJECTS_08, Host, asks
from support.nri.runtime import Runtime, SocketTransport, container, pod
from support.nri.serving import SETTINGS, known_of

from cdigen.nri.decision.answer import created
from cdigen.nri.decision.compat import abilities
from cdigen.nri.wire import mux
from cdigen.nri.wire.protobuf import message_class
from cdigen.nri.wire.session import CreateContainer, Session

GPUS = 64
UUIDS = [f"GPU-{number:08x}-0000-4000-8000-000000000000" for number in range(GPUS)]
REGISTERED_GOAL_MS = 150
P50_GOAL_MS, P99_GOAL_MS = 0.5, 2.0
FLIGHT, FLIGHT_GOAL_MS = 100, 80
MEMORY_GOAL_MB = 40
PODS = 5000
# Files of claims, what an answer may take longer where one of them was replaced right before, and the time
# between two containers.
CLAIMS, CHANGED_GOAL_MS, PAUSE_S = 1000, 5.0, 0.05
HEADER = struct.Struct(">II")
ANNOTATION = "devices.cdigen.dev"


def main() -> None:
    """Measure, and print tables or JSON."""
    asked = parser(__doc__)
    asked.add_argument("--starts", type=int, default=25, help="starts (default: 25)")
    asked.add_argument("--requests", type=int, default=2000, help="requests of each kind (default: 2000)")
    asked.add_argument("--flights", type=int, default=25, help="times 100 requests (default: 25)")
    asked.add_argument("--changes", type=int, default=100, help="changed files (default: 100)")
    options = asked.parse_args()
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
            _settle(runtime)
            context = known_of(host.root, SETTINGS)
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


# Making what is measured.


def _plugin(bin_dir: Path, host: Host) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return running(bin_dir / "cdigen", "nri", "--root", host.root)


def _registered(host: Host, *, pods: int = 0) -> Runtime:
    """Return a runtime that has told its state, so that it will ask from now on."""
    rows = [_running(number) for number in range(pods)]
    return host.runtime([row[0] for row in rows], [row[1] for row in rows])


def _running(number: int) -> tuple[Any, Any]:
    """Return a pod and its container with as much around them as on a real node: some 3 kB."""
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
    """Return the requests of each kind: one that is asked again and again, or different ones."""
    chance = random.Random(1)
    listed = ",".join(UUIDS)
    shuffled = [",".join(chance.sample(UUIDS, GPUS)) for _ in range(250)]
    needs = "NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=unknown,driver>=535"
    names = ",".join(f"nvidia.com/gpu={uuid}" for uuid in UUIDS)
    return {
        "asks for nothing": [_create(*asks(None))],
        "one GPU": [_create(*asks("0"))],
        "all of 64": [_create(*asks("all"))],
        "64 UUIDs, alike": [_create(*asks(listed))],
        "64 UUIDs, each time others": [_create(*asks(text)) for text in shuffled],
        "64 UUIDs, others, requirements": [_create(*asks(text, needs)) for text in shuffled],
        "64 names in an annotation": [
            _create(*asks(None, annotations={ANNOTATION: names, "number": str(number)}))
            for number in range(250)
        ],
        "a device that there is not": [_create(*asks("GPU-77"))],
    }


def _create(asking: Any, asked: Any) -> bytes:
    """Return the ttrpc message of a CreateContainer, but for its header."""
    # As much again as around a real container.
    _, real = _running(0)
    asked.env.extend(entry for entry in real.env if not entry.startswith("NVIDIA"))
    asked.mounts.extend(real.mounts)
    create = message_class("CreateContainerRequest")(pod=asking, container=asked)
    request = message_class("Request")(
        service="nri.pkg.api.v1alpha1.Plugin",
        method="CreateContainer",
        payload=create.SerializeToString(),
        timeout_nano=2_000_000_000,
    )
    data: bytes = request.SerializeToString()
    return data


def _configure() -> bytes:
    """Return the ttrpc message of a Configure, but for its header."""
    request = message_class("Request")(service="nri.pkg.api.v1alpha1.Plugin", method="Configure")
    data: bytes = request.SerializeToString()
    return data


def _frames(stream: int, data: bytes) -> bytes:
    return mux.frames(mux.PLUGIN, struct.pack(">IIBB", len(data), stream, 1, 0) + data)


class Client:
    """The bare end of a runtime's connection: what goes out was made before, answers are only counted."""

    def __init__(self, host: Host) -> None:
        self._connection: socket.socket = host._connections[-1]
        self._connection.settimeout(PATIENCE_S)
        self._got = b""

    def ask(self, frames: bytes, answers: int = 1) -> float:
        """Send FRAMES and read so many answers; returns how long that took."""
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


# Measuring.


def _starts(bin_dir: Path, host: Host, runs: int) -> list[dict[str, object]]:
    """Time a start until the runtime has the connection, and until it has registered the plugin."""
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
        # Not before the plugin has ended: it would connect again, and wait where the next one is expected.
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


def _settle(runtime: Runtime) -> None:
    """Wait until the plugin has begun all that it has to, and has looked at the host."""
    begin = time.monotonic()
    while time.monotonic() - begin < 2:
        runtime.create(*asks("0"))
        time.sleep(0.1)


def _answers(host: Host, name: str, requests: list[bytes], count: int) -> dict[str, object]:
    client = Client(host)
    frames = [_frames(next(_STREAMS), requests[one % len(requests)]) for one in range(count)]
    return _percentiles(name, [client.ask(frame) for frame in frames])


def _alone(context: DecisionContext, name: str, requests: list[bytes], count: int) -> dict[str, object]:
    """Return the processor time of a request, in this process: from its bytes to those of the answer."""
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
        found = created(event.pod, event.container, context, able)
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
        times.append(client.ask(b"".join(frames), FLIGHT))
    return times_row(name, times, goal_ms=FLIGHT_GOAL_MS)


def _claims(bin_dir: Path, host: Host, count: int) -> list[dict[str, object]]:
    """Time answers among many files: none has changed, or one was replaced right before the request."""
    aside = host.root / "aside"
    aside.mkdir()
    for claim in range(CLAIMS):
        write_claim(host.specs, claim)
    (request,) = _requests()["one GPU"]
    rows: list[dict[str, object]] = []
    with _plugin(bin_dir, host) as process:
        runtime = _registered(host)
        _settle(runtime)
        client = Client(host)
        # In both a file is written, which leaves the processor's caches alike.
        for what, folder in (("none was changed", aside), ("one was changed", host.specs)):
            times = []
            for number in range(count):
                time.sleep(PAUSE_S)
                write_claim(folder, number % CLAIMS, version=number)
                times.append(client.ask(_frames(next(_STREAMS), request)))
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
    """Return the memory of one that waits, and of one that was told of a full node."""
    rows = []
    for name, pods in (("registered, idle", 0), (f"after {PODS:,} pods, each with a container", PODS)):
        with _plugin(bin_dir, host) as process:
            runtime = _registered(host, pods=pods)
            _settle(runtime)
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
