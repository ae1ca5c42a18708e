"""Serve HTTP on a unix socket and, if asked, on a loopback port: ``Server``, with a ``Route`` for each path.

``standard_routes`` are those of every process:

    GET /metrics   what Prometheus scrapes
    GET /healthz 200 while the process works, else 503 and why
    GET /readyz    200 when containers can count on it, else 503 and why

waitress parses requests and closes idle connections. A client that sends a byte a second is never idle, so
each new connection ends those that are too old or too many (``_Listener``).
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

from cdigen.frontend.browsers import HEADERS, POLICY, refusal
from cdigen.frontend.metrics import CONTENT_TYPE
from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError
from cdigen.store.failures import store_error
from cdigen.value import frozen
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    # Answers a query string.
    Route = Callable[[str], "Response"]

SOCKET_FILE = "http.sock"
SOCKET_MODE = 0o660
LOOPBACK = "127.0.0.1"
# An honest client has its answer in milliseconds. Prometheus connects anew for its next scrape.
MAX_AGE_S = 5.0
MAX_CONNECTIONS = 16
STOP_S = 0.8
_MAX_PATH = 107  # sun_path of unix(7), less the NUL
_PLAIN = "text/plain; charset=utf-8"
# How long ``stop`` waits before it wakes the thread again.
_WAKE_S = 0.05
# The error under systemd's RestrictAddressFamilies= (systemd.exec(5)), and of a kernel without IP.
_REFUSALS = {EAFNOSUPPORT, EPERM, EACCES}
_NO_NETWORK = (
    "the service may not use the network: copy http-port.conf.example, which is in its documentation, to "
    "/etc/systemd/system/NAME.service.d/http-port.conf, NAME being cdigen, cdigen-nri or cdigen-kubelet"
)
_LIMITS = {
    "backlog": 64,
    # More than we keep open (the listeners count as well), so that accepting never stops.
    "connection_limit": 4 * MAX_CONNECTIONS,
    "channel_timeout": int(MAX_AGE_S),
    "asyncore_use_poll": True,
    # Traffic wakes it at once; this is how often it closes idle connections.
    "asyncore_loop_timeout": 5,
    # A query may name ten thousand devices.
    "max_request_header_size": 65536,
    # Our requests have no body. waitress refuses bodies as large as the limit.
    "max_request_body_size": 1,
    # All pipelined requests of one read are answered: with so few bytes, they are not many.
    "recv_bytes": 1024,
    # Unread output of one connection: above the first limit, waitress would make temporary files, for which a
    # hardened service may have no place; above the second, all would wait for that client.
    "outbuf_overflow": 64 << 20,
    "outbuf_high_watermark": 64 << 20,
    "log_socket_errors": False,
    "expose_tracebacks": False,
    "ident": "cdigen",
    "server_name": "localhost",
}


@frozen
class Response:
    """An answer: ``status`` as in the status line."""

    body: bytes
    content_type: str = _PLAIN
    status: str = "200 OK"
    headers: tuple[tuple[str, str], ...] = ()


def standard_routes(
    *, metrics: Callable[[], bytes], alive: Callable[[], str], ready: Callable[[], str]
) -> dict[str, Route]:
    """Return the routes of metrics and health; ALIVE and READY return "" or why not."""
    return {
        "/metrics": lambda _: Response(body=metrics(), content_type=CONTENT_TYPE),
        "/healthz": lambda _: _health(alive()),
        "/readyz": lambda _: _health(ready()),
    }


class Server:
    """Serves ROUTES on the unix socket PATH and, where PORT is not 0, on that port of 127.0.0.1.

    PORT_ROUTES are those of ROUTES that answer otherwise at the port, which every user of the host may ask.

    A route gets the query string and is called in one of at most THREADS; the next thread is started when the
    last one is in use. All requests wait while routes block in all of them, so one that blocks has to do so
    for less than MAX_AGE_S, in less than THREADS at once. The server is a ``Source`` whose only event is the
    end of its thread: the supervisor restarts it when its socket was removed, or while a port is in use.
    """

    name = "http"

    def __init__(  # noqa: PLR0913 - each is its own thing
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
        # Held while requests are counted and threads are started or stopped.
        self._lock = threading.Lock()
        self._busy = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        # What waitress polls: its servers and their connections, by descriptor.
        self._polled: dict[int, Any] = {}
        self._servers: list[Any] = []
        self._made: tuple[int, int] | None = None
        self._refusal = ""

    def start(self, put: Callable[[Trigger], None] | None = None) -> None:
        """Bind the sockets and serve them in a thread.

        A port that cannot be bound is a ``problem``, not an error. StoreError: the unix socket cannot be.
        """
        # Of each: who crowds the port, which every user of the host may do, evicts nobody from the socket.
        on_socket, on_port = _Connections(self._max_age_s), _Connections(self._max_age_s)
        # On the unix socket are no browsers, and a proxy there may pass any name on.
        bound = [(_bind_unix(self._path, on_socket), self._answer_socket)]
        self._made = _identity(self._path)
        self._refusal = ""
        if self._port:
            try:
                bound.append((_bind_loopback(self._port, on_port), self._answer_port))
            except StoreError as error:
                self._refusal = f"{error.message} ({error.hint})"
        # New ones, not those of a thread that may still hang.
        self._stopping, self._polled = threading.Event(), {}
        # One for each: waitress refuses to serve two families with one.
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
        """End within a second, whatever the clients do, and remove the unix socket."""
        thread, self._thread = self._thread, None
        if thread is None:
            self._unlink()  # ``start`` may have been interrupted
            return
        self._stopping.set()
        until_s = time.monotonic() + STOP_S
        ended: list[Any] = []
        # It serves as long as there is something to poll; a client may be connecting just now.
        while thread.is_alive() and time.monotonic() < until_s:
            ended += self._polled.values()
            self._polled.clear()
            with suppress(OSError):  # the thread has ended, and closed what wakes it
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
        """Return why clients are not served, "" if all is well."""
        if self._thread is None:
            return "not started"
        if not self._thread.is_alive():
            return "the thread that serves HTTP has ended"
        if _identity(self._path) != self._made:
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
            # All servers and connections are in one map, which each of them serves.
            servers[0].run()
        finally:
            for each in list(polled.values()):
                with suppress(OSError):
                    each.close()
            if put is not None and not stopping.is_set():
                put(Trigger(source=self.name, reason="stopped by itself"))

    def _unlink(self) -> None:
        if self._made is not None and _identity(self._path) == self._made:
            with suppress(OSError):
                os.unlink(self._path)

    def _answer_socket(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request to the unix socket."""
        return self._answer(self._routes, environ, start_response)

    def _answer_port(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request to the port, where browsers are."""
        status, text = refusal(environ)
        if not status:
            return self._answer(self._port_routes, environ, start_response)
        return _respond(Response(body=text.encode(), status=status), environ, start_response)

    def _answer(
        self, routes: Mapping[str, Route], environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer a request by ROUTES while a thread is left for the next request."""
        with self._lock:
            self._busy += 1
            wanted = min(self._busy + 1, self._threads)
            for dispatcher in (server.task_dispatcher for server in self._servers):
                if len(dispatcher.threads) < wanted:
                    with suppress(RuntimeError):  # no thread can be started: the present ones have to do
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
        there = f"here are {', '.join(routes)}\n".encode()
        answer = Response(body=there, status="404 Not Found")
    elif method not in {"GET", "HEAD"}:
        answer = Response(
            body=b"only GET and HEAD\n",
            status="405 Method Not Allowed",
            headers=(("Allow", "GET, HEAD"),),
        )
    else:
        answer = route(environ["QUERY_STRING"])
    return _respond(answer, environ, start_response)


def _respond(
    answer: Response, environ: dict[str, Any], start_response: Callable[..., Any]
) -> Iterable[bytes]:
    own = dict(answer.headers)
    headers = [
        ("Content-Type", answer.content_type),
        ("Content-Length", str(len(answer.body))),
        ("Cache-Control", "no-store"),
        *((name, value) for name, value in (*HEADERS, POLICY) if name not in own),
        *answer.headers,
    ]
    start_response(answer.status, headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body]


def _health(problem: str) -> Response:
    text = f"{shown(problem) if problem else 'ok'}\n".encode("utf-8", "replace")
    return Response(body=text, status="503 Service Unavailable" if problem else "200 OK")


class _Connections:
    """The connections that were accepted, oldest first; ``admit`` ends those too old or too many.

    An honest client is done long before it is among the oldest: a crowd of slow clients evicts only its own.
    """

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._born: list[tuple[float, socket.socket]] = []

    def admit(self, connection: socket.socket) -> None:
        """Note that CONNECTION was accepted, and end the surplus ones."""
        now = time.monotonic()
        living = [(born, each) for born, each in self._born if each.fileno() >= 0]
        excess = len(living) + 1 - MAX_CONNECTIONS
        kept = []
        for position, (born, each) in enumerate(living):
            if position < excess or now - born > self._max_age_s:
                with suppress(OSError):  # the client has left already
                    each.shutdown(socket.SHUT_RDWR)
            else:
                kept.append((born, each))
        self._born = [*kept, (now, connection)]


class _Listener(socket.socket):
    """A listening socket that tells CONNECTIONS of each connection that it accepts."""

    def __init__(self, family: socket.AddressFamily, connections: _Connections) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self._connections.admit(connection)
        return connection, address


def _identity(path: str) -> tuple[int, int] | None:
    """Return what identifies the file PATH; None: it does not exist."""
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
        # The file gets this mode less the umask (unix_bind in the kernel), so it is never more open.
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
    """Remove the socket that a dead daemon left at PATH; StoreError for anything else that is there."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise StoreError(f"{shown(path)} exists and is not our socket", hint="move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003 - the socket module's own signature
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass  # somebody listens, and is busy
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
        hint = _NO_NETWORK if error.errno in _REFUSALS else "choose another http_port, or end its user"
        raise StoreError(f"cannot listen on {LOOPBACK} port {port}: {reason(error)}", hint=hint) from error
    return made
