"""metrics.py PORT [RUN]: serve the metrics of a node's programs, which listen on Unix sockets, over TCP.

GET /daemon, /kubelet and /nri return the program's /metrics. No other path of the programs is reachable. RUN
is the parent of their run directories (default: /run).
"""

from __future__ import annotations

import socket
import sys
import threading
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SOCKETS = {
    "/daemon": "cdigen/http.sock",
    "/kubelet": "cdigen-kubelet/http.sock",
    "/nri": "cdigen-nri/http.sock",
}
TIMEOUT_S = 8  # shorter than the timeout of Prometheus
# A client that opens all connections can stop scrapes. But it cannot fill this container's memory, and it
# cannot use all connections of the programs' sockets, which the probes need.
CONNECTIONS = 8
PLAIN = "text/plain; charset=utf-8"


class Local(HTTPConnection):
    """A connection to the socket at PATH."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


def metrics(path: str) -> tuple[int, str, bytes]:
    """Return the response of the program at the socket PATH: status, type, text."""
    connection = Local(path)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or PLAIN, answer.read()
    except (OSError, HTTPException) as error:
        return 503, PLAIN, f"{path}: {error}\n".encode()
    finally:
        connection.close()


class ScrapeHandler(BaseHTTPRequestHandler):
    """Responds to a scrape."""

    timeout = TIMEOUT_S
    run = "/run"

    def do_GET(self) -> None:
        """Return the metrics of the program in the path."""
        name = SOCKETS.get(self.path.partition("?")[0])
        if name is None:
            status, kind, body = 404, PLAIN, f"valid paths: {', '.join(SOCKETS)}\n".encode()
        else:
            status, kind, body = metrics(f"{self.run}/{name}")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Log no scrapes."""


class LimitedServer(ThreadingHTTPServer):
    """Serves at most CONNECTIONS at a time, and closes further ones."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, ScrapeHandler)
        self._free = threading.BoundedSemaphore(CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, if the limit permits."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and release it."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log no disconnected clients."""


def main(port: int, run: str) -> None:
    """Serve until the process is terminated."""
    ScrapeHandler.run = run
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    LimitedServer.address_family = family
    with LimitedServer(("::" if family == socket.AF_INET6 else "", port)) as server:
        print(f"serving on port {server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:3] or ["/run"])
