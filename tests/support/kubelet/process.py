"""`cdigen kubelet` as a process on its own host, with a double of a kubelet: `side_of`."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.abilities import WARNINGS
from support.json_output import validator
from support.kubelet.double import Kubelet
from support.kubelet.host_resources import put
from support.kubelet.resources import GPU
from support.values import unhealthy_gpus
from support.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cdigen.model.inventory import Inventory


class Side:
    """A host below `root` with eight GPUs and a double of a kubelet; `daemon()` imitates its daemon."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kubelet_dir = root / "k"
        self.run_dir = root / "run/cdigen-kubelet"
        self.config = root / "etc/cdigen/config.yaml"
        for folder in ("etc/cdigen", "run/cdi", "run/cdigen", "sys/module/nvidia", "var", "k"):
            (root / folder).mkdir(parents=True)
        (root / "var/run").symlink_to("/run")
        self.kubelet = Kubelet(self.kubelet_dir)
        self.inventories = unhealthy_gpus.example()
        self.ids = sorted(str(gpu.uuid) for gpu in self.inventories["nvidia"].accelerators)
        self.put(self.inventories)

    def put(self, inventories: dict[str, Inventory], *, names: set[str] | None = None) -> None:
        """Write INVENTORIES as the daemon does, and specs of the devices NAMES (None: all devices)."""
        put(self.root, inventories, names=names)

    def configure(self, text: str, file: Path | None = None) -> None:
        """Write TEXT to the configuration by a rename, as programs do."""
        path = file or self.config
        new = path.with_name("new")
        new.write_text(text)
        new.rename(path)

    def driver_goes(self) -> None:
        """Write an empty inventory and remove the specs, as the daemon does after rmmod."""
        unhealthy_gpus.save(self.root, {})
        for spec in (self.root / "run/cdi").glob("*.json"):
            spec.unlink()

    def status(self) -> dict[str, Any]:
        """Return status.json, validated by its schema; an empty document if there is none."""
        try:
            found: dict[str, Any] = json.loads((self.run_dir / "status.json").read_bytes())
        except FileNotFoundError:
            return {}
        validator("kubelet-status").validate(found)
        return found

    def resource(self, name: str = GPU) -> dict[str, Any]:
        """Return the resource's row of the status; raise LookupError if there is none yet."""
        rows = {row["resource"]: row for row in self.status()["resources"]}
        found: dict[str, Any] = rows[name]
        return found

    def lists(self, count: int, resource: str = GPU) -> bool:
        """Return whether the kubelet has COUNT devices of RESOURCE."""
        return len(self.kubelet.list_of(resource)) == count

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the text of PATH on the process's socket."""
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.run_dir / "http.sock"))
            connection = HTTPConnection("localhost")
            connection.sock = client
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def serves_http(self) -> bool:
        """Return whether the process responds to HTTP requests already."""
        try:
            return self.get("/healthz")[0] == 200
        except OSError:
            return False


class Process:
    """A `cdigen kubelet` that runs; `lines` are its log lines, `text` is all of stderr."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def text(self) -> str:
        return self._log.read_text()

    def lines(self, event: str = "") -> list[dict[str, Any]]:
        """Return the lines of the log, or those of EVENT; each line must be JSON."""
        whole = [json.loads(line) for line in self.text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in whole if event in {"", line["event"]}]

    def hup(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """End the process, and return its exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE_S)


@contextmanager
def cdigen_kubelet(
    side: Side,
    *arguments: str | Path,
    environment: Mapping[str, str] | None = None,
    verbose: bool = False,
    log: str = "log",
) -> Iterator[Process]:
    """Run the command on SIDE's host until the body ends; its log is the file LOG of the host."""
    command = [sys.executable, "-m", "cdigen", "kubelet", "--root", str(side.root)]
    if "--kubelet-dir" not in arguments:
        command += ["--kubelet-dir", str(side.kubelet_dir)]
    command += [*map(str, arguments), *(["-v"] if verbose else [])]
    file = side.root / log
    with (
        file.open("wb") as stderr,
        subprocess.Popen(
            command, stderr=stderr, env={**os.environ, "PYTHONWARNINGS": WARNINGS, **(environment or {})}
        ) as process,
    ):
        try:
            yield Process(process, file)
        finally:
            process.kill()


@contextmanager
def serving(side: Side, *arguments: str | Path, count: int = 8, **options: Any) -> Iterator[Process]:
    """Run the command; the body begins when the kubelet has COUNT devices and HTTP is served."""
    with cdigen_kubelet(side, *arguments, **options) as process:
        assert until(lambda: side.lists(count))
        assert until(side.serves_http)
        yield process


@contextmanager
def daemon(side: Side) -> Iterator[None]:
    """Hold the daemon's lock and write its status, as a running daemon does."""
    status = side.root / "run/cdigen/status.json"
    with (side.root / "run/cdigen/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status.write_text("{}")
        yield
        status.unlink()


@contextmanager
def side_of() -> Iterator[Side]:
    """Make a host whose kubelet has not started yet."""
    # The name is short: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="k") as root:
        made = Side(Path(root))
        try:
            yield made
        finally:
            made.kubelet.stop()
