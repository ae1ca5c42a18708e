"""`cdigen extender` as a process, and requests of a scheduler: ``ready``, ``running``, ``run_once``."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from support.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

    from support.kubernetes.api_server import ApiServer

PREFIX = "/gpushare-scheduler"


class Extender:
    """A running extender: its process, and requests to it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, token: str = "") -> None:
        self.process = process
        self.port = port
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request; return the status and the body, parsed if it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        content = body if isinstance(body, bytes) or body is None else json.dumps(body)
        with closing(connection):
            connection.request(method, path, content, self.headers)
            answer = connection.getresponse()
            text = answer.read()
        return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text.decode()

    def filter(self, pod: dict[str, Any], *nodes: str) -> Any:
        return self.request("POST", f"{PREFIX}/filter", {"Pod": pod, "NodeNames": list(nodes)})[1]

    def bind(self, name: str, node: str = "node1") -> str:
        args = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": node}
        return str(self.request("POST", f"{PREFIX}/bind", args)[1]["Error"])


def _start(server: ApiServer, folder: Path, log: IO[Any], *options: str) -> subprocess.Popen[bytes]:
    config = str(server.kubeconfig(folder / "kubeconfig"))
    command = [sys.executable, "-m", "cdigen", "extender", "--kubeconfig", config, "--listen", "127.0.0.1:0"]
    return subprocess.Popen([*command, *options], stderr=log)


@contextmanager
def started(server: ApiServer, folder: Path, *options: str, token: str = "") -> Iterator[Extender]:
    folder.mkdir(exist_ok=True)
    log = folder / "log"
    with log.open("wb") as output:
        process = _start(server, folder, output, "--run-dir", str(folder / "run"), *options)
    status = folder / "run/status.json"
    try:
        assert until(lambda: status.exists() and json.loads(status.read_text())["port"]), log.read_text()
        yield Extender(process, json.loads(status.read_text())["port"], token)
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, log.read_text()


@contextmanager
def running(server: ApiServer, folder: Path, *options: str, token: str = "") -> Iterator[Extender]:
    with started(server, folder, *options, token=token) as extender:
        assert until(lambda: extender.request("GET", "/healthz")[0] == 200)
        yield extender


@contextmanager
def ready(server: ApiServer, folder: Path, *options: str) -> Iterator[Extender]:
    with running(server, folder, *options) as extender:
        assert until(lambda: extender.request("GET", "/readyz")[0] == 200)
        yield extender


def run_once(server: ApiServer, folder: Path, *options: str) -> str:
    """Start an extender and stop it; return its log."""
    with (folder / "once").open("w+") as log:
        process = _start(server, folder, log, *options)
        assert until(lambda: "watch=1" in " ".join(server.requests))
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        log.seek(0)
        return log.read()
