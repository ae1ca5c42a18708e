"""metrics.py PORT [RUN]: serve over TCP the metrics of a node's programs, which listen on sockets alone.

GET /daemon, /kubelet, /nri: what the program's /metrics says. Nothing else of theirs is passed on. RUN is
where their run directories are (default: /run).
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
TIMEOUT_S = 8  # less than Prometheus waits
# Whoever may connect can stop scrapes by taking all, but neither fill this container's memory nor take the
# places at the programs' own sockets from the probes.
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
    """Return what the program at the socket PATH says: status, type, text."""
    connection = Local(path)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or PLAIN, answer.read()
    except (OSError, HTTPException) as error:
        return 503, PLAIN, f"{path}: {error}\n".encode()
    finally:
        connection.close()


class Asked(BaseHTTPRequestHandler):
    """Answers a scrape."""

    timeout = TIMEOUT_S
    run = "/run"

    def do_GET(self) -> None:
        """Pass on the metrics of the program that the path names."""
        name = SOCKETS.get(self.path.partition("?")[0])
        if name is None:
            status, kind, body = 404, PLAIN, f"ask for one of {', '.join(SOCKETS)}\n".encode()
        else:
            status, kind, body = metrics(f"{self.run}/{name}")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing of scrapes."""


class Bounded(ThreadingHTTPServer):
    """Serves CONNECTIONS at a time, and closes what comes beyond them."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, Asked)
        self._places = threading.BoundedSemaphore(CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection by a thread, if a place is free."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of who has gone away."""


def main(port: int, run: str) -> None:
    """Serve until the process is ended."""
    Asked.run = run
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    Bounded.address_family = family
    with Bounded(("::" if family == socket.AF_INET6 else "", port)) as server:
        print(f"serving at port {server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:3] or ["/run"])
