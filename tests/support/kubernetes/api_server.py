"""A fake kube-apiserver over HTTP: `ApiServer` has a `Cluster`, pages of lists, watches, and faults.

``faults`` is a function of the method and the path of a request. It returns the status of a fault (200: an
empty response) or None; it may also sleep.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

from cdigen.kubeapi.calls import Call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.kubernetes.cluster_model import Cluster

KINDS = {"pods": "Pod", "nodes": "Node", "configmaps": "ConfigMap"}


class ApiServer(ThreadingHTTPServer):
    """Serves CLUSTER on a port of 127.0.0.1 to clients with TOKEN."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, cluster: Cluster, token: str = "secret") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster, self.token = cluster, token
        self.changed = threading.Condition()
        self.faults: Callable[[str, str], int | None] = lambda _method, _path: None
        self.requests: list[str] = []
        # The time spent on responses, to subtract it from measurements.
        self.spent_s = 0.0
        # Version and objects of the newest list, by path and selectors. Its later pages are read from here.
        self.lists: dict[tuple[str, str, str], tuple[str, list[Any]]] = {}
        # Watches that start before this event get the status 410.
        self.oldest = 0
        # A change of this number ends all watches.
        self.generation = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_watches()
        self.shutdown()
        self.server_close()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server."""
        port = self.server_address[1]
        path.write_text(
            json.dumps(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                    "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                    "users": [{"name": "u", "user": {"token": self.token}}],
                }
            )
        )
        return path

    def change(self, action: Callable[[Cluster], object]) -> None:
        """Change the cluster by ACTION, and notify the watches."""
        with self.changed:
            action(self.cluster)
            self.changed.notify_all()

    def end_watches(self, *, forget: bool = False) -> None:
        """End all watches; if FORGET, a later watch from an earlier version gets the status 410."""
        with self.changed:
            self.generation += 1
            if forget:
                self.oldest = len(self.cluster.events)
            self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # headers and body in one packet
    disable_nagle_algorithm = True
    server: ApiServer

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class' name
        pass

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(f"{self.command} {self.path}")
        begun_s = time.perf_counter()
        status = self.server.faults(self.command, self.path)
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            status = 401
        if status is not None:
            body = {"message": f"a fault, {status}", "code": status}
            self._send(status, None if status == 200 else body)
        elif query.get("watch"):
            self._watch(url.path, int(query["resourceVersion"]))
        elif self.command == "GET" and (kind := KINDS.get(url.path.rsplit("/", 1)[-1])):
            with self.server.changed:
                self._send(200, self._page(url.path, kind, query))
        else:
            call = Call(method=self.command, path=url.path, body=json.loads(content) if content else None)
            with self.server.changed:
                reply = self.server.cluster.answer(call)
                self.server.changed.notify_all()
            self._send(reply.status, reply.body)
        self.server.spent_s += time.perf_counter() - begun_s

    def _page(self, path: str, kind: str, query: dict[str, str]) -> dict[str, Any]:
        key = (path, query.get("fieldSelector", ""), query.get("labelSelector", ""))
        if not query.get("continue"):
            found = [each for at, each in self.server.cluster.objects.items() if _is_in(at, each, path, kind)]
            found = [each for each in found if _is_shown(each, query)]
            self.server.lists[key] = (str(self.server.cluster.version), found)
        version, found = self.server.lists[key]
        start, limit = int(query.get("continue") or 0), int(query.get("limit") or 1 << 30)
        more = str(start + limit) if start + limit < len(found) else ""
        return {
            "items": found[start : start + limit],
            "metadata": {"resourceVersion": version, "continue": more},
        }

    def _watch(self, path: str, version: int) -> None:
        server, kind = self.server, KINDS[path.rsplit("/", 1)[-1]]
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        events, generation = server.cluster.events, server.generation
        position = sum(int(found["metadata"]["resourceVersion"]) <= version for _, found in events)
        if position < server.oldest:
            self._chunk({"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}})
            self._chunk(None)
            return
        while True:
            with server.changed:
                while position == len(events) and generation == server.generation:
                    server.changed.wait(1.0)
                if generation != server.generation:
                    break
                new, position = events[position:], len(events)
            for event, found in new:
                if found["kind"] == kind and path.rsplit("/", 1)[0] in _folder(found):
                    self._chunk({"type": event, "object": found})
        self._chunk(None)

    def _chunk(self, found: object) -> None:
        data = b"" if found is None else json.dumps(found).encode() + b"\n"
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send(self, status: int, found: object) -> None:
        data = b"" if found is None else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _folder(found: dict[str, Any]) -> str:
    namespace = found["metadata"].get("namespace")
    return f"/api/v1/namespaces/{namespace}/api/v1" if namespace else "/api/v1"


def _is_in(at: str, found: dict[str, Any], path: str, kind: str) -> bool:
    return found["kind"] == kind and (at.startswith(path) or path == f"/api/v1/{kind.lower()}s")


def _is_shown(found: dict[str, Any], query: dict[str, str]) -> bool:
    hidden = query.get("fieldSelector", "").replace("status.phase!=", "").split(",")
    return (found.get("status") or {}).get("phase") not in hidden
