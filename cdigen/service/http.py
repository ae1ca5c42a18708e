"""Serve HTTP on a unix socket and optionally a loopback port: ``HttpServer``, with a ``Route`` for each path.

Every process has the routes of ``standard_routes``:

    GET /metrics   metrics for Prometheus
    GET /healthz   200 while the process works, else 503 and the reason
    GET /readyz    200 while the process serves containers, else 503 and the reason

waitress parses requests and closes idle connections. A client that sends a byte per second is never idle.
Therefore the server ends connections that are too old, and the oldest connections if there are too many. It
does this when it accepts a new connection (``_Connections``).
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from contextlib import suppress
from errno import EACCES, EAFNOSUPPORT, EPERM

from waitress import create_server  # type: ignore[import-untyped]  # waitress ships no types

from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError
from cdigen.service.http_security import HEADERS, POLICY, refusal
from cdigen.service.metrics import CONTENT_TYPE
from cdigen.store.failures import store_error
from cdigen.value import frozen
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    # Returns the response to a query string.
    Route = Callable[[str], "Response"]

SOCKET_FILE = "http.sock"
SOCKET_MODE = 0o660
LOOPBACK = "127.0.0.1"
# Seconds. A normal client gets its response in milliseconds. Prometheus opens a connection for each scrape.
MAX_AGE_S = 5.0
MAX_CONNECTIONS = 16
STOP_S = 0.8
_MAX_PATH = 107  # sun_path of unix(7) without the NUL
_PLAIN = "text/plain; charset=utf-8"
# Interval in seconds at which ``stop`` wakes the thread.
_WAKE_S = 0.05
# The errors under systemd's RestrictAddressFamilies= (systemd.exec(5)), and the errors of a kernel without
# IP.
_REFUSALS = {EAFNOSUPPORT, EPERM, EACCES}
_NO_NETWORK = (
    "the service is not permitted to use the network: copy http-port.conf.example from its documentation to "
    "/etc/systemd/system/NAME.service.d/http-port.conf; NAME is cdigen, cdigen-nri or cdigen-kubelet"
)
_LIMITS = {
    "backlog": 64,
    # Higher than MAX_CONNECTIONS, so that waitress never stops accepting. waitress counts listeners as well.
    "connection_limit": 4 * MAX_CONNECTIONS,
    "channel_timeout": int(MAX_AGE_S),
    "asyncore_use_poll": True,
    # Interval in seconds at which waitress closes idle connections. Traffic wakes waitress immediately.
    "asyncore_loop_timeout": 5,
    # A query may name ten thousand devices.
    "max_request_header_size": 65536,
    # Requests have no body. waitress rejects a body that is as large as the limit.
    "max_request_body_size": 1,
    # waitress handles all pipelined requests of one read. A small read contains only a few requests.
    "recv_bytes": 1024,
    # Bytes of unread output of one connection. Above outbuf_overflow, waitress writes temporary files. Some
    # hardened services cannot write such files. Above outbuf_high_watermark, all clients wait for the
    # connection.
    "outbuf_overflow": 64 << 20,
    "outbuf_high_watermark": 64 << 20,
    "log_socket_errors": False,
    "expose_tracebacks": False,
    "ident": "cdigen",
    "server_name": "localhost",
}


@frozen
class Response:
    """An HTTP response; ``status`` is the text of the status line."""

    body: bytes
    content_type: str = _PLAIN
    status: str = "200 OK"
    headers: tuple[tuple[str, str], ...] = ()


def standard_routes(
    *, metrics: Callable[[], bytes], alive: Callable[[], str], ready: Callable[[], str]
) -> dict[str, Route]:
    """Return the routes of metrics and health; ALIVE and READY return the problem or ""."""
    return {
        "/metrics": lambda _: Response(body=metrics(), content_type=CONTENT_TYPE),
        "/healthz": lambda _: _health(alive()),
        "/readyz": lambda _: _health(ready()),
    }


class HttpServer:
    """Serves ROUTES on the unix socket PATH, and on the port PORT of 127.0.0.1 if PORT is not 0.

    PORT_ROUTES replace routes on the port, which every user of the host can reach.
    A route gets the query string and runs in one of at most THREADS threads. The server starts another thread
    when all present threads are in use. If routes block all threads, every request waits. A route that blocks
    must therefore return within MAX_AGE_S, and fewer than THREADS routes may block at the same time. The
    server is a ``Source`` with a single event, the end of its thread. The supervisor restarts the server if
    its socket is removed or its port is in use.
    """

    name = "http"

    def __init__(  # noqa: PLR0913 - the arguments have nothing in common
        self,
        routes: Mapping[str, Route],
        path: str,
        *,
        port: int = 0,
        port_routes: Mapping[str, Route] | None = None,
        max_age_s: float = MAX_AGE_S,
        threads: int = 1,
    ) -> None:
        self._routes = routes
        self._path = path
        self._port = port
        self._port_routes = {**routes, **(port_routes or {})}
        self._max_age_s = max_age_s
        self._threads = threads
        # Held while requests are counted, and while threads are started or stopped.
        self._lock = threading.Lock()
        self._busy = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        # The objects that waitress polls, by descriptor: its servers and their connections.
        self._polled: dict[int, Any] = {}
        self._servers: list[Any] = []
        self._bound_file: tuple[int, int] | None = None
        self._refusal = ""

    def start(self, put: Callable[[Trigger], None] | None = None) -> None:
        """Bind the sockets and serve them in a thread.

        A port that cannot be bound is a ``problem``, not an error. Raises StoreError if the unix socket
        cannot be bound.
        """
        # Any user can flood the port. The limits are separate, so a flood evicts no client of the socket.
        on_socket, on_port = _Connections(self._max_age_s), _Connections(self._max_age_s)
        # No browser uses the unix socket, and a proxy may pass any host name, so host names are not checked.
        bound = [(_bind_unix(self._path, on_socket), self._answer_socket)]
        self._bound_file = _identity(self._path)
        self._refusal = ""
        if self._port:
            try:
                bound.append((_bind_loopback(self._port, on_port), self._answer_port))
            except StoreError as error:
                self._refusal = f"{error.message} ({error.hint})"
        # New objects, because a thread that hangs may still use the old objects.
        self._stopping, self._polled = threading.Event(), {}
        # A server for each socket, because a waitress server does not serve two address families.
        self._servers = [
            create_server(answer, map=self._polled, sockets=[each], threads=1, **_LIMITS)
            for each, answer in bound
        ]
        self._thread = threading.Thread(
            target=self._serve,
            args=(self._servers, self._polled, self._stopping, put),
            name=self.name,
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """End within a second, independent of the clients, and remove the unix socket."""
        thread, self._thread = self._thread, None
        if thread is None:
            self._unlink()  # ``start`` may have been interrupted
            return
        self._stopping.set()
        until_s = time.monotonic() + STOP_S
        ended: list[Any] = []
        # waitress serves while its map has entries. A client may connect between two iterations of this loop.
        while thread.is_alive() and time.monotonic() < until_s:
            ended += self._polled.values()
            self._polled.clear()
            with suppress(OSError):  # the thread has ended and closed the trigger
                self._servers[0].pull_trigger()
            thread.join(_WAKE_S)
        for each in ended:
            with suppress(OSError):
                each.close()
        with self._lock:
            servers, self._servers = self._servers, []
        for server in servers:
            server.task_dispatcher.shutdown(timeout=0.1)
        self._unlink()

    def problem(self) -> str:
        """Return the reason why clients are not served, or ""."""
        if self._thread is None:
            return "not started"
        if not self._thread.is_alive():
            return "the thread that serves HTTP has ended"
        if _identity(self._path) != self._bound_file:
            return f"{shown(self._path)} was removed"
        return self._refusal

    def _serve(
        self,
        servers: list[Any],
        polled: dict[int, Any],
        stopping: threading.Event,
        put: Callable[[Trigger], None] | None,
    ) -> None:
        try:
            # All servers and connections are in one map. Any of the servers can serve the map.
            servers[0].run()
        finally:
            for each in list(polled.values()):
                with suppress(OSError):
                    each.close()
            if put is not None and not stopping.is_set():
                put(Trigger(source=self.name, reason="stopped unexpectedly"))

    def _unlink(self) -> None:
        if self._bound_file is not None and _identity(self._path) == self._bound_file:
            with suppress(OSError):
                os.unlink(self._path)

    def _answer_socket(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request on the unix socket."""
        return self._answer(self._routes, environ, start_response)

    def _answer_port(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request on the port, which browsers can reach."""
        status, text = refusal(environ)
        if not status:
            return self._answer(self._port_routes, environ, start_response)
        return _respond(Response(body=text.encode(), status=status), environ, start_response)

    def _answer(
        self, routes: Mapping[str, Route], environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer a request by ROUTES, and keep a thread free for the next request."""
        with self._lock:
            self._busy += 1
            wanted = min(self._busy + 1, self._threads)
            for dispatcher in (server.task_dispatcher for server in self._servers):
                if len(dispatcher.threads) < wanted:
                    with suppress(RuntimeError):  # no thread can be started; the present threads continue
                        dispatcher.set_thread_count(wanted)
        try:
            return _answer(routes, environ, start_response)
        finally:
            with self._lock:
                self._busy -= 1


def _answer(
    routes: Mapping[str, Route], environ: dict[str, Any], start_response: Callable[..., Any]
) -> Iterable[bytes]:
    """Answer a request by ROUTES (WSGI, PEP 3333)."""
    method, route = environ["REQUEST_METHOD"], routes.get(environ["PATH_INFO"])
    if route is None:
        paths = f"not found; the paths are {', '.join(routes)}\n".encode()
        response = Response(body=paths, status="404 Not Found")
    elif method not in {"GET", "HEAD"}:
        response = Response(
            body=b"only GET and HEAD\n",
            status="405 Method Not Allowed",
            headers=(("Allow", "GET, HEAD"),),
        )
    else:
        response = route(environ["QUERY_STRING"])
    return _respond(response, environ, start_response)


def _respond(
    response: Response, environ: dict[str, Any], start_response: Callable[..., Any]
) -> Iterable[bytes]:
    own = dict(response.headers)
    headers = [
        ("Content-Type", response.content_type),
        ("Content-Length", str(len(response.body))),
        ("Cache-Control", "no-store"),
        *((name, value) for name, value in (*HEADERS, POLICY) if name not in own),
        *response.headers,
    ]
    start_response(response.status, headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]


def _health(problem: str) -> Response:
    text = f"{shown(problem) if problem else 'ok'}\n".encode("utf-8", "replace")
    return Response(body=text, status="503 Service Unavailable" if problem else "200 OK")


class _Connections:
    """The accepted connections, the oldest first; ``admit`` ends connections that are too old or too many.

    A normal client disconnects before its connection is among the oldest. Slow clients evict each other.
    """

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._accepted: list[tuple[float, socket.socket]] = []

    def admit(self, connection: socket.socket) -> None:
        """Record the accepted CONNECTION, and end connections that are too old or too many."""
        now = time.monotonic()
        still_open = [(since_s, each) for since_s, each in self._accepted if each.fileno() >= 0]
        excess = len(still_open) + 1 - MAX_CONNECTIONS
        kept = []
        for position, (since_s, each) in enumerate(still_open):
            if position < excess or now - since_s > self._max_age_s:
                with suppress(OSError):  # the client has disconnected already
                    each.shutdown(socket.SHUT_RDWR)
            else:
                kept.append((since_s, each))
        self._accepted = [*kept, (now, connection)]


class _Listener(socket.socket):
    """A listening socket that passes each accepted connection to CONNECTIONS."""

    def __init__(self, family: socket.AddressFamily, connections: _Connections) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self._connections.admit(connection)
        return connection, address


def _identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode of the file PATH, None if there is no file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _bind_unix(path: str, connections: _Connections) -> _Listener:
    if len(os.fsencode(path)) > _MAX_PATH:
        raise StoreError(
            f"{shown(path)}: the path of a socket can have {_MAX_PATH} bytes at most",
            hint="choose a shorter run_dir",
        )
    made = _Listener(socket.AF_UNIX, connections)
    try:
        _remove_stale(path)
        # ``bind`` makes the file with this mode, minus the bits of the umask (unix_bind in the kernel).
        os.fchmod(made.fileno(), SOCKET_MODE)
        made.bind(path)
        os.chmod(path, SOCKET_MODE)
    except OSError as error:
        made.close()
        raise store_error("cannot make the socket", path, error) from error
    except StoreError:
        made.close()
        raise
    return made


def _remove_stale(path: str) -> None:
    """Remove the socket PATH of an ended daemon; raise StoreError if PATH is not cdigen's or is in use."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise StoreError(f"{shown(path)} exists and is not a socket of cdigen", hint="move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003 - the socket module's own signature
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass  # another process listens and is busy
    raise StoreError(f"{shown(path)} is in use by another process", hint="end the other daemon")


def _bind_loopback(port: int, connections: _Connections) -> _Listener:
    made = None
    try:
        made = _Listener(socket.AF_INET, connections)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((LOOPBACK, port))
    except OSError as error:
        if made is not None:
            made.close()
        hint = _NO_NETWORK if error.errno in _REFUSALS else "set another http_port, or end the other process"
        raise StoreError(f"cannot listen on {LOOPBACK} port {port}: {reason(error)}", hint=hint) from error
    return made
