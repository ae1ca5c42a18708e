"""Plugins of a real containerd: `cdigen nri` as a process, and foreign plugins; also specs for the plugins.

The devices in the specs are the machine's own /dev/zero and /dev/null under the names of GPUs. The numbers of
the nodes in a container show which devices the container has.
"""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.containers.containerd_host import (
    RELEASES,
    Containerd,
    Place,
    eventually,
    running_containerd,
)
from support.daemon import http_client
from support.nri.host import UUID, content
from support.waiting import HOST_PATIENCE_S

from cdigen.nri.pods import Adjustment
from cdigen.nri.wire.session import Configure, CreateContainer, Session

KIND = "nvidia.com/gpu"
# Device node in a container -> the machine's node, and its numbers as `stat` prints them.
NODES = {"/dev/nvidia0": ("/dev/zero", "1:5"), "/dev/nvidia1": ("/dev/null", "1:3")}
DEAD = "/dev/nvidia2"  # a node with NVIDIA's numbers, but without a driver
DEVICES = {
    "0": ("/dev/nvidia0",),
    "1": ("/dev/nvidia1",),
    UUID: ("/dev/nvidia0",),
    "none": (),
    "all": ("/dev/nvidia0", "/dev/nvidia1"),
}
LIBRARY = "/usr/local/nvidia/lib64/libfake.so.1"
INJECTED_ANNOTATION = "cdigen.dev/injected"
# All sources are permitted, in one namespace.
POLICY: Mapping[str, object] = {"allow": [{"namespaces": ["ml"]}]}


def numbers(*nodes: str) -> dict[str, str]:
    """Return the numbers of each of NODES, in the format of `Container.nodes`."""
    return {node: NODES[node][1] for node in nodes}


def write_specs(folder: Path, devices: Mapping[str, tuple[str, ...]] = DEVICES, **edits: object) -> None:
    """Write the spec of KIND with DEVICES (name, nodes) by a rename, as cdigen does.

    EDITS are for all devices.
    """
    library = folder.parent / "libfake.so.1"
    library.write_text("the driver\n")
    dead = folder.parent / "dead"
    if any(DEAD in nodes for nodes in devices.values()) and not dead.exists():
        os.mknod(dead, stat.S_IFCHR | 0o666, os.makedev(195, 2))
        dead.chmod(0o666)
    sources = {DEAD: str(dead), **{node: source for node, (source, _) in NODES.items()}}
    mount = {"hostPath": str(library), "containerPath": LIBRARY, "options": ["ro", "nosuid", "nodev", "bind"]}
    spec = {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": [
            {
                "name": name,
                "containerEdits": {
                    "deviceNodes": [{"path": node, "hostPath": sources[node]} for node in nodes]
                }
                if nodes
                else {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
            }
            for name, nodes in devices.items()
        ],
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"], "mounts": [mount], **edits},
    }
    made = folder / ".nvidia.com-gpu.json.new"
    made.write_text(json.dumps(spec))
    made.rename(folder / "nvidia.com-gpu.json")


@dataclass(kw_only=True)
class Plugin:
    """A running `cdigen nri`, with its status in RUN_DIR, and its log in LOG_FILE or in RUN_DIR/../log.

    A plugin that another process started has no PROCESS.
    """

    run_dir: Path
    process: subprocess.Popen[bytes] | None = None
    log_file: Path | None = None

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        file = self.log_file or self.run_dir.parent / "log"
        return [json.loads(line) for line in file.read_text().splitlines()]

    def log_lines(self, event: str) -> list[dict[str, Any]]:
        """Return the lines of its log about EVENT."""
        return [line for line in self.log if line["event"] == event]

    def status(self) -> dict[str, Any]:
        """Return its status.json."""
        status: dict[str, Any] = json.loads((self.run_dir / "status.json").read_text())
        return status

    def http_get(self, path: str) -> tuple[int, str]:
        """Return the status and the body of an HTTP response from its socket."""
        code, _, body = http_client.get(str(self.run_dir / "http.sock"), path)
        return code, body.decode()

    def metric(self, row: str) -> float:
        """Return the value of a metric by its name with labels; 0 if it has no value yet."""
        lines = self.http_get("/metrics")[1].splitlines()
        rows = dict(line.rsplit(" ", 1) for line in lines if line[:1] != "#")
        return float(rows.get(row, 0))

    def is_registered(self) -> bool:
        """Return whether its status is registered."""
        assert self.process is None or self.process.poll() is None, self.log
        try:
            return bool(self.status()["state"] == "registered")
        except FileNotFoundError:
            return False

    def registered(self) -> None:
        """Wait until it is registered."""
        eventually(lambda: self.is_registered() or None, "the plugin is registered", details=lambda: self.log)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it, and return its exit status."""
        self.send(number)
        assert self.process
        return self.process.wait(timeout=HOST_PATIENCE_S)


@contextmanager
def running_plugin(
    host: Place, *, name: str = "cdigen", index: str = "20", wait: bool = True, **policy: object
) -> Iterator[Plugin]:
    """Run `cdigen nri` with the keys POLICY until the context ends; WAIT: wait for its registration."""
    folder = host.folder / f"plugin-{index}-{name}"
    plugin = started_plugin(host, folder, ("--index", index, "--name", name), policy)
    try:
        if wait:
            plugin.registered()
        yield plugin
    finally:
        ended(plugin)


def started_plugin(
    host: Place, folder: Path, more: Sequence[str], policy: Mapping[str, object], *, log: str = "log"
) -> Plugin:
    """Start `cdigen nri` with the options MORE. Plugins may share FOLDER, each with its own file LOG."""
    config = plugin_config(host, folder, **policy)
    options: tuple[str | Path, ...] = ("--socket", host.nri, "--run-dir", folder / "run", *more)
    with (folder / log).open("ab") as file:
        # The kernel kills the plugin when the tests end or are killed.
        tied = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "cdigen", "nri")
        process = subprocess.Popen(
            [*tied, *options, "--spec-dir", host.specs, "--config", config],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    return Plugin(process=process, run_dir=folder / "run", log_file=folder / log)


def ended(plugin: Plugin) -> None:
    """End PLUGIN if it still runs."""
    if plugin.process is not None and plugin.process.poll() is None:
        plugin.send(signal.SIGCONT)
        plugin.end(signal.SIGTERM)


def plugin_config(host: Place, folder: Path, **policy: object) -> Path:
    """Make FOLDER, and write a plugin's configuration into it; return the file."""
    folder.mkdir(exist_ok=True)
    config = folder / "config.yaml"
    settings = {"daemon": {"run_dir": str(host.folder / "daemon")}, "nri": {**POLICY, **policy}}
    config.write_text(json.dumps(settings))
    return config


def write_inventory(host: Place) -> None:
    """Write the inventory of the daemon: driver 550.163.01, which has CUDA 12.4."""
    folder = host.folder / "daemon"
    folder.mkdir(exist_ok=True)
    (folder / "inventory.json").write_bytes(content())


@contextmanager
def containerd_with_specs(cache: Path, release: str, **edits: Any) -> Iterator[Containerd]:
    """Run a containerd until the context ends, with the specs of `write_specs` and an inventory."""
    with running_containerd(cache, RELEASES[release]) as host:
        write_specs(host.specs, **edits)
        write_inventory(host)
        yield host


@dataclass(kw_only=True)
class Foreign:
    """A foreign plugin: it responds with `adjustment` for each container, or not at all if `is_slow`."""

    adjustment: Adjustment
    requests: list[CreateContainer] = field(default_factory=list)
    is_slow: bool = False

    def respond(self, session: Session, event: object) -> bytes:
        """Return its response to EVENT."""
        match event:
            case Configure(call=call):
                return session.subscribe(call, 0x0008)
            case CreateContainer(call=call):
                self.requests.append(event)
                return b"" if self.is_slow else session.adjust(call, self.adjustment)
            case _:
                return b""


@contextmanager
def running_foreign(host: Place, adjustment: Adjustment, *, index: str = "30") -> Iterator[Foreign]:
    """Run a plugin called foreign in a thread until the context ends."""
    foreign = Foreign(adjustment=adjustment)
    session = Session("foreign", index)
    synchronized = threading.Event()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(host.nri))
        connection.sendall(session.start())

        def serve() -> None:
            while data := connection.recv(1 << 16):
                sent, events = session.feed(data)
                connection.sendall(sent + b"".join(foreign.respond(session, event) for event in events))
                if any(type(event).__name__ == "Synchronize" for event in events):
                    synchronized.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            assert synchronized.wait(10)
            yield foreign
        finally:
            with suppress(OSError):  # the runtime may have closed the connection
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(10)
