"""`cdigen extender` as a process that a scheduler asks: ``ready``, ``running``, ``run_once``."""

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
    """A running extender: its process, and how it is asked."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, token: str = "") -> None:
        self.process = process
        self.port = port
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request; returns the status and what was answered, of JSON its meaning."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        content = body if isinstance(body, bytes) or body is None else json.dumps(body)
        with closing(connection):
            connection.request(method, path, content, self.headers)
            answer = connection.getresponse()
            told = answer.read()
        return answer.status, json.loads(told) if told.startswith((b"{", b"[")) else told.decode()

    def filter(self, pod: dict[str, Any], *nodes: str) -> Any:
        return self.ask("POST", f"{PREFIX}/filter", {"Pod": pod, "NodeNames": list(nodes)})[1]

    def bind(self, name: str, node: str = "node1") -> str:
        asked = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": node}
        return str(self.ask("POST", f"{PREFIX}/bind", asked)[1]["Error"])


def _start(server: ApiServer, folder: Path, log: IO[Any], *options: str) -> subprocess.Popen[bytes]:
    config = str(server.kubeconfig(folder / "kubeconfig"))
    command = [sys.executable, "-m", "cdigen", "extender", "--kubeconfig", config, "--listen", "127.0.0.1:0"]
    return subprocess.Popen([*command, *options], stderr=log)


@contextmanager
def started(server: ApiServer, folder: Path, *options: str, token: str = "") -> Iterator[Extender]:
    folder.mkdir(exist_ok=True)
    log = folder / "log"
    with log.open("wb") as written:
        process = _start(server, folder, written, "--run-dir", str(folder / "run"), *options)
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
        assert until(lambda: extender.ask("GET", "/healthz")[0] == 200)
        yield extender


@contextmanager
def ready(server: ApiServer, folder: Path, *options: str) -> Iterator[Extender]:
    with running(server, folder, *options) as extender:
        assert until(lambda: extender.ask("GET", "/readyz")[0] == 200)
        yield extender


def run_once(server: ApiServer, folder: Path, *options: str) -> str:
    """Start an extender and end it; returns its log."""
    with (folder / "once").open("w+") as log:
        process = _start(server, folder, log, *options)
        assert until(lambda: "watch=1" in " ".join(server.asked))
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        log.seek(0)
        return log.read()
