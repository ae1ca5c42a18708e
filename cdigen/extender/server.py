"""Serve HTTP or HTTPS: ``Server`` gives each request to one function, and keeps clients in bounds.

The standard library's server, since it can do TLS (docs/decisions/0018-http-server-with-tls.md says why).
Slow clients lock nobody out: a request has to be there within seconds, and with all places taken, the
connection that has waited for its client for the longest gives up its own.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import socket
import ssl
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

from cdigen.frontend.http import Response
from cdigen.host.root import reason
from cdigen.kubeapi.tls import Contexts, no_password
from cdigen.model.errors import StoreError
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.watch.triggers import Trigger

    # Method, path and body.
    Answer = Callable[[str, str, bytes], Response]

# A filter by names of 5,000 nodes has 300 kB; by whole nodes, 1,000 have more than this.
MAX_BODY = 8 << 20
MAX_CONNECTIONS = 64
# Bodies above the first size are read and answered few at a time: a pod's memory is limited.
LARGE_BODY, MAX_LARGE = 1 << 20, 4
# How long a client may take for a handshake, a request, or to read the answer.
REQUEST_S = 10.0
# How long it may keep a connection for later: Go's clients, as kube-scheduler, close theirs after 90 s
# (net/http, DefaultTransport), so that it is never we who close one while a request is under way.
IDLE_S = 120.0
# How long requests that are being answered have when we are told to end.
DRAIN_S = 15.0
# How long a pod goes on accepting when it is told to end: until then, others still send its way
# (kubernetes.io, "Pod Lifecycle", on the removal of endpoints).
LINGER_S = 3.0
# Paths that may be read without authorization: they have nothing of the cluster.
OPEN = frozenset({"/healthz", "/readyz", "/version"})
_TOO_LARGE = "the request is larger than 8 MiB: set 'nodeCacheCapable: true' for this extender\n"


@frozen
class Access:
    """Who may ask, and how: the files of TLS, "" for none; ``token`` returns what clients have to know.

    ``client_ca`` verifies certificates of clients, "": they need none. A client's certificate has one of
    ``client_names``, unless that is empty. Without a certificate, a client may read ``OPEN`` alone: the
    kubelet's probes have none.
    """

    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    client_names: frozenset[str] = frozenset()
    token: Callable[[], str] | None = None


class Server:
    """Serves ANSWER at HOST and PORT by ACCESS; a ``Source`` of the chassis. SLEEP waits for ``linger_s``."""

    name = "extender-http"

    def __init__(  # noqa: PLR0913 - each is what a server differs in
        self,
        host: str,
        port: int,
        answer: Answer,
        access: Access,
        *,
        request_s: float = REQUEST_S,
        linger_s: float = 0.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.port = port
        self._linger_s = linger_s
        self._sleep = sleep
        self._request_s = request_s
        self._host = host
        self._answer = answer
        self._access = access
        self._server: _Listener | None = None
        self._thread: threading.Thread | None = None

    def start(self, _put: Callable[[Trigger], None] | None = None) -> None:
        """Bind and serve in a thread. StoreError: address or TLS files cannot be used."""
        try:
            contexts = _contexts(self._access) if self._access.certificate else None
            server = _Listener((self._host, self.port), self._answer, self._access, contexts)
            server.request_s = self._request_s
        except (OSError, ValueError) as error:
            where = f"{self._host}:{self.port}"
            told = reason(error) if isinstance(error, OSError) else str(error)
            if isinstance(error, OSError) and error.filename:
                told = f"{error.filename}: {told}"
            raise StoreError(f"{where} cannot be served: {told}", hint="see --listen and --tls-*") from None
        self.port = server.server_address[1]
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.2,), name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Go on for ``linger_s``, then accept nobody, and end once all are answered, within DRAIN_S."""
        server, self._server = self._server, None
        if server is not None:
            server.is_leaving = True
            self._sleep(self._linger_s)
            server.shutdown()
            server.server_close()
            server.drain(time.monotonic() + DRAIN_S)

    def problem(self) -> str:
        """Return why nobody is served, ""."""
        if self._thread is None or not self._thread.is_alive():
            return "the thread that accepts connections has ended"
        return ""


def _contexts(access: Access) -> Contexts:
    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(access.certificate, access.key or None, password=no_password)
        if access.client_ca:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(access.client_ca)
        return context

    return Contexts([each for each in (access.certificate, access.key, access.client_ca) if each], make)


class _Listener(HTTPServer):
    """Accepts connections, each with a thread, at most MAX_CONNECTIONS."""

    allow_reuse_address = True
    request_queue_size = 128
    request_s = REQUEST_S

    def __init__(
        self, address: tuple[str, int], answer: Answer, access: Access, contexts: Contexts | None
    ) -> None:
        self.answer, self.access, self.contexts = answer, access, contexts
        self._lock = threading.Lock()
        # Connections that wait for their client: since when, and for how long; not those whose request is
        # being answered.
        self.waiting: dict[socket.socket, tuple[float, float]] = {}
        self.large = threading.BoundedSemaphore(MAX_LARGE)
        # Whether answers are the last on their connection; and whether nobody is waited for any more.
        self.is_leaving = self.is_ending = False
        self._connections: set[socket.socket] = set()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Request)

    def server_bind(self) -> None:
        """Bind, without asking DNS for our name as the base class does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "cdigen", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve the connection in a thread of its own, if there is a place for it."""
        if not self._admit(request):
            self.shutdown_request(request)
            return
        work = threading.Thread(target=self._serve, args=(request, client_address), daemon=True)
        try:
            work.start()
        except RuntimeError:  # no more threads
            self._forget(request)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """End connections whose client has taken too long; called a few times each second."""
        now_s = time.monotonic()
        with self._lock:
            late = [each for each, (since_s, limit_s) in self.waiting.items() if now_s > since_s + limit_s]
            for each in late:
                del self.waiting[each]
                _hang_up(each)

    def wait_for(self, connection: socket.socket, limit_s: float) -> None:
        """Note that CONNECTION waits for its client from now on, for LIMIT_S at most."""
        with self._lock:
            if connection in self._connections:
                self.waiting[connection] = (time.monotonic(), limit_s)
                if self.is_ending:
                    _hang_up(connection)

    def has_request(self, connection: socket.socket) -> None:
        """Note that the request of CONNECTION is whole, and is being answered."""
        with self._lock:
            self.waiting.pop(connection, None)

    def drain(self, until_s: float) -> None:
        """End all connections: at once those that wait for their client, others once they are answered."""
        with self._lock:
            self.is_ending = True
            for each in self.waiting:
                _hang_up(each)
        while time.monotonic() < until_s and self._connections:
            time.sleep(0.02)
        with self._lock:
            for each in self._connections:
                _hang_up(each)

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """Say nothing: what clients break off is no fault of ours, and a route's own faults are answered."""

    def _admit(self, connection: socket.socket) -> bool:
        with self._lock:
            if len(self._connections) >= MAX_CONNECTIONS:
                if not self.waiting:
                    return False
                oldest = min(self.waiting, key=lambda each: self.waiting[each][0])
                del self.waiting[oldest]
                self._connections.discard(oldest)
                _hang_up(oldest)
            self._connections.add(connection)
            self.waiting[connection] = (time.monotonic(), self.request_s)
        return True

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)
            self.waiting.pop(connection, None)

    def _serve(self, connection: socket.socket, client_address: Any) -> None:
        served = connection
        try:
            connection.settimeout(self.request_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.contexts is not None:
                served = self.contexts().wrap_socket(connection, server_side=True)
                with self._lock:  # the wrapper has taken the descriptor
                    if connection not in self._connections:
                        return  # another has its place
                    self._connections.remove(connection)
                    self._connections.add(served)
                    since = (time.monotonic(), self.request_s)
                    self.waiting[served] = self.waiting.pop(connection, since)
            self.finish_request(served, client_address)
        except (OSError, ValueError):
            pass  # no handshake, or it went away
        finally:
            self._forget(connection)
            self._forget(served)
            self.shutdown_request(served)


class _Request(BaseHTTPRequestHandler):
    """Reads a request within bounds, and answers it."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # headers and body in one packet
    server_version = "cdigen"
    sys_version = ""
    server: _Listener
    _has_answered = False

    def do_GET(self) -> None:
        """Answer a GET."""
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self._refuse(400, "a GET has no body\n")  # which would be taken for the next request
        elif self._is_allowed():
            self._serve(b"")

    def do_POST(self) -> None:
        """Answer a POST, once its body is there."""
        length = self.headers.get("Content-Length", "")
        is_number = length.isascii() and length.isdecimal() and len(length) < 12
        if self.path in OPEN:
            self._refuse(405, "this path is only read\n", ("Allow", "GET"))
        elif "Transfer-Encoding" in self.headers or not is_number:
            self._refuse(411, "a body needs a Content-Length\n")
        elif int(length) > MAX_BODY:
            self._refuse(413, _TOO_LARGE)
        elif self._is_allowed():
            self._serve_body(int(length))

    def _serve_body(self, length: int) -> None:
        is_large = length > LARGE_BODY
        if is_large and not self.server.large.acquire(blocking=False):
            self._refuse(503, "several large requests are being answered\n", ("Retry-After", "1"))
            return
        try:
            body = self.rfile.read(length)
            if len(body) == length:
                self._serve(body)
            else:
                self.close_connection = True
        finally:
            if is_large:
                self.server.large.release()

    def handle_one_request(self) -> None:
        """Read and answer the next request of this connection, as soon as there is one."""
        if not self._has_more():
            self.close_connection = True
            return
        super().handle_one_request()

    def _has_more(self) -> bool:
        """Wait for the first byte of a request; the first of a connection has to come sooner."""
        limit_s = IDLE_S if self._has_answered else self.server.request_s
        self.server.wait_for(self.connection, limit_s)
        try:
            self.connection.settimeout(limit_s)
            is_there = bool(self.rfile.peek(1))  # type: ignore[attr-defined]  # it is a BufferedReader
            self.connection.settimeout(self.server.request_s)
        except (OSError, ValueError):
            return False
        self.server.wait_for(self.connection, self.server.request_s)
        return is_there

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class' name
        """Log nothing: anybody could fill the log."""

    def _serve(self, body: bytes) -> None:
        self.server.has_request(self.connection)
        try:
            answer = self.server.answer(self.command, self.path.partition("?")[0], body)
        except Exception as error:  # noqa: BLE001 - one request's failure is its own
            answer = Response(body=f"{type(error).__name__}: {error}\n".encode(), status="500 Internal")
        self._send(answer)

    def _is_allowed(self) -> bool:
        access = self.server.access
        if self.path in OPEN:
            return True
        if access.client_ca and not _has_certificate(self.connection):
            self._refuse(403, "a client certificate is needed, of --client-ca\n")
        elif access.client_names and not access.client_names & _names(self.connection):
            self._refuse(403, "the client certificate has no name of --client-name\n")
        elif access.token and not _knows(self.headers.get("Authorization", ""), access.token()):
            self._refuse(401, "the token is missing or another one\n", ("WWW-Authenticate", "Bearer"))
        else:
            return True
        return False

    def _refuse(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        self.close_connection = True  # its body was not read
        line = f"{status} {HTTPStatus(status).phrase}"
        self._send(Response(body=text.encode(), status=line, headers=(("Connection", "close"), *headers)))

    def _send(self, answer: Response) -> None:
        headers = answer.headers
        if self.server.is_leaving and not self.close_connection:
            self.close_connection = True
            headers = (*headers, ("Connection", "close"))
        if not self.server.is_ending:
            self.server.wait_for(self.connection, self.server.request_s)
        self._has_answered = True
        code, _, phrase = answer.status.partition(" ")
        self.send_response(int(code), phrase)
        for name, value in (
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            *headers,
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)


def _hang_up(connection: socket.socket) -> None:
    """End CONNECTION below TLS, whatever its thread does with it."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _has_certificate(connection: socket.socket) -> bool:
    """Return whether the client of CONNECTION has shown a certificate; a bad one has ended it before."""
    return isinstance(connection, ssl.SSLSocket) and bool(connection.getpeercert(binary_form=True))


def _names(connection: socket.socket) -> set[str]:
    """Return the common name and the alternative names of the verified certificate of CONNECTION's client."""
    found = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    certificate: Mapping[str, Any] = found or {}
    subject = [each for part in certificate.get("subject", ()) for each in part]
    common = {value for key, value in subject if key == "commonName"}
    return common | {value for _, value in certificate.get("subjectAltName", ())}


def _knows(authorization: str, token: str) -> bool:
    """Return whether AUTHORIZATION has TOKEN: as a bearer, or as Basic's password, whoever the user is.

    kube-scheduler's configuration has no token for an extender, but a URL with user and password.
    """
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode("utf-8", "replace").partition(":")[2]
        except (ValueError, binascii.Error):
            return False
    elif scheme.lower() != "bearer":
        return False
    return bool(token) and hmac.compare_digest(given.strip().encode(), token.encode())
